// Is a candidate faster than the incumbent, and what has to be measured once more to know it: the
// one place where a search judges step times. Pure: the search measures what is asked for here and
// adds it.
//
// How it is decided. What is compared are runs, not steps: the noise between runs is that of
// everything that was measured repeatedly. A gain counts when its whole interval lies above the
// least gain, none when it lies below. In between, both are run over more steps first, then in
// turns (incumbent, candidate, incumbent), so that a machine that changes makes no difference; what
// is left in between then is undecided, which is not the same as no gain. Nothing wins by one lucky
// run: a candidate that looks better is measured again before it counts, and so is an incumbent
// that was run once. Nor does anything lose by an unlucky one that its prediction contradicts. That
// many candidates are tried is accounted for in stats/shrinkage.h.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tuner/stats/run_comparison.h"
#include "tuner/stats/shrinkage.h"
#include "tuner/strategy.h"

namespace moetune::tuner {

enum class Verdict : uint8_t { gain, no_gain, undecided };

/// A candidate against the incumbent. Ratios are time before / time after - 1.
struct Judgement {
  Verdict verdict = Verdict::undecided;
  double gain_ratio = 0;  ///< drawn towards its prediction, as far as the noise asks for it
  double low_ratio = 0;   ///< its interval of 95 %
  double high_ratio = 0;
  double measured_ratio = 0;   ///< by the measurements alone
  double noise_ratio = 0;      ///< half the interval
  double run_noise_ratio = 0;  ///< standard deviation of one run
  double predicted_ratio = 0;  ///< of the cost model, 0 where it has nothing to say
  int64_t num_runs_before = 0;
  int64_t num_runs_after = 0;
  bool has_turns = false;  ///< they were run in turns
};

/// For the evidence of a decision.
nlohmann::json to_json(const Judgement& judgement);

/// A measurement that would help.
struct NextRun {
  bool is_candidate = false;  ///< else of the incumbent
  Purpose purpose = Purpose::again;
};

/// How a contest ended.
struct Settled {
  Judgement judgement;
  std::optional<TrialOutcome> failure;  ///< of the candidate, when it was measured again
};

/// The request for one more run of the same configuration.
TrialRequest repeat_of(const TrialRequest& request, Purpose purpose, int64_t attempt);

/// All runs of one search.
class Contests {
 public:
  /// `is_exact`: a clock that has no noise; then the first measurements decide.
  Contests(double min_gain_ratio, bool is_exact)
      : min_gain_ratio_(min_gain_ratio), is_exact_(is_exact) {}

  /// Forgets all runs; they are added again as the search is gone through once more. What was
  /// concluded from the same runs is not worked out anew.
  void restart();
  /// A run that ended well, in the order they were made. `rival`: of one in turns, the other one.
  void add(const TrialRequest& request, const TrialOutcome& outcome, const std::string& rival = {});

  /// `predicted_ratio`: what the cost model expects of the change, time before / time after - 1;
  /// none where it has nothing to say. Both need a run.
  [[nodiscard]] Judgement judge(const std::string& incumbent, const std::string& candidate,
                                std::optional<double> predicted_ratio);
  /// What was gained from one trial to another, by the measurements alone: nothing is decided, so
  /// nothing is drawn towards a prediction. None over itself.
  [[nodiscard]] Judgement gain_over(const std::string& first, const std::string& last);
  /// What to measure before a verdict stands; none: it does, or nothing would help.
  [[nodiscard]] std::optional<NextRun> next_run(const std::string& incumbent,
                                                const std::string& candidate,
                                                const Judgement& judgement) const;
  /// Measures what next_run() asks for until the verdict stands, `measure` returns nothing (there
  /// is no room for the run), or a run fails. `judge_both` compares the two as judge() does.
  [[nodiscard]] Settled settle(
      const std::string& incumbent, const std::string& candidate,
      const std::function<Judgement()>& judge_both,
      const std::function<std::optional<TrialOutcome>(const NextRun&)>& measure);
  /// One run says that there is no gain where the cost model has expected one: something else may
  /// have kept the machine busy meanwhile.
  [[nodiscard]] bool is_surprising(const std::string& candidate, const Judgement& judgement) const;
  /// A candidate has been measured for the first time: what its prediction is worth is learnt.
  void learn(const std::string& incumbent, const std::string& candidate, double predicted_ratio);

  /// Runs since the last one of this trial.
  [[nodiscard]] int64_t num_runs_since(const std::string& hash) const;
  /// Runs of a trial, whatever for.
  [[nodiscard]] int64_t num_runs(const std::string& hash) const;
  /// A trial's step time by all its runs of usual length, else of three times as many steps, else
  /// in turns; it needs one.
  [[nodiscard]] StepLevel level_of(const std::string& hash) const;
  /// Standard deviation of one run, a share; none before anything was run twice.
  [[nodiscard]] std::optional<double> run_noise() const { return log_.noise(); }

 private:
  /// Runs over more steps are another configuration, as routing drifts while a router learns; and
  /// those in turns are compared among themselves.
  enum class Kind : uint8_t { usual, longer, in_turns };
  using Pair = std::pair<std::string, std::string>;

  [[nodiscard]] static Kind kind_of(Purpose purpose);
  [[nodiscard]] std::optional<int> index_of(const std::string& hash, Kind kind) const;
  [[nodiscard]] std::vector<LogGain> measured(const std::string& incumbent,
                                              const std::string& candidate);
  [[nodiscard]] Judgement judge_by(const std::string& incumbent, const std::string& candidate,
                                   std::optional<double> predicted_ratio, double spread);
  [[nodiscard]] const std::vector<size_t>& places_in_turns(const std::string& a,
                                                           const std::string& b) const;
  [[nodiscard]] int64_t num_in_turns(const std::string& hash, const std::string& rival) const;
  [[nodiscard]] std::optional<NextRun> next_in_turns(const std::string& incumbent,
                                                     const std::string& candidate) const;

  double min_gain_ratio_;
  bool is_exact_;
  RunLog log_;
  std::vector<std::string> hashes_;  ///< by place in the log
  std::map<std::pair<std::string, Kind>, int> indices_;
  std::map<int, std::vector<RunReading>> readings_;
  std::map<Pair, std::vector<size_t>> turns_;  ///< places in the log
  PredictionErrors prediction_errors_;
  std::string digest_;                                 ///< of all that was added, in order
  std::map<std::string, std::vector<LogGain>> known_;  ///< what was measured, by digest and pair
};

}  // namespace moetune::tuner

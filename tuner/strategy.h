// How a search talks to the loop that runs trials: ask for the next trial, tell what became of it.
// Pure: no files, no clock, no randomness, so that replaying stored outcomes repeats every decision
// and a sweep resumes for free.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/spec/trial_spec.h"
#include "engine/spec/trial_status.h"
#include "kernels/base/search_words.h"
#include "kernels/base/step_parts.h"

namespace moetune::tuner {

using base::DecisionKind;
using base::Phase;

enum class Grade : uint8_t { measured, calibrated, analytic };
const char* name_of(Grade grade);

/// What the models say about a trial before it runs.
struct Prediction {
  int64_t peak_bytes = 0;  ///< highest rank
  /// The same if one rank of each group received all rows that the prediction knows nothing of.
  int64_t most_peak_bytes = 0;
  bool is_peak_exact = false;  ///< each rank's rows are known: the peak is the ledger's
  int64_t step_ns = 0;
  Grade memory_grade = Grade::analytic;
  Grade time_grade = Grade::analytic;
  /// Per rank: peak and its groups (profiler::MemoryGroup order), for the waterfall beside the
  /// measured ones.
  struct Rank {
    int64_t peak_bytes = 0;
    std::map<std::string, int64_t> group_bytes;
  };
  std::vector<Rank> ranks;
  /// Parts of the predicted step, ns, by the names of base::StepPart.
  std::map<std::string, int64_t> step_parts_ns;
};

/// What the loop is asked to do with a point.
enum class Action : uint8_t { run, invalid, pruned };

/// Why a trial is measured: for the first time, or once more to judge better.
enum class Purpose : uint8_t {
  first,
  again,    ///< what looks good, or the best so far: not by luck?
  longer,   ///< over more steps
  in_turns  ///< incumbent, candidate, incumbent: so that the machine's drift makes no difference
};
const char* name_of(Purpose purpose);
/// The same for people, behind what is measured: "over more steps".
const char* words_of(Purpose purpose);

/// A longer measurement has so many times the usual steps.
constexpr int64_t kLongerSteps = 3;
/// One over it: the share of the budget of trials that may go to repeats. The rest is for what is
/// new.
constexpr int64_t kRepeatShare = 3;

struct TrialRequest {
  spec::TrialSpec spec;
  std::string hash;  ///< spec_hash(spec)
  Phase phase = Phase::contract;
  Action action = Action::run;
  std::string reason;  ///< of invalid and pruned: rule name and message
  std::string title;   ///< one line for progress and report, such as "ep_chunks_forward 1 -> 2"
  bool is_reference =
      false;  ///< the one-rank run that gives the expected losses and the routing profile
  bool is_baseline = false;  ///< the user's starting configuration
  bool is_final = false;     ///< the validation run
  /// Which measurement of the trial: 0 the first, whose records are kept; 1, 2, ... further ones,
  /// as they are asked for. Each counts against the budget.
  int64_t attempt = 0;
  Purpose purpose = Purpose::first;
  int64_t num_steps = 0;  ///< timed steps of this measurement; 0: those of the spec
  Prediction prediction;
  /// Of a run of somebody else's engine: all that is chosen, by name; then spec.knobs mean nothing.
  std::vector<std::pair<std::string, std::string>> settings{};
  std::string stored_spec{};  ///< JSON of that run, as it is stored in place of the spec's
  bool is_profiled = false;   ///< run to be looked into, not to be judged by its time
  /// Sentences for people who run it by hand: why it is what comes next; empty: nobody asks.
  std::string why{};
};

/// What became of a request, as measured (or as stored by an earlier run of the same sweep). Of a
/// further measurement only status, reason, step times and window are told.
struct TrialOutcome {
  spec::TrialStatus status = spec::TrialStatus::failed;
  std::string reason;
  int64_t step_ns = 0;      ///< median of the timed steps
  int64_t step_low_ns = 0;  ///< interval of the median
  int64_t step_high_ns = 0;
  int64_t num_timed_steps = 0;
  /// The timed, untraced steps, in order, where the step is their median; else empty.
  std::vector<double> samples_ns;
  double started_s = 0;  ///< when it ran, seconds since 1970
  double ended_s = 0;
  int64_t peak_bytes = 0;            ///< highest rank
  std::optional<base::Wall> wall{};  ///< none when not traced
  std::string wall_cause{};          ///< which of its causes, where that was told apart
  std::string wall_doubt{};          ///< what the traces leave open about it, a sentence; or empty
  /// Of another engine: a step in the traces, which the profiler may have slowed; 0: not known.
  int64_t traced_step_ns = 0;
  /// Parts of the traced step by the names of base::StepPart, adding up to 1.
  std::map<std::string, double> shares;
  /// By wall: what of the step is gained without its causes (StepVerdict::ceilings).
  std::map<std::string, double> ceilings{};
  /// By sub-cause, of the labels whose causes were told apart.
  std::map<std::string, double> cause_ceilings{};
  std::vector<double> losses;   ///< per step, warm-up included
  std::string routing_profile;  ///< JSON, of the reference run only
  /// Measured duration per op label and work, for calibration: label -> (count, flops, bytes, ns)
  /// of the traced step.
  struct OpTime {
    int64_t count = 0;
    int64_t flops = 0;
    int64_t bytes = 0;
    int64_t duration_ns = 0;
    int64_t row_flops = 0;  ///< of plan::OpCost; not measured, but known from the program
  };
  std::map<std::string, OpTime> op_times;
};

/// One line of the story, stored as a decision row.
struct Decision {
  Phase phase = Phase::contract;
  DecisionKind kind = DecisionKind::note;
  std::string trial_hash;     ///< may be empty
  std::string baseline_hash;  ///< may be empty
  std::string wall;
  std::string remedy;
  std::string knob;
  std::string value_before;
  std::string value_after;
  std::optional<double> gain_ratio;      ///< time_before / time_after - 1; none: nothing to compare
  std::optional<double> gain_low_ratio;  ///< its interval of 95 %
  std::optional<double> gain_high_ratio;
  std::optional<double> noise_ratio;  ///< half of the gain's interval
  std::string text;                   ///< a sentence for people
  nlohmann::json evidence;            ///< object: the numbers behind the text, for SQL
};

/// How far a search has come, for the progress line.
struct Progress {
  Phase phase = Phase::contract;
  int64_t num_asked = 0;
  int64_t num_expected = 0;  ///< current guess of the total, asked ones included
};

class Strategy {
 public:
  virtual ~Strategy() = default;
  /// The next point, or nothing when the search is done. Call tell() for it before asking again.
  virtual std::optional<TrialRequest> ask() = 0;
  virtual void tell(const TrialRequest& request, const TrialOutcome& outcome) = 0;
  /// The time budget is nearly used up: from now on ask only for what concludes the search with
  /// what is known already. A search that has nothing to conclude need not listen.
  virtual void finish_soon() {}
  /// Decisions made since the last call, in order.
  virtual std::vector<Decision> take_decisions() = 0;
  [[nodiscard]] virtual Progress progress() const = 0;
  /// Hash of the best trial so far, empty before the first that fitted.
  [[nodiscard]] virtual std::string best_hash() const = 0;
  /// Of the first configuration that fitted and ran to its end; empty before there is one.
  [[nodiscard]] virtual std::string first_fit_hash() const { return {}; }
};

}  // namespace moetune::tuner

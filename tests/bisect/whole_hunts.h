// Whole hunts (run_hunt) in synthetic histories, as synthetic_hunts.h does with the search alone:
// choosing a metric, believing a counter and verifying must not make the answer less sure than it
// claims to be. Shared by the calibration test and the benchmark.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "sweeps/bisect/hunt.h"
#include "tests/tuner/bisect/synthetic_hunts.h"

namespace moetune::tests {

/// What the hunt gets of runs that were made before two long pauses, by when the machine was 10 %
/// slower for a while: up to 15 runs of a hunt that was stopped, then up to 15 more.
enum class EarlierRuns : uint8_t {
  none,       ///< there are none
  forgotten,  ///< there are, but it begins anew
  as_one,     ///< they are judged together
  stretches,  ///< each stretch by itself, as they are told by `moetune bisect`
};

/// A share that every history draws for itself.
struct ShareRange {
  double from = 0.0;
  double to = 0.0;

  template <typename Random>
  double draw(Random& random) const {
    return std::uniform_real_distribution<double>(from, to)(random);
  }
};

struct WholeHuntCase {
  const char* name = "";
  int num_commits = 64;
  double shift = 2.0;  ///< of each culprit, in noises of the step
  int num_culprits = 1;
  bool has_counter = false;        ///< launches that change with the first culprit
  bool has_other_counter = false;  ///< kernels that change at a commit that slows nothing down
  bool has_moved_part = false;     ///< work that went from one operation to another at some commit
  bool has_hidden_part = false;    ///< that takes longer from some commit on, unlike the step
  /// As has_part with the probability part_share; otherwise the operation is one that is hidden,
  /// and with none_of_rest nothing else happens. (The hunt assumes 0.75 and, of all histories, 0.15
  /// without a change: kCoincidence and kNoneAtAll of confirmation.cpp. Drawn here are 0.7 and 0.18
  /// in the mean.)
  bool has_doubtful_part = false;
  ShareRange part_share{0.5, 0.9};
  ShareRange none_of_rest{0.4, 0.8};
  bool has_part = false;  ///< an operation with a tenth of the noise that is what slows down
  /// The noise is the machine's speed, which all operations of the step have in common; one with a
  /// share of 4 % slows down. With the probability made_up_share the others become faster by as
  /// much, all together, so that the step stays what it was. (Assumed: kMisled, 0.03; 0.04 in the
  /// mean here.)
  bool has_common_speed = false;
  ShareRange made_up_share{0.0, 0.08};
  bool is_spread = false;  ///< of that step: over three of the other operations
  bool follows_leads = true;
  EarlierRuns earlier = EarlierRuns::none;
  double min_effect_ratio = 0.02;
  double wander = 0.0;         ///< noises, of a speed that resembles the run before by 0.9
  double crash_share = 0.0;    ///< of the commits
  double failure_share = 0.0;  ///< of the runs
};

/// What the commits of a case give; builds cost five runs.
class SyntheticSource final : public sweeps::HuntSource {
 public:
  SyntheticSource(const WholeHuntCase& planned, unsigned seed) : case_(planned), random_(seed) {
    WholeHuntCase& c = case_;
    if (c.has_doubtful_part) {
      const double part = c.part_share.draw(random_);
      const double none = (1 - part) * c.none_of_rest.draw(random_);
      const double kind = share_(random_);
      c.has_part = kind < part;
      c.has_hidden_part = !c.has_part;
      if (kind >= 1 - none) c.num_culprits = 0;
    }
    is_made_up_for_ = c.has_common_speed && share_(random_) < c.made_up_share.draw(random_);
    std::uniform_int_distribution<int> place(1, c.num_commits);
    while (static_cast<int>(culprits.size()) < c.num_culprits) {
      const int at = place(random_);
      if (std::all_of(culprits.begin(), culprits.end(),
                      [&](int other) { return std::abs(other - at) >= 4; })) {
        culprits.insert(at);
      }
    }
    other_ = place(random_);
    if (is_made_up_for_) changes_.swap(culprits);
    for (int p = 1; p < c.num_commits; ++p) {
      // Where a culprit or its parent cannot be run, nobody can find it.
      const bool is_needed = culprits.contains(p) || culprits.contains(p + 1);
      if (!is_needed && share_(random_) < c.crash_share) crashing_.insert(p);
    }
  }

  sweeps::CommitRun measure(int position, const std::string& purpose) override {
    made.push_back({position, purpose, measure_one(position)});
    return made.back().run;
  }

  sweeps::CommitRun measure_one(int position) {
    sweeps::CommitRun run;
    run.run_seconds = 10;
    run.was_built_now = built_.insert(position).second;
    run.build_seconds = run.was_built_now ? 50 : 0;
    if (crashing_.contains(position) || share_(random_) < case_.failure_share) {
      run.status = sweeps::RunStatus::crashed;
      return run;
    }
    double slower = 0.0;
    for (const int at : is_made_up_for_ ? changes_ : culprits) {
      slower += position >= at ? case_.shift * kNoise : 0.0;
    }
    if (case_.wander > 0) speed_ = 0.9 * speed_ + std::sqrt(1 - 0.81) * normal_(random_);
    double rest = 100e6 + kNoise * (normal_(random_) + case_.wander * speed_);
    if (case_.has_common_speed) {
      const double slowness = rest / 100e6;
      rest = 0.0;
      for (int part = 0; part <= 12; ++part) {
        const bool is_slower = case_.is_spread ? part >= 1 && part <= 3 : part == 0;
        const double work = (part == 0 ? 4e6 : 8e6) +
                            (is_slower ? slower / (case_.is_spread ? 3 : 1) : 0.0) -
                            (is_made_up_for_ ? slower / 13 : 0.0);
        const double duration = work * slowness * (1 + 0.01 * normal_(random_));
        run.metrics[fmt::format("op_{}.forward_ns", part)] = duration;
        rest += duration;
      }
      run.metrics["traced_step_ns"] = rest;
      rest *= 1 + 0.005 * normal_(random_);
    } else if (case_.has_part) {
      const double part = 20e6 + 0.1 * kNoise * normal_(random_) + slower;
      run.metrics["op_dispatch.forward_ns"] = part;
      rest += part - 20e6;
    } else {
      rest += slower;
    }
    if (case_.has_moved_part) {
      const double moved = position >= other_ ? case_.shift * kNoise : 0.0;
      run.metrics["op_a.forward_ns"] = 20e6 + 0.1 * kNoise * normal_(random_) + moved;
      run.metrics["op_b.forward_ns"] = 40e6 + 0.1 * kNoise * normal_(random_) - moved;
    }
    if (case_.has_hidden_part) {
      const double hidden = position >= other_ ? case_.shift * kNoise : 0.0;
      run.metrics["op_hidden.forward_ns"] = 20e6 + 0.1 * kNoise * normal_(random_) + hidden;
    }
    rest *= machine;
    run.value = run.metrics["step_ns"] = rest;
    const bool is_after = !culprits.empty() && position >= *culprits.begin();
    if (case_.has_counter) run.metrics["num_launches"] = is_after ? 4100 : 3000;
    if (case_.has_other_counter) run.metrics["num_kernels"] = position >= other_ ? 900 : 500;
    return run;
  }
  [[nodiscard]] bool is_built(int position) const override { return built_.contains(position); }

  std::set<int> culprits;
  double machine = 1.0;  ///< how slow it is
  std::vector<sweeps::HuntRun> made;
  static constexpr double kNoise = 2e6;  ///< of a step of 100 ms

 private:
  WholeHuntCase case_;
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
  std::uniform_real_distribution<double> share_;
  bool is_made_up_for_ = false;
  std::set<int> changes_;  ///< then, instead of culprits
  int other_ = 0;
  double speed_ = 0.0;
  std::set<int> crashing_;
  std::set<int> built_;
};

/// What two hunts that were stopped have left.
inline std::vector<sweeps::HuntRun> runs_of_stopped_hunts(sweeps::HuntSetup setup,
                                                          SyntheticSource& source,
                                                          EarlierRuns earlier) {
  setup.max_runs = 15;
  sweeps::run_hunt(setup, source);
  source.machine = 1.1;
  sweeps::run_hunt(setup, source);  // it begins anew: what it would have used is of another machine
  source.machine = 1.0;
  std::vector<sweeps::HuntRun> made = std::move(source.made);
  source.made.clear();
  for (size_t i = 0; i < made.size(); ++i) {
    made[i].num_pauses = earlier == EarlierRuns::stretches && i < 15 ? 2 : 1;
  }
  if (earlier == EarlierRuns::forgotten) made.clear();
  return made;
}

inline HuntStatistics run_whole_hunts(const WholeHuntCase& c, int num_hunts,
                                      unsigned first_seed = 5000) {
  HuntStatistics statistics;
  sweeps::HuntSetup setup;
  setup.min_effect_ratio = c.min_effect_ratio;
  if (!c.follows_leads) setup.kind = sweeps::MetricKind::noisy;
  for (int i = 0; i <= c.num_commits; ++i) {
    setup.commits.push_back({fmt::format("{:040x}", i), fmt::format("commit {}", i), "A. Author",
                             "2026-01-01T00:00:00+00:00"});
  }
  for (int h = 0; h < num_hunts; ++h) {
    SyntheticSource source(c, first_seed + static_cast<unsigned>(h));
    if (c.earlier != EarlierRuns::none) {
      setup.earlier.clear();
      setup.earlier = runs_of_stopped_hunts(setup, source, c.earlier);
    }
    const sweeps::HuntAnswer answer = sweeps::run_hunt(setup, source);
    const auto num_built = std::count_if(source.made.begin(), source.made.end(),
                                         [](const auto& run) { return run.run.was_built_now; });
    ++statistics.num_hunts;
    statistics.runs.push_back(static_cast<int>(source.made.size()));
    statistics.builds.push_back(static_cast<int>(num_built));
    statistics.add(answer.result, source.culprits, c.shift * SyntheticSource::kNoise);
  }
  return statistics;
}

}  // namespace moetune::tests

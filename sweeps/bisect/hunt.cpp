// Measures the ends, follows the likeliest metric to a culprit, and asks the metric in question
// whether it agrees.
#include "sweeps/bisect/hunt.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "kernels/base/error.h"
#include "kernels/base/units.h"
#include "sweeps/bisect/confirmation.h"
#include "sweeps/bisect/effect_text.h"
#include "sweeps/bisect/even_speed.h"
#include "sweeps/bisect/hunt_runs.h"
#include "sweeps/bisect/leads.h"
#include "sweeps/bisect/metric_names.h"
#include "sweeps/bisect/moved.h"
#include "sweeps/bisect/old_runs.h"
#include "sweeps/bisect/text.h"
#include "tuner/stats/levels.h"

namespace moetune::sweeps {
namespace {

using tuner::CommitHunt;
using tuner::HuntResult;
using tuner::HuntVerdict;
using tuner::RunPurpose;

constexpr int kFirstEndRuns = 24;  ///< until a part is asked, when the ends are too noisy to tell
/// Limit on runs while a part is followed: this many over (shift / noise)^2. Twice what a hunt
/// needs in the median (tests/bench/bisect_bench.cpp).
constexpr double kLeadRunsAtOneNoise = 320;
constexpr double kFewestLeadRuns = 40;
constexpr const char* kAtEvenSpeed = " at the same speed of the machine";
constexpr double kLargeCount = 1000;  ///< counts this large do not agree by chance
/// Other counters that must agree in all runs of both ends, for counters to count as exact.
constexpr size_t kFewestAgreeingCounters = 2;

/// Stops the hunt from within.
struct HuntStopped {};

class Hunter {
 public:
  Hunter(const HuntSetup& setup, HuntSource& source)
      : setup_(setup), source_(source), runs_(setup) {}

  HuntAnswer run() {
    answer_.metric = answer_.hunted_metric = setup_.metric;
    try {
      take_earlier();
      hunt();
      HuntResult& result = answer_.result;
      if (answer_.has_dropped_earlier && result.verdict == HuntVerdict::no_change) {
        result.verdict = HuntVerdict::environment_changed;
        result.reason = "the ends are alike now, but not what they were when they were run before";
      }
    } catch (const HuntStopped&) {
      answer_.is_interrupted = true;
      // What another metric says is not what was asked for.
      const std::string reason = answer_.result.reason;
      if (is_following_other_) answer_.result = ends_;
      answer_.result.verdict = HuntVerdict::unresolved;
      answer_.result.reason = reason.empty() ? "stopped before the end" : reason;
    }
    if (answer_.result.verdict == HuntVerdict::unresolved && answer_.note.empty()) {
      answer_.note = lead_;
    }
    describe_ends();
    answer_.config_changes = runs_.config_changes_between(0, last_position());
    answer_.moved_between_ends = moved(0, last_position());
    for (const tuner::Culprit& culprit : answer_.result.culprits) {
      const int position = culprit.position;
      answer_.moved.push_back(moved(position - 1, position));
      answer_.culprit_config_changes.push_back(
          runs_.config_changes_between(position - 1, position));
    }
    answer_.skipped = runs_.skipped();
    answer_.unit = runs_.unit();
    answer_.num_runs = runs_.num_used();
    answer_.num_builds = runs_.num_builds();
    answer_.seconds = runs_.seconds();
    return std::move(answer_);
  }

 private:
  [[nodiscard]] int last_position() const { return static_cast<int>(setup_.commits.size()) - 1; }

  [[nodiscard]] std::vector<Moved> moved(int before, int after) const {
    return moved_between(runs_.good_runs_at(before), runs_.good_runs_at(after), setup_.metric,
                         setup_.min_effect_ratio);
  }

  /// Of a hunt that came to no comparison of its own: by the runs that there are.
  void describe_ends() {
    HuntResult& result = answer_.result;
    if (!answer_.failure.empty()) {
      // A run fails or does not: there is no level, and so no noise.
      static_cast<tuner::EndsEffect&>(result) = {};
      return;
    }
    const std::vector<double> good = runs_.values_of(setup_.metric, 0);
    const std::vector<double> bad = runs_.values_of(setup_.metric, last_position());
    const double level = std::abs(mean_of(good));
    if (result.is_known || good.size() < 2 || bad.size() < 2 || level <= 0) return;
    const tuner::LevelDifference difference =
        tuner::level_difference(good, bad, 0.0, setup_.confidence);
    static_cast<tuner::EndsEffect&>(result) =
        tuner::ends_effect_of(difference, 1.0, level, good.size(), bad.size());
  }

  void hunt() {
    if (fails_at_an_end()) return;
    if (is_exact(setup_.metric)) {
      answer_.result = follow(setup_.metric, true, setup_.min_effect_ratio, false);
      if (!answer_.result.is_inexact || setup_.kind == MetricKind::exact) return;
      tell(fmt::format("two runs of one commit differ in {}: it is taken as noisy", setup_.metric));
      answer_.note =
          fmt::format("{} counts as noisy: two runs of one commit differ", setup_.metric);
    }
    HuntResult ends = compare_ends(kFirstEndRuns);
    if (ends.is_too_noisy) {
      is_following_other_ = true;
      if (follow_a_duration(ends)) return;
      is_following_other_ = false;
      answer_.hunted_metric = setup_.metric;
      ends = compare_ends(tuner::HuntOptions().max_end_runs);
      if (ends.is_too_noisy && lead_.empty()) answer_.note = ends_at_even_speed();
    }
    if (!is_searching_) return;
    if (setup_.kind == MetricKind::automatic && are_equal(runs_.values_of(setup_.metric, 0)) &&
        are_equal(runs_.values_of(setup_.metric, last_position()))) {
      answer_.note = "all runs of an end agree: one run for each commit";
      answer_.result = follow(setup_.metric, true, setup_.min_effect_ratio, false);
      if (!answer_.result.is_inexact) return;
      answer_.note.clear();
    }
    is_following_other_ = true;
    if (follow_a_counter(ends)) return;
    if (follow_a_duration(ends)) return;
    is_following_other_ = false;
    answer_.hunted_metric = setup_.metric;
    answer_.result = follow(setup_.metric, false, setup_.min_effect_ratio, false);
  }

  HuntResult compare_ends(int most_runs) {
    answer_.result = ends_ =
        follow(setup_.metric, false, setup_.min_effect_ratio, true, false, most_runs);
    return ends_;
  }

  void take_earlier() {
    LookAgain look{0, last_position()};
    look.value_of = [this](const CommitRun& run) { return runs_.value_of(run, setup_.metric); };
    look.measure = [this](int position, const std::string& purpose) -> std::optional<CommitRun> {
      if (setup_.is_stop_asked && setup_.is_stop_asked()) return std::nullopt;
      CommitRun run = source_.measure(position, purpose);
      if (run.status == RunStatus::interrupted) return std::nullopt;
      return run;
    };
    look.tell = [this](const std::string& line) { tell(line); };
    look.min_effect_ratio = setup_.min_effect_ratio;
    look.confidence = setup_.confidence;
    const std::optional<EarlierRuns> earlier = that_still_hold(setup_.earlier, look);
    if (!earlier) throw HuntStopped{};
    answer_.has_dropped_earlier = earlier->has_dropped;
    for (const HuntRun& run : earlier->runs) runs_.keep(run);
  }

  // A run that fails at the bad end only is the regression itself; so is a build.
  bool fails_at_an_end() {
    std::string message;
    RunStatus failure = RunStatus::ok;
    const auto fails = [&](int position) {
      for (size_t i = 0; i < 2; ++i) {
        const CommitRun& run = runs_[nth_run(position, i, RunPurpose::ends)];
        failure = run.status;
        message = run.message;
        if (run.status == RunStatus::ok) return false;
        if (run.status == RunStatus::build_failed) return true;
      }
      return true;
    };
    const auto end_text = [&](int position) {
      return fmt::format("commit {} ({}): {}", short_id(position), position == 0 ? "good" : "bad",
                         message);
    };
    if (fails(0)) {
      answer_.result.verdict = HuntVerdict::unresolved;
      answer_.result.reason = "the good end cannot be measured: " + end_text(0);
      return true;
    }
    if (!fails(last_position())) return false;
    if (failure == RunStatus::not_prepared) {
      answer_.result.verdict = HuntVerdict::unresolved;
      answer_.result.reason = "the bad end cannot be measured: " + end_text(last_position());
      return true;
    }
    runs_.set_failure(failure);
    answer_.failure = name_of(failure);
    answer_.note =
        fmt::format("the bad end ends as {}: hunting for the commit from which it does: ",
                    answer_.failure) +
        end_text(last_position());
    tell(answer_.note);
    answer_.hunted_metric = kRunFailsMetric;
    answer_.result = follow(kRunFailsMetric, true, setup_.min_effect_ratio, false);
    if (answer_.result.is_inexact) {
      answer_.result.reason = fmt::format(
          "it does not always end as {}: with some commits only now and then", answer_.failure);
      answer_.result.suspects.clear();
      answer_.result.posterior.clear();
      answer_.result.no_change.reset();
    }
    return true;
  }

  [[nodiscard]] bool is_exact(const std::string& metric) const {
    if (setup_.kind != MetricKind::automatic) return setup_.kind == MetricKind::exact;
    return is_exact_metric(metric);
  }

  // Bytes, launches, configured values and the like are the same in every run: where one changed
  // with the metric, it shows the place in one run a commit.
  bool follow_a_counter(const HuntResult& ends) {
    if (setup_.kind != MetricKind::automatic) return false;
    for (const CounterLead& lead : counters_to_follow(runs_, setup_)) {
      tell(fmt::format("{} differs between the ends and is the same in every run: following it",
                       plain_text(lead.metric, 100)));
      const HuntResult found =
          follow(lead.metric, true, setup_.min_effect_ratio, false, lead.has_fallen);
      if (adopt(found, ends, lead.metric)) return true;
    }
    return false;
  }

  // A part of the step, or the step itself at the same speed of the machine: what has moved by more
  // of its noises first.
  bool follow_a_duration(const HuntResult& ends) {
    if (setup_.kind != MetricKind::automatic) return false;
    const std::optional<PartLead> part = part_to_follow(runs_, setup_, ends);
    const std::optional<EvenSpeed> even = even_speed();
    const double noises = even ? noises_at_even_speed(*even, ends) : 0.0;
    const bool is_part_first = part && part->noises >= noises;
    return (is_part_first && follow_a_part(*part, ends)) ||
           (noises > 0 && follow_at_even_speed(*even, noises, ends)) ||
           (part && !is_part_first && follow_a_part(*part, ends));
  }

  bool follow_a_part(const PartLead& lead, const HuntResult& ends) {
    tell(fmt::format("{} has moved by {:.1f} times its noise: following it",
                     plain_text(lead.metric, 100), lead.noises));
    const HuntResult found = follow_lead(lead.metric, lead.least_effect_ratio, lead.noises);
    return adopt(found, ends, lead.metric, lead.scale);
  }

  HuntResult follow_lead(const std::string& metric, double least_effect_ratio, double noises) {
    const double most = std::max(kFewestLeadRuns, kLeadRunsAtOneNoise / (noises * noises));
    return follow(metric, false, least_effect_ratio, false, false,
                  tuner::HuntOptions().max_end_runs, runs_.num_used() + static_cast<int>(most));
  }

  /// By how many of its noises the metric differs there between the ends; 0 where that is too
  /// little, or no better than without.
  [[nodiscard]] double noises_at_even_speed(const EvenSpeed& even, const HuntResult& ends) const {
    const tuner::LevelDifference difference = *even.ends_differ_by(runs_, setup_);
    const double least = setup_.min_effect_ratio * mean_of(even.values_at(runs_, 0));
    const double noises = difference.mean / difference.noise;
    const double raw = ends.effect_ratio / std::max(ends.noise_ratio, 1e-12);
    const bool is_better = difference.low > 0 && noises >= kWorthFollowing * raw;
    return is_better && difference.mean >= least ? noises : 0.0;
  }

  bool follow_at_even_speed(const EvenSpeed& even, double noises, const HuntResult& ends) {
    tell(fmt::format(
        "at the same speed of the machine {} has moved by {:.1f} times its noise: following it",
        setup_.metric, noises));
    const std::string metric = even.metric() + kAtEvenSpeed;
    runs_.define(metric, [this, even](const CommitRun& run) { return even.value_of(runs_, run); });
    const HuntResult found = follow_lead(metric, setup_.min_effect_ratio, noises);
    return adopt(found, ends, metric, 1.0);
  }

  [[nodiscard]] std::optional<EvenSpeed> even_speed() const {
    if (setup_.kind != MetricKind::automatic || setup_.is_higher_better) return std::nullopt;
    return EvenSpeed::of(runs_, setup_, "");
  }

  /// Empty where that is not known.
  [[nodiscard]] std::string ends_at_even_speed() const {
    const std::optional<EvenSpeed> even = even_speed();
    if (!even) return "";
    const double level = mean_of(even->values_at(runs_, 0));
    return fmt::format(
        "corrected for the machine's speed in each run, the ends differ by {}",
        effect_text(tuner::effect_of(*even->ends_differ_by(runs_, setup_), 1.0, level)));
  }

  // A culprit found by another metric counts if the metric in question moves there, and only there.
  bool adopt(const HuntResult& found, const HuntResult& ends, const std::string& metric,
             std::optional<double> scale_of_part = std::nullopt) {
    if (found.verdict != HuntVerdict::culprit || found.culprits.size() != 1) return false;
    const int position = found.culprits.front().position;
    lead_ = fmt::format("{} changes at {}, but {} shows no change there", plain_text(metric, 100),
                        short_id(position), setup_.metric);
    const std::optional<tuner::LevelDifference> growth =
        scale_of_part ? growth_of(found.culprits.front(), *scale_of_part) : std::nullopt;
    const bool is_added = growth && !is_made_up_for(runs_, setup_, position, growth->mean);
    const Confirmation* asking = nullptr;
    Confirmation confirmation(setup_, runs_, ends, position, [&](int at, size_t n) {
      confirming_ = progress_of(*asking, position);
      static_cast<void>(nth_run(at, n, RunPurpose::verify));
      confirming_.clear();
    });
    asking = &confirmation;
    const std::optional<tuner::LevelDifference> difference =
        is_added ? confirmation.by_growth(metric, *growth) : confirmation.by_all_commits();
    const std::vector<double> parent = runs_.values_of(setup_.metric, position - 1);
    const double least = tuner::kSmallShare * setup_.min_effect_ratio;
    if (!difference || parent.empty() ||
        std::abs(difference->mean) < least * std::abs(mean_of(parent))) {
      const bool is_refuted = confirmation.probability() <= 1 - setup_.confidence;
      if (is_added && !is_refuted) likely_position_ = position;
      tell(lead_ + ": no longer followed");
      return false;
    }
    if (confirmation.has_more(*difference)) {
      lead_.clear();
      tell(fmt::format("{} changes at {}, but {} changes elsewhere, too: no longer followed",
                       plain_text(metric, 100), short_id(position), setup_.metric));
      return false;
    }
    const double sign = setup_.is_higher_better ? -1.0 : 1.0;
    tuner::Culprit culprit = found.culprits.front();
    culprit.before = mean_of(parent);
    culprit.after = culprit.before + sign * difference->mean;
    // Relative to the value before. Where that is 0, to the value after.
    const double unit = culprit.before != 0  ? std::abs(culprit.before)
                        : culprit.after != 0 ? std::abs(culprit.after)
                                             : 1.0;
    static_cast<tuner::Effect&>(culprit) = tuner::effect_of(*difference, sign, unit);
    culprit.confidence = std::min(culprit.confidence, confirmation.probability());
    answer_.result = found;
    answer_.result.culprits = {culprit};
    answer_.result.has_drift = confirmation.is_drifting();
    static_cast<tuner::EndsEffect&>(answer_.result) = ends;
    answer_.hunted_metric = metric;
    if (confirmation.is_of_part()) {
      answer_.effect_metric = metric;
    } else if (confirmation.even_speed()) {
      answer_.effect_metric = confirmation.even_speed()->metric();
    }
    answer_.note = how_found(metric, confirmation);
    return true;
  }

  [[nodiscard]] std::string progress_of(const Confirmation& confirmation, int position) const {
    const double p = confirmation.probability();
    return fmt::format("; 1 commit left, {}{}; at most {} to go", short_id(position),
                       p > 0 ? fmt::format(" at {:.0f} %", 100 * p) : "",
                       count_text(static_cast<size_t>(confirmation.num_left()), "run"));
  }

  [[nodiscard]] std::string how_found(const std::string& metric,
                                      const Confirmation& confirmation) const {
    const std::string name = plain_text(metric, 100);
    if (confirmation.is_of_part()) {
      return fmt::format(
          "found by {0}, a part of {1}; the effect is that of the part, as the noise of {1} hides "
          "it",
          name, setup_.metric);
    }
    if (!confirmation.even_speed()) {
      return fmt::format("found by {}, confirmed by {}", name, setup_.metric);
    }
    return fmt::format(
        "found by {}, confirmed by {}, corrected for the machine's speed in each run; the effect "
        "is the corrected one",
        name, confirmation.even_speed()->metric());
  }

  /// By what a part has grown at its culprit, in units of the metric that was asked for.
  static std::optional<tuner::LevelDifference> growth_of(const tuner::Culprit& culprit,
                                                         double scale) {
    tuner::LevelDifference growth;
    const double unit = scale * std::abs(culprit.before);
    growth.mean = unit * culprit.effect_ratio;
    growth.low = unit * culprit.effect_low_ratio;
    growth.high = unit * culprit.effect_high_ratio;
    if (growth.mean <= 0) return std::nullopt;
    return growth;
  }

  /// Hunts one metric; runs that were made already are used first. `stops_after_ends` leaves when
  /// the ends are known to differ (is_searching_).
  HuntResult follow(const std::string& metric, bool is_deterministic, double min_effect_ratio,
                    bool stops_after_ends, bool has_fallen = false,
                    int max_end_runs = tuner::HuntOptions().max_end_runs,
                    int max_runs = std::numeric_limits<int>::max()) {
    tuner::HuntOptions options;
    options.num_positions = last_position();
    options.is_higher_better = metric == setup_.metric ? setup_.is_higher_better : has_fallen;
    options.min_effect_ratio = min_effect_ratio;
    options.confidence = setup_.confidence;
    options.is_deterministic = is_deterministic;
    options.second_look = second_look_of(metric);
    // One that changes more than once shows no place.
    options.wants_one = metric != setup_.metric && metric != kRunFailsMetric;
    options.max_runs = std::min(setup_.max_runs, max_runs);
    options.max_end_runs = max_end_runs;
    if (!is_deterministic) options.prior = prior_of(metric);
    CommitHunt hunt(options);
    for (int position = 0; position <= last_position(); ++position) {
      if (was_built_before(position)) hunt.set_built(position);
    }
    std::map<std::pair<int, bool>, size_t> used;
    std::map<int, int> failures;
    std::map<int, int> successes;
    is_searching_ = false;
    while (true) {
      const auto request = hunt.next();
      // With what is known now.
      if (unreported_) report(*std::exchange(unreported_, std::nullopt), &hunt, metric);
      if (!request) break;
      const int position = request->position;
      answer_.result = hunt.result();
      if (stops_after_ends && request->purpose != RunPurpose::ends) {
        is_searching_ = true;
        return hunt.result();
      }
      const bool is_fresh = request->purpose == RunPurpose::verify;
      size_t index = 0;
      try {
        index = nth_run(position, used[{position, is_fresh}]++, request->purpose, true);
      } catch (const HuntStopped&) {
        hunt.stop(answer_.result.reason);
        answer_.result = hunt.result();
        throw;
      }
      const CommitRun& run = runs_[index];
      hunt.set_costs({runs_.build_cost()});
      const bool is_built =
          run.status != RunStatus::build_failed && run.status != RunStatus::not_prepared;
      if (is_built) hunt.set_built(position);
      if (const std::optional<double> value = runs_.value_of(run, metric)) {
        ++successes[position];
        hunt.add(position, *value, runs_.time_of(index));
      } else if (run.status == RunStatus::build_failed ||
                 (++failures[position] >= 2 && failures[position] > successes[position])) {
        // What fails now and then can be measured.
        hunt.add_failure(position);
      }
    }
    return hunt.result();
  }

  // Failing is a yes or no, so runs agree by chance: look twice. Where other counters agree at both
  // ends to the last digit, counters count as exact.
  [[nodiscard]] tuner::SecondLook second_look_of(const std::string& metric) const {
    if (metric == kRunFailsMetric) return tuner::SecondLook::always;
    if (setup_.kind == MetricKind::exact || metric.starts_with(kConfigPrefix)) {
      return tuner::SecondLook::none;
    }
    size_t num_agreeing = 0;
    for (const std::string& name : runs_.common_metrics()) {
      if (stored_metric(name) == stored_metric(metric) || !is_exact_metric(name)) continue;
      std::vector<double> values = runs_.values_of(name, 0);
      const std::vector<double> bad = runs_.values_of(name, last_position());
      values.insert(values.end(), bad.begin(), bad.end());
      num_agreeing += are_equal(values) && std::abs(values.front()) >= kLargeCount;
    }
    return num_agreeing >= kFewestAgreeingCounters ? tuner::SecondLook::none
                                                   : tuner::SecondLook::in_doubt;
  }

  // Whether it was built when the hunt began: a resumed hunt then asks the same questions again.
  [[nodiscard]] bool was_built_before(int position) const {
    const CommitRun* first = runs_.first_at(position);
    if (first == nullptr || first->status == RunStatus::not_prepared) {
      return source_.is_built(position);
    }
    return !first->was_built_now;
  }

  [[nodiscard]] std::vector<double> prior_of(const std::string& metric) const {
    if (metric != setup_.metric || !likely_position_) return {};
    std::vector<double> prior(static_cast<size_t>(last_position()), 1.0);
    const auto others = static_cast<double>(prior.size() - 1);
    double& likely = prior[static_cast<size_t>(*likely_position_) - 1];
    if (others > 0) likely = others * kCoincidence / (1 - kCoincidence);
    return prior;
  }

  /// Index of the nth run of a position, those for verification counted apart; made when there are
  /// fewer. Runs are in the order of time. `is_told_later`: reported after the hunt has seen it,
  /// with what is left then.
  size_t nth_run(int position, size_t n, RunPurpose purpose, bool is_told_later = false) {
    const bool is_fresh = purpose == RunPurpose::verify;
    std::optional<size_t> index = runs_.nth(position, n, is_fresh);
    while (!index) {
      if (setup_.is_stop_asked && setup_.is_stop_asked()) throw HuntStopped{};
      if (runs_.num_used() >= setup_.max_runs ||
          (setup_.max_seconds > 0 && runs_.seconds() >= setup_.max_seconds)) {
        answer_.result.reason =
            fmt::format("{} runs and {:.0f} s are used up", runs_.num_used(), runs_.seconds());
        throw HuntStopped{};
      }
      if (is_fresh && answer_.failure == name_of(RunStatus::build_failed)) {
        source_.discard_build(position);
      }
      const HuntRun run{position, tuner::name_of(purpose),
                        source_.measure(position, tuner::name_of(purpose))};
      if (run.run.status == RunStatus::interrupted) throw HuntStopped{};
      runs_.use(runs_.keep(run));
      if (is_told_later) {
        unreported_ = run;
      } else {
        report(run, nullptr, setup_.metric);
      }
      index = runs_.nth(position, n, is_fresh);
    }
    runs_.use(*index);
    return *index;
  }

  void tell(const std::string& line) const {
    if (setup_.on_progress) setup_.on_progress(line);
  }

  void report(const HuntRun& run, const CommitHunt* hunt, const std::string& metric) const {
    if (!setup_.on_progress) return;
    std::string line = fmt::format(
        "[{} runs, {} builds, {:.0f} s] {} {} ({}): ", runs_.num_used(), runs_.num_builds(),
        runs_.seconds(), short_id(run.position),
        plain_text(setup_.commits[static_cast<size_t>(run.position)].subject, 40), run.purpose);
    const std::optional<double> value = runs_.value_of(run.run, metric);
    line += value ? fmt::format("{} {:.6g}", plain_text(metric, 100), *value) : run.run.message;
    line += confirming_;
    if (hunt != nullptr) {
      const HuntResult& result = hunt->result();
      if (!result.suspects.empty()) {
        const auto best = std::max_element(result.posterior.begin(), result.posterior.end());
        line += fmt::format(
            "; {} left, best {} at {:.0f} %", count_text(result.suspects.size(), "commit"),
            short_id(static_cast<int>(best - result.posterior.begin())), 100 * *best);
      } else {
        line += fmt::format("; {} left", count_text(setup_.commits.size() - 1, "commit"));
        if (result.noise_ratio > 0) {
          line += ", ends differ by " + effect_text(result);
        }
      }
      line += runs_left_text(hunt->expected_runs_left());
    }
    setup_.on_progress(line);
  }

  [[nodiscard]] std::string short_id(int position) const {
    return base::short_commit(setup_.commits[static_cast<size_t>(position)].id);
  }

  const HuntSetup& setup_;
  HuntSource& source_;
  HuntAnswer answer_;
  HuntRuns runs_;
  bool is_searching_ = false;
  HuntResult ends_;  ///< of the metric that was asked for
  bool is_following_other_ = false;
  /// Where a part takes longer, when it was neither confirmed nor refuted that the metric does,
  /// too.
  std::optional<int> likely_position_;
  std::optional<HuntRun> unreported_;  ///< the run that was told to the search last
  std::string confirming_;             ///< how far it is, for people
  std::string lead_;  ///< what was found by another metric and could not be confirmed
};

}  // namespace

HuntAnswer run_hunt(const HuntSetup& setup, HuntSource& source) {
  MOETUNE_CHECK(setup.commits.size() >= 2, "{} commits", setup.commits.size());
  return Hunter(setup, source).run();
}

}  // namespace moetune::sweeps

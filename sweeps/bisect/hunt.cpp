// Following a metric from the ends to the culprits; see hunt.h.
#include "sweeps/bisect/hunt.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "kernels/base/error.h"
#include "sweeps/bisect/effect_text.h"
#include "sweeps/bisect/hunt_runs.h"
#include "sweeps/bisect/leads.h"
#include "sweeps/bisect/metric_names.h"
#include "sweeps/bisect/old_runs.h"
#include "sweeps/bisect/text.h"
#include "tuner/bisect/change_points.h"
#include "tuner/bisect/drift.h"
#include "tuner/bisect/priors.h"

namespace moetune::sweeps {
namespace {

using tuner::CommitHunt;
using tuner::HuntResult;
using tuner::HuntVerdict;
using tuner::RunPurpose;

constexpr int kFirstEndRuns = 24;  ///< until a part is asked, when the ends are too noisy to tell
constexpr int kFewestConfirmRuns = 6;  ///< of a culprit and its parent, on the metric asked for
/// And at most: by how much the ends differ, within these two.
constexpr double kConfirmRunsAtOneNoise = 50;
constexpr double kFewestOfMostConfirmRuns = 40;
constexpr double kMostConfirmRuns = 160;
constexpr double kLargeCount = 1000;           ///< that does not agree by chance
constexpr size_t kFewestAgreeingCounters = 2;  ///< of one run's
constexpr double kElsewhereMass = 0.15;  ///< of changes that a counter's culprit does not explain
constexpr double kElsewhereOdds = 0.05;  ///< prior, of such a change
/// Prior that the metric moves where another one that differs between the ends does; what is
/// claimed with it agrees with what is delivered (tests/bench/bisect_bench.cpp).
constexpr double kCoincidence = 0.75;
/// Where the ends do not tell whether the metric moves at all: that it does not. The rest is that
/// it does elsewhere.
constexpr double kNoneAtAll = 0.15;
constexpr double kMostLogOdds = 300;

/// Stops the hunt from within.
struct Interrupted {};

/// A change that the metric that was asked for shows where another one has changed.
struct Confirmed {
  tuner::LevelDifference difference;
  bool is_of_part = false;  ///< which has shown it, the metric itself is too noisy for that
};

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
    } catch (const Interrupted&) {
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
    answer_.config_changes = runs_.config_changes_between(0, last_position());
    for (const tuner::Culprit& culprit : answer_.result.culprits) {
      const int position = culprit.position;
      answer_.moved.push_back(runs_.moved_between(position - 1, position));
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

  void hunt() {
    if (fails_at_an_end()) return;
    if (is_exact(setup_.metric)) {
      answer_.result = follow(setup_.metric, true, setup_.min_effect_ratio, false);
      if (!answer_.result.is_inexact || setup_.kind == MetricKind::exact) return;
      tell(fmt::format("two runs of one commit differ in {}: it is taken as noisy", setup_.metric));
      answer_.note = "it differs between runs of one commit, against what its name promises";
    }
    HuntResult ends = compare_ends(kFirstEndRuns);
    if (ends.is_too_noisy) {
      is_following_other_ = true;
      if (follow_a_part(ends)) return;
      is_following_other_ = false;
      answer_.hunted_metric = setup_.metric;
      ends = compare_ends(tuner::HuntOptions().max_end_runs);
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
    if (follow_a_part(ends)) return;
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
    std::vector<HuntRun> runs = setup_.earlier;
    const int last = last_position();
    int oldest = 0;
    for (const HuntRun& run : runs) oldest = std::max(oldest, run.num_pauses);
    if (oldest > 0) look_at_ends(runs);
    const std::set<int> dropped = changed_stretches(
        oldest,
        [&](bool is_bad, int stretch) { return end_runs(runs, stretch, is_bad ? last : 0); },
        setup_.min_effect_ratio, setup_.confidence);
    answer_.has_dropped_earlier = !dropped.empty();
    if (answer_.has_dropped_earlier) {
      tell("the machine is not what it was: what was measured then is not used");
    }
    for (const HuntRun& run : runs) {
      if (!dropped.contains(run.num_pauses)) runs_.keep(run);
    }
  }

  /// Until each end has kLooks runs of now; a hunt that goes on makes those that are missing.
  void look_at_ends(std::vector<HuntRun>& runs) {
    bool has_told = false;
    const int last = last_position();
    for (const int position : {0, last, last, 0, 0, last}) {
      const EndRuns now = end_runs(runs, 0, position);
      if (now.values.size() + now.num_failed >= kLooks) continue;
      if (!has_told)
        tell("what was measured is old: the ends first, to see whether it still holds");
      has_told = true;
      if (setup_.is_stop_asked && setup_.is_stop_asked()) throw Interrupted{};
      const char* purpose = tuner::name_of(RunPurpose::reference);
      runs.push_back({position, purpose, source_.measure(position, purpose)});
      if (runs.back().run.status == RunStatus::interrupted) throw Interrupted{};
    }
  }

  [[nodiscard]] EndRuns end_runs(const std::vector<HuntRun>& runs, int stretch,
                                 int position) const {
    EndRuns end;
    for (const HuntRun& run : runs) {
      if (run.position != position || run.num_pauses != stretch) continue;
      if (const auto value = runs_.value_of(run.run, setup_.metric)) {
        end.values.push_back(*value);
      } else {
        ++end.num_failed;
      }
    }
    return end;
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

  // A part of the step whose shift is larger beside its own noise.
  bool follow_a_part(const HuntResult& ends) {
    if (setup_.kind != MetricKind::automatic) return false;
    const std::optional<PartLead> lead = part_to_follow(runs_, setup_, ends);
    if (!lead) return false;
    tell(fmt::format("{} has moved by {:.1f} times its noise: following it",
                     plain_text(lead->metric, 100), lead->noises));
    const HuntResult found = follow(lead->metric, false, lead->least_effect_ratio, false);
    return adopt(found, ends, lead->metric, lead->scale);
  }

  // What another metric has found counts when the one that was asked for moves there, too, and
  // nowhere else.
  bool adopt(const HuntResult& found, const HuntResult& ends, const std::string& metric,
             std::optional<double> scale_of_part = std::nullopt) {
    if (found.verdict != HuntVerdict::culprit || found.culprits.size() != 1) return false;
    const int position = found.culprits.front().position;
    lead_ = fmt::format("{} changes at {}, but {} not visibly", plain_text(metric, 100),
                        short_id(position), setup_.metric);
    const std::optional<tuner::LevelDifference> growth =
        scale_of_part ? growth_of(found.culprits.front(), *scale_of_part) : std::nullopt;
    const bool is_added = growth && !is_made_up_for(runs_, setup_, position, growth->mean);
    const std::optional<Confirmed> confirmed =
        is_added ? confirm_part(position, ends, *growth) : confirm(position, ends);
    const std::vector<double> parent = runs_.values_of(setup_.metric, position - 1);
    if (!confirmed || parent.empty()) {
      tell(lead_ + ": not followed any more");
      return false;
    }
    const tuner::LevelDifference& difference = confirmed->difference;
    const bool has_more =
        is_drifting_ ? leaves_some(difference, ends)
                     : changes_within(0, position - 1) || changes_within(position, last_position());
    if (has_more) {
      lead_.clear();
      tell(fmt::format("{} changes at {}, but {} changes elsewhere, too: not followed any more",
                       plain_text(metric, 100), short_id(position), setup_.metric));
      return false;
    }
    const double sign = setup_.is_higher_better ? -1.0 : 1.0;
    tuner::Culprit culprit = found.culprits.front();
    culprit.before = mean_of(parent);
    culprit.after = culprit.before + sign * difference.mean;
    // A ratio to nothing is none: then to the larger of the two.
    const double unit = culprit.before != 0  ? std::abs(culprit.before)
                        : culprit.after != 0 ? std::abs(culprit.after)
                                             : 1.0;
    static_cast<tuner::Effect&>(culprit) = tuner::effect_of(difference, sign, unit);
    culprit.confidence = std::min(culprit.confidence, confirmed_);
    answer_.result = found;
    answer_.result.culprits = {culprit};
    answer_.result.has_drift = is_drifting_;
    static_cast<tuner::EndsEffect&>(answer_.result) = ends;
    answer_.hunted_metric = metric;
    if (confirmed->is_of_part) answer_.effect_metric = metric;
    answer_.note =
        confirmed->is_of_part
            ? fmt::format(
                  "found by {0}, a part of {1}; the effect is that of the part, as the noise "
                  "of {1} hides it",
                  plain_text(metric, 100), setup_.metric)
            : fmt::format("found by {}, confirmed by {}", plain_text(metric, 100), setup_.metric);
    return true;
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

  /// Whether the metric that was asked for has likely changed between two positions, by all runs.
  [[nodiscard]] bool changes_within(int first, int last) const {
    std::vector<tuner::CommitReadings> commits = readings_within(first, last);
    if (commits.size() < 2) return false;
    for (tuner::CommitReadings& commit : commits) commit.position -= first;
    tuner::ChangePointOptions options;
    options.num_positions = last - first;
    options.no_change_odds = 1 / kElsewhereOdds;
    return 1 - tuner::change_point_posterior(commits, options).no_change >= kElsewhereMass;
  }

  [[nodiscard]] std::vector<tuner::CommitReadings> readings_within(int first, int last) const {
    std::vector<int> positions(static_cast<size_t>(last - first) + 1);
    std::iota(positions.begin(), positions.end(), first);
    return readings_at(positions);
  }

  /// Of the metric that was asked for; more is worse.
  [[nodiscard]] std::vector<tuner::CommitReadings> readings_at(
      const std::vector<int>& positions) const {
    const double sign = setup_.is_higher_better ? -1.0 : 1.0;
    std::vector<tuner::CommitReadings> commits;
    for (const int position : positions) {
      std::vector<double> values = runs_.values_of(setup_.metric, position);
      for (double& value : values) value *= sign;
      if (!values.empty()) commits.push_back({position, std::move(values)});
    }
    return commits;
  }

  /// Fresh runs of a commit and its parent in turns, until the metric that was asked for has or has
  /// not changed there by `probability_of` (its readings by commit, the weight of one). Gives the
  /// change of the level, from runs of all commits or of these two.
  template <typename Probability>
  std::optional<Confirmed> confirm_by(int position, const HuntResult& ends, bool uses_all,
                                      const Probability& probability_of) {
    std::map<int, size_t> used;
    int most = most_confirm_runs(ends, 0.0);
    for (int count = 0; count < most; ++count) {
      const bool is_parent = count % 4 == 0 || count % 4 == 3;
      const int at = is_parent ? position - 1 : position;
      static_cast<void>(nth_run(at, used[at]++, RunPurpose::verify));
      if (count + 1 < kFewestConfirmRuns || count % 2 == 0) continue;
      const tuner::DriftWatch watch = drift();
      is_drifting_ = ends.has_drift || watch.is_there();
      const double weight =
          is_drifting_ && !watch.is_there() ? tuner::kWeightInWander : watch.weight_of_reading();
      // Where the machine drifts, only what was run in turns can be compared.
      const std::vector<tuner::CommitReadings> commits =
          is_drifting_ ? freed_readings(position - 1, position)
          : uses_all   ? readings_within(0, last_position())
                       : readings_at({position - 1, position});
      if (commits.size() < 2) return std::nullopt;
      // The machine may be noisier by now.
      most = std::max(most, most_confirm_runs(ends, tuner::pooled_noise(commits)));
      confirmed_ = probability_of(commits, weight);
      if (confirmed_ <= 1 - setup_.confidence) return std::nullopt;
      if (confirmed_ < setup_.confidence) continue;
      std::vector<double> before;
      std::vector<double> after;
      for (const tuner::CommitReadings& commit : commits) {
        std::vector<double>& side = commit.position < position ? before : after;
        side.insert(side.end(), commit.values.begin(), commit.values.end());
      }
      if (before.empty() || after.empty()) return std::nullopt;
      return Confirmed{tuner::level_difference(before, after, 0.0, setup_.confidence, weight),
                       false};
    }
    return std::nullopt;
  }

  /// By the posterior over all commits from all runs, with a prior of kCoincidence for this one.
  std::optional<Confirmed> confirm(int position, const HuntResult& ends) {
    tuner::ChangePointOptions options;
    options.num_positions = last_position();
    const double other = (1 - kCoincidence) / std::max(1, last_position() - 1);
    options.prior.assign(static_cast<size_t>(last_position()), other);
    options.prior[static_cast<size_t>(position) - 1] = kCoincidence;
    return confirm_by(position, ends, true, [&](const auto& commits, double weight) {
      options.weight_of_reading = weight;
      options.no_change_odds = is_drifting_ ? 1 - kCoincidence : 1.0;
      return tuner::change_point_posterior(commits, options).change[static_cast<size_t>(position)];
    });
  }

  /// Where a part takes longer by `growth`: either the metric does, too, by just as much, or not at
  /// all, as other work hides it. That leaves no level to be guessed, so that a noise that hides
  /// the change does not speak against it. Gives the change as the metric shows it, or as the part
  /// does, where the metric is too noisy for that.
  std::optional<Confirmed> confirm_part(int position, const HuntResult& ends,
                                        const tuner::LevelDifference& growth) {
    const int last = last_position();
    const auto odds_of = [&](const std::vector<tuner::CommitReadings>& commits, double weight) {
      const double log_odds =
          tuner::log_odds_of_shift(commits[0].values, commits[1].values, growth.mean, weight);
      // Beyond all doubt, and two of them still have a product.
      return std::exp(std::clamp(log_odds, -kMostLogOdds, kMostLogOdds));
    };
    std::optional<Confirmed> confirmed =
        confirm_by(position, ends, false, [&](const auto& commits, double weight) {
          const double here = kCoincidence * odds_of(commits, weight);
          if (!ends.is_too_noisy) return here / (here + 1 - kCoincidence);
          // Each reading speaks once.
          double of_ends = 1.0;
          if (position > 1 && position < last) {
            of_ends =
                odds_of(is_drifting_ ? freed_readings(0, last) : readings_at({0, last}), weight);
          }
          const double elsewhere = (1 - kCoincidence - kNoneAtAll) * of_ends;
          return here * of_ends / (here * of_ends + kNoneAtAll + elsewhere);
        });
    if (confirmed && confirmed->difference.low <= 0) confirmed = Confirmed{growth, true};
    return confirmed;
  }

  /// Enough to see a change as large as between the ends in their noise, or in that of now if it is
  /// larger.
  [[nodiscard]] int most_confirm_runs(const HuntResult& ends, double noise_now) const {
    const double level = std::abs(mean_of(runs_.values_of(setup_.metric, 0)));
    const double noise = std::max({ends.noise_ratio, level > 0 ? noise_now / level : 0.0, 1e-12});
    const double shift = std::abs(ends.effect_ratio) / noise;
    const double needed = kConfirmRunsAtOneNoise / std::max(shift * shift, 1e-12);
    return 2 * static_cast<int>(
                   std::clamp<double>(needed, kFewestOfMostConfirmRuns, kMostConfirmRuns) / 2);
  }

  /// Whether runs of one commit depend on when they were made, by all runs.
  [[nodiscard]] tuner::DriftWatch drift() const {
    std::vector<int> all(setup_.commits.size());
    std::iota(all.begin(), all.end(), 0);
    tuner::DriftWatch watch;
    watch.notice(runs_.timed(setup_.metric, all));
    return watch;
  }

  /// Of two positions, freed of the machine's course by both.
  [[nodiscard]] std::vector<tuner::CommitReadings> freed_readings(int a, int b) const {
    std::vector<tuner::TimedReading> readings = runs_.timed(setup_.metric, {a, b});
    const double sign = setup_.is_higher_better ? -1.0 : 1.0;
    for (tuner::TimedReading& reading : readings) reading.value *= sign;
    const std::vector<double> course = tuner::machine_course(readings, {a, b}, 1e-300);
    std::vector<tuner::CommitReadings> commits = {{a, {}}, {b, {}}};
    for (size_t i = 0; i < readings.size(); ++i) {
      commits[readings[i].position == b].values.push_back(readings[i].value - course[i]);
    }
    std::erase_if(commits, [](const auto& commit) { return commit.values.empty(); });
    return commits;
  }

  /// Whether a culprit's effect leaves something of that of the ends unexplained.
  [[nodiscard]] bool leaves_some(const tuner::LevelDifference& difference,
                                 const HuntResult& ends) const {
    const double unit = std::abs(mean_of(runs_.values_of(setup_.metric, 0)));
    const double whole = (setup_.is_higher_better ? -ends.effect_ratio : ends.effect_ratio) * unit;
    const double reach = 0.5 * std::hypot((ends.effect_high_ratio - ends.effect_low_ratio) * unit,
                                          difference.high - difference.low);
    const double rest = std::abs(whole - difference.mean);
    return rest > reach && rest >= setup_.min_effect_ratio * unit;
  }

  /// Hunts one metric; runs that were made already are used first. `stops_after_ends` leaves when
  /// the ends are known to differ (is_searching_).
  HuntResult follow(const std::string& metric, bool is_deterministic, double min_effect_ratio,
                    bool stops_after_ends, bool has_fallen = false,
                    int max_end_runs = tuner::HuntOptions().max_end_runs) {
    tuner::HuntOptions options;
    options.num_positions = last_position();
    options.is_higher_better = metric == setup_.metric ? setup_.is_higher_better : has_fallen;
    options.min_effect_ratio = min_effect_ratio;
    options.confidence = setup_.confidence;
    options.is_deterministic = is_deterministic;
    options.second_look = second_look_of(metric);
    options.max_runs = setup_.max_runs;
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
    while (const auto request = hunt.next()) {
      const int position = request->position;
      answer_.result = hunt.result();
      if (stops_after_ends && request->purpose != RunPurpose::ends) {
        is_searching_ = true;
        return hunt.result();
      }
      const bool is_fresh = request->purpose == RunPurpose::verify;
      size_t index = 0;
      try {
        index = nth_run(position, used[{position, is_fresh}]++, request->purpose, &hunt, metric);
      } catch (const Interrupted&) {
        hunt.stop(answer_.result.reason);
        answer_.result = hunt.result();
        throw;
      }
      const CommitRun& run = runs_[index];
      hunt.set_costs({runs_.build_cost()});
      if (run.status != RunStatus::build_failed) hunt.set_built(position);
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

  // A run either fails or not: that agrees too easily. Where other counters of the two ends agree
  // to the last digit, their family is exact.
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

  // As it was when the hunt began, so that one that goes on asks the same questions again.
  [[nodiscard]] bool was_built_before(int position) const {
    const CommitRun* first = runs_.first_at(position);
    return first == nullptr ? source_.is_built(position) : !first->was_built_now;
  }

  [[nodiscard]] std::vector<double> prior_of(const std::string& metric) const {
    if (setup_.changed_files.empty()) return {};
    std::vector<std::string> names = {metric};
    for (const HuntAnswer::Moved& moved : runs_.moved_between(0, last_position())) {
      names.push_back(moved.name);
    }
    std::vector<double> prior;
    for (size_t p = 1; p < setup_.changed_files.size(); ++p) {
      prior.push_back(tuner::prior_weight(setup_.changed_files[p], names));
    }
    return prior;
  }

  /// Index of the nth run of a position, those for verification counted apart; made when there are
  /// fewer. Runs are in the order of time.
  size_t nth_run(int position, size_t n, RunPurpose purpose, const CommitHunt* hunt = nullptr,
                 const std::string& metric = "") {
    const bool is_fresh = purpose == RunPurpose::verify;
    std::optional<size_t> index = runs_.nth(position, n, is_fresh);
    while (!index) {
      if (setup_.is_stop_asked && setup_.is_stop_asked()) throw Interrupted{};
      if (runs_.num_used() >= setup_.max_runs ||
          (setup_.max_seconds > 0 && runs_.seconds() >= setup_.max_seconds)) {
        answer_.result.reason =
            fmt::format("{} runs and {:.0f} s are used up", runs_.num_used(), runs_.seconds());
        throw Interrupted{};
      }
      const HuntRun run{position, tuner::name_of(purpose),
                        source_.measure(position, tuner::name_of(purpose))};
      if (run.run.status == RunStatus::interrupted) throw Interrupted{};
      runs_.use(runs_.keep(run));
      report(run, hunt, metric);
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
    const std::string& name = metric.empty() ? setup_.metric : metric;
    const std::optional<double> value = runs_.value_of(run.run, name);
    line += value ? fmt::format("{} {:.6g}", plain_text(name, 100), *value) : run.run.message;
    if (hunt != nullptr) {
      const HuntResult& result = hunt->result();
      if (!result.suspects.empty()) {
        const auto best = std::max_element(result.posterior.begin(), result.posterior.end());
        line +=
            fmt::format("; {} commits left, best {} at {:.0f} %", result.suspects.size(),
                        short_id(static_cast<int>(best - result.posterior.begin())), 100 * *best);
      } else {
        line += fmt::format("; {} commits left", last_position());
        if (result.noise_ratio > 0) {
          line += ", ends differ by " + effect_text(result);
        }
      }
      line += fmt::format("; about {} runs to go", hunt->expected_runs_left());
    }
    setup_.on_progress(line);
  }

  [[nodiscard]] std::string short_id(int position) const {
    return setup_.commits[static_cast<size_t>(position)].id.substr(0, 12);
  }

  const HuntSetup& setup_;
  HuntSource& source_;
  HuntAnswer answer_;
  HuntRuns runs_;
  bool is_searching_ = false;
  HuntResult ends_;  ///< of the metric that was asked for
  bool is_following_other_ = false;
  double confirmed_ = 0.0;    ///< probability, by confirm()
  bool is_drifting_ = false;  ///< was seen by confirm()
  std::string lead_;          ///< what was found by another metric and could not be confirmed
};

}  // namespace

HuntAnswer run_hunt(const HuntSetup& setup, HuntSource& source) {
  MOETUNE_CHECK(setup.commits.size() >= 2, "{} commits", setup.commits.size());
  return Hunter(setup, source).run();
}

}  // namespace moetune::sweeps

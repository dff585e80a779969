// Following a metric from the ends to the culprits; see hunt.h.
#include "sweeps/bisect/hunt.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <set>

#include "kernels/base/error.h"
#include "sweeps/bisect/run_rows.h"
#include "sweeps/bisect/text.h"
#include "tuner/bisect/change_points.h"
#include "tuner/bisect/priors.h"

namespace moetune::sweeps {
namespace {

using nlohmann::json;
using tuner::CommitHunt;
using tuner::HuntResult;
using tuner::HuntVerdict;
using tuner::RunPurpose;

constexpr int kMostConfirmRuns = 24;   ///< of a culprit and its parent, on the metric asked for
constexpr int kFewestConfirmRuns = 6;  ///< of both together
constexpr double kExplains = 0.5;      ///< of the change, at least, by the metric that is followed
constexpr double kWorthFollowing = 1.3;  ///< times the shift in noises of the metric asked for
constexpr size_t kNumMoved = 5;
constexpr double kLargeCount = 1000;           ///< that does not agree by chance
constexpr size_t kFewestAgreeingCounters = 2;  ///< of one run's
constexpr size_t kMostCounters = 3;            ///< that are followed before the metric itself is
constexpr double kElsewhereMass = 0.15;  ///< of changes that a counter's culprit does not explain
constexpr double kElsewhereOdds = 0.05;  ///< prior, of such a change
/// Prior odds that the metric moves where another one that differs between the ends does; what is
/// claimed with it agrees with what is delivered (tests/bench/bisect_bench.cpp).
constexpr double kCoincidenceOdds = 3.0;
constexpr const char* kConfigPrefix = "config ";
constexpr size_t kMostSuspects = 20;  ///< that are listed for people

/// Stops the hunt from within.
struct Interrupted {};

double mean_of(const std::vector<double>& values) {
  double sum = 0.0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

bool are_equal(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(),
                     [&](double value) { return value == values.front(); });
}

bool is_duration(const std::string& name) {
  constexpr std::array kEnds = {"_ns", "_us", "_ms", "_s", "_sec", "_seconds", "_time"};
  if (name.ends_with("_per_s") || name.ends_with("_per_sec")) return false;
  return std::any_of(kEnds.begin(), kEnds.end(),
                     [&](const char* end) { return name.ends_with(end); });
}

// Of which our engine says nothing new: where the file lay, not what was in it.
bool is_place(const std::string& name) { return name == "data_path"; }

std::string percent(double ratio) { return fmt::format("{:+.2f} %", 100 * ratio); }

class Hunter {
 public:
  Hunter(const HuntSetup& setup, HuntSource& source) : setup_(setup), source_(source) {
    for (const HuntRun& run : setup.earlier) keep(run);
  }

  HuntAnswer run() {
    answer_.metric = answer_.hunted_metric = setup_.metric;
    try {
      hunt();
    } catch (const Interrupted&) {
      answer_.is_interrupted = true;
      answer_.result.verdict = HuntVerdict::unresolved;
      if (answer_.result.reason.empty()) answer_.result.reason = "stopped before the end";
    }
    answer_.config_changes = config_changes_between(0, last_position());
    for (const tuner::Culprit& culprit : answer_.result.culprits) {
      answer_.moved.push_back(moved_at(culprit.position));
      answer_.culprit_config_changes.push_back(
          config_changes_between(culprit.position - 1, culprit.position));
    }
    list_skipped();
    answer_.unit = unit();
    answer_.num_runs = num_used_;
    answer_.num_builds = num_builds_;
    answer_.seconds = seconds_;
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
    const HuntResult ends = follow(setup_.metric, false, setup_.min_effect_ratio, true);
    answer_.result = ends;
    if (!is_searching_) return;
    if (setup_.kind == MetricKind::automatic && are_equal(values_of(setup_.metric, 0)) &&
        are_equal(values_of(setup_.metric, last_position()))) {
      answer_.note = "all runs of an end agree: one run for each commit";
      answer_.result = follow(setup_.metric, true, setup_.min_effect_ratio, false);
      if (!answer_.result.is_inexact) return;
      answer_.note.clear();
    }
    if (follow_a_counter(ends)) return;
    if (follow_a_part(ends)) return;
    answer_.hunted_metric = setup_.metric;
    answer_.result = follow(setup_.metric, false, setup_.min_effect_ratio, false);
  }

  // A run that fails at the bad end only is the regression itself; so is a build.
  bool fails_at_an_end() {
    const auto fails = [this](int position) {
      for (size_t i = 0; i < 2; ++i) {
        const CommitRun& run = runs_[nth_run(position, i, RunPurpose::ends)].run;
        if (run.status == RunStatus::ok) return false;
        if (run.status == RunStatus::build_failed) return true;
      }
      return true;
    };
    const auto end_text = [this](int position) {
      return fmt::format("commit {} ({}): {}", short_id(position), position == 0 ? "good" : "bad",
                         runs_[by_position_[position].back()].run.message);
    };
    if (fails(0)) {
      answer_.result.verdict = HuntVerdict::unresolved;
      answer_.result.reason = "the good end cannot be measured: " + end_text(0);
      return true;
    }
    if (!fails(last_position())) return false;
    failure_ = runs_[by_position_[last_position()].back()].run.status;
    answer_.failure = name_of(*failure_);
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
  // with the metric, it shows the place in one run a commit. A changed default comes first, as it
  // is a cause and not a sign; then what has changed most.
  bool follow_a_counter(const HuntResult& ends) {
    if (setup_.kind != MetricKind::automatic) return false;
    std::vector<std::pair<double, std::string>> counters;
    for (const std::string& name : common_metrics()) {
      if (!is_exact_metric(name)) continue;
      const std::vector<double> good = values_of(name, 0);
      const std::vector<double> bad = values_of(name, last_position());
      if (!are_equal(good) || !are_equal(bad)) continue;
      const double unit = std::max(std::abs(good.front()), 1e-300);
      const double change = std::abs(bad.front() - good.front()) / unit;
      if (change >= setup_.min_effect_ratio) counters.emplace_back(change, name);
    }
    std::stable_sort(counters.begin(), counters.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    std::vector<std::string> names;
    for (const HuntAnswer::ConfigChange& change : config_changes_between(0, last_position())) {
      // What only one of them knows is a new option, not a changed one.
      if (!change.before.empty() && !change.after.empty()) {
        names.push_back(kConfigPrefix + change.name);
      }
    }
    for (const auto& [change, name] : counters) names.push_back(name);
    if (names.size() > kMostCounters) names.resize(kMostCounters);
    for (const std::string& name : names) {
      const bool has_fallen = values_of(name, last_position()).front() < values_of(name, 0).front();
      tell(fmt::format("{} differs between the ends and is the same in every run: following it",
                       plain_text(name, 100)));
      const HuntResult found = follow(name, true, setup_.min_effect_ratio, false, has_fallen);
      if (adopt(found, ends, name)) return true;
    }
    return false;
  }

  // A part of the step whose shift is larger beside its own noise.
  bool follow_a_part(const HuntResult& ends) {
    if (setup_.kind != MetricKind::automatic || !is_duration_metric(setup_.metric)) return false;
    const double target_level = mean_of(values_of(setup_.metric, 0));
    const double target_shift = ends.effect_ratio * target_level;
    double most = kWorthFollowing * std::abs(ends.effect_ratio) / std::max(ends.noise_ratio, 1e-12);
    std::string best;
    double least_effect = 0.0;
    for (const std::string& name : common_metrics()) {
      if (!is_duration(name) || name == stored_name_of(setup_.metric)) continue;
      const std::vector<double> good = values_of(name, 0);
      const std::vector<double> bad = values_of(name, last_position());
      if (good.size() < 3 || bad.size() < 3) continue;
      const tuner::LevelDifference difference = tuner::level_difference(good, bad, 0.0);
      if (difference.low <= 0 || difference.mean < kExplains * target_shift) continue;
      const double shift = difference.mean / difference.noise;
      const double level = std::abs(mean_of(good));
      if (shift > most && level > 0) {
        most = shift;
        best = name;
        least_effect = std::max(0.5 * difference.mean / level, 1e-6);
      }
    }
    if (best.empty()) return false;
    tell(fmt::format("{} has moved by {:.1f} times its noise: following it", best, most));
    const HuntResult found = follow(best, false, least_effect, false);
    return adopt(found, ends, best);
  }

  // What another metric has found counts when the one that was asked for moves there, too, and
  // nowhere else.
  bool adopt(const HuntResult& found, const HuntResult& ends, const std::string& metric) {
    if (found.verdict != HuntVerdict::culprit || found.culprits.size() != 1) return false;
    const int position = found.culprits.front().position;
    const auto difference = confirm(position, ends);
    const std::vector<double> parent = values_of(setup_.metric, position - 1);
    if (!difference || parent.empty()) {
      tell(fmt::format("{} changes at {}, but {} does not: not followed any more",
                       plain_text(metric, 100), short_id(position), setup_.metric));
      return false;
    }
    if (changes_within(0, position - 1) || changes_within(position, last_position())) {
      tell(fmt::format("{} changes at {}, but {} changes elsewhere, too: not followed any more",
                       plain_text(metric, 100), short_id(position), setup_.metric));
      return false;
    }
    const double sign = setup_.is_higher_better ? -1.0 : 1.0;
    tuner::Culprit culprit = found.culprits.front();
    culprit.before = mean_of(parent);
    culprit.after = culprit.before + sign * difference->mean;
    // A ratio to nothing is none: then to the larger of the two.
    const double unit = culprit.before != 0  ? std::abs(culprit.before)
                        : culprit.after != 0 ? std::abs(culprit.after)
                                             : 1.0;
    culprit.effect_ratio = sign * difference->mean / unit;
    culprit.effect_low_ratio = sign * (sign > 0 ? difference->low : difference->high) / unit;
    culprit.effect_high_ratio = sign * (sign > 0 ? difference->high : difference->low) / unit;
    const double odds = kCoincidenceOdds * confirmed_ / std::max(1 - confirmed_, 1e-12);
    culprit.confidence = std::min(culprit.confidence, odds / (1 + odds));
    answer_.result = found;
    answer_.result.culprits = {culprit};
    answer_.result.effect_ratio = ends.effect_ratio;
    answer_.result.effect_low_ratio = ends.effect_low_ratio;
    answer_.result.effect_high_ratio = ends.effect_high_ratio;
    answer_.result.noise_ratio = ends.noise_ratio;
    answer_.result.detectable_ratio = ends.detectable_ratio;
    answer_.result.detectable_with_more_ratio = ends.detectable_with_more_ratio;
    answer_.hunted_metric = metric;
    answer_.note =
        fmt::format("found by {}, confirmed by {}", plain_text(metric, 100), setup_.metric);
    return true;
  }

  /// Whether the metric that was asked for has likely changed between two positions, by all runs.
  [[nodiscard]] bool changes_within(int first, int last) const {
    std::vector<tuner::CommitReadings> commits;
    for (int position = first; position <= last; ++position) {
      std::vector<double> values = values_of(setup_.metric, position);
      if (!values.empty()) commits.push_back({position - first, std::move(values)});
    }
    if (commits.size() < 2) return false;
    tuner::ChangePointOptions options;
    options.num_positions = last - first;
    options.no_change_odds = 1 / kElsewhereOdds;
    return 1 - tuner::change_point_posterior(commits, options).no_change >= kElsewhereMass;
  }

  /// Fresh runs of a commit and its parent, until the metric that was asked for has or has not
  /// moved by half of what the ends differ by.
  std::optional<tuner::LevelDifference> confirm(int position, const HuntResult& ends) {
    const double sign = setup_.is_higher_better ? -1.0 : 1.0;
    std::vector<double> before;
    std::vector<double> after;
    const double half =
        0.5 * std::abs(ends.effect_ratio) * std::abs(mean_of(values_of(setup_.metric, 0)));
    std::map<int, size_t> used;
    for (int count = 0; count < kMostConfirmRuns; ++count) {
      const bool is_parent = count % 4 == 0 || count % 4 == 3;
      const int at = is_parent ? position - 1 : position;
      const CommitRun& run = runs_[nth_run(at, used[at]++, RunPurpose::verify)].run;
      const std::optional<double> value = value_of(run, setup_.metric);
      if (!value) continue;
      (is_parent ? before : after).push_back(sign * *value);
      if (count + 1 < kFewestConfirmRuns || before.empty() || after.empty()) continue;
      const tuner::LevelDifference difference =
          tuner::level_difference(before, after, half, setup_.confidence);
      confirmed_ = difference.above;
      if (difference.above >= setup_.confidence) return difference;
      if (difference.above <= 1 - setup_.confidence) return std::nullopt;
    }
    return std::nullopt;
  }

  /// Hunts one metric; runs that were made already are used first. `stops_after_ends` leaves when
  /// the ends are known to differ (is_searching_).
  HuntResult follow(const std::string& metric, bool is_deterministic, double min_effect_ratio,
                    bool stops_after_ends, bool has_fallen = false) {
    tuner::HuntOptions options;
    options.num_positions = last_position();
    options.is_higher_better = metric == setup_.metric ? setup_.is_higher_better : has_fallen;
    options.min_effect_ratio = min_effect_ratio;
    options.confidence = setup_.confidence;
    options.is_deterministic = is_deterministic;
    options.second_look = second_look_of(metric);
    options.max_runs = setup_.max_runs;
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
      const size_t index =
          nth_run(position, used[{position, is_fresh}]++, request->purpose, &hunt, metric);
      const CommitRun& run = runs_[index].run;
      hunt.set_costs({build_cost()});
      if (run.status != RunStatus::build_failed) hunt.set_built(position);
      if (const std::optional<double> value = value_of(run, metric)) {
        ++successes[position];
        hunt.add(position, *value, static_cast<double>(index));
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
    for (const std::string& name : common_metrics()) {
      if (name == stored_name_of(metric) || !is_exact_metric(name)) continue;
      std::vector<double> values = values_of(name, 0);
      const std::vector<double> bad = values_of(name, last_position());
      values.insert(values.end(), bad.begin(), bad.end());
      num_agreeing += are_equal(values) && std::abs(values.front()) >= kLargeCount;
    }
    return num_agreeing >= kFewestAgreeingCounters ? tuner::SecondLook::none
                                                   : tuner::SecondLook::in_doubt;
  }

  // As it was when the hunt began, so that one that goes on asks the same questions again.
  [[nodiscard]] bool was_built_before(int position) const {
    for (const HuntRun& run : runs_) {
      if (run.position == position) return !run.run.was_built_now;
    }
    return source_.is_built(position);
  }

  // In runs, from what was measured. Without a single build there is nothing to build.
  [[nodiscard]] double build_cost() const {
    if (num_builds_ == 0) return num_used_ == 0 ? 5.0 : 0.0;
    if (run_seconds_ <= 0) return 5.0;
    return build_seconds_ / num_builds_ / (run_seconds_ / num_used_);
  }

  [[nodiscard]] std::vector<double> prior_of(const std::string& metric) const {
    if (setup_.changed_files.empty()) return {};
    std::vector<std::string> names = {metric};
    for (const HuntAnswer::Moved& moved : moved_between(0, last_position())) {
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
    auto& list = is_fresh ? verified_by_position_[position] : by_position_[position];
    while (list.size() <= n) {
      if (setup_.is_stop_asked && setup_.is_stop_asked()) throw Interrupted{};
      if (num_used_ >= setup_.max_runs ||
          (setup_.max_seconds > 0 && seconds_ >= setup_.max_seconds)) {
        answer_.result.reason =
            fmt::format("{} runs and {:.0f} s are used up", num_used_, seconds_);
        throw Interrupted{};
      }
      HuntRun run{position, tuner::name_of(purpose),
                  source_.measure(position, tuner::name_of(purpose))};
      if (run.run.status == RunStatus::interrupted) throw Interrupted{};
      keep(run);
      use(runs_.size() - 1);
      report(runs_.back(), hunt, metric);
    }
    use(list[n]);
    return list[n];
  }

  // Runs of an earlier call count from where the hunt asks for them: only so it goes the same way.
  void use(size_t index) {
    if (is_used_[index]) return;
    is_used_[index] = true;
    const CommitRun& run = runs_[index].run;
    ++num_used_;
    seconds_ += run.build_seconds + run.run_seconds;
    run_seconds_ += run.run_seconds;
    build_seconds_ += run.build_seconds;
    num_builds_ += run.was_built_now;
  }

  void keep(const HuntRun& run) {
    const bool is_fresh = run.purpose == tuner::name_of(RunPurpose::verify);
    (is_fresh ? verified_by_position_ : by_position_)[run.position].push_back(runs_.size());
    runs_.push_back(run);
    is_used_.push_back(false);
  }

  void tell(const std::string& line) const {
    if (setup_.on_progress) setup_.on_progress(line);
  }

  void report(const HuntRun& run, const CommitHunt* hunt, const std::string& metric) const {
    if (!setup_.on_progress) return;
    std::string line = fmt::format(
        "[{} runs, {} builds, {:.0f} s] {} {} ({}): ", num_used_, num_builds_, seconds_,
        short_id(run.position),
        plain_text(setup_.commits[static_cast<size_t>(run.position)].subject, 40), run.purpose);
    const std::string& name = metric.empty() ? setup_.metric : metric;
    const std::optional<double> value = value_of(run.run, name);
    line += value ? fmt::format("{} {:.6g}", name, *value) : run.run.message;
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
          line += fmt::format(", ends differ by {} ({} to {})", percent(result.effect_ratio),
                              percent(result.effect_low_ratio), percent(result.effect_high_ratio));
        }
      }
      line += fmt::format("; about {} runs to go", hunt->expected_runs_left());
    }
    setup_.on_progress(line);
  }

  // What a store holds has its unit in its name; a number that a command prints has none.
  [[nodiscard]] std::string unit() const {
    const std::string name = stored_name_of(setup_.metric);
    for (const HuntRun& run : used_runs()) {
      if (!run.run.metrics.contains(name)) continue;
      if (name.ends_with("_ns")) return "ns";
      return name.ends_with("_bytes") ? "bytes" : "";
    }
    return "";
  }

  [[nodiscard]] std::string short_id(int position) const {
    return setup_.commits[static_cast<size_t>(position)].id.substr(0, 12);
  }

  [[nodiscard]] static bool is_duration_metric(const std::string& metric) {
    return is_duration(stored_name_of(metric));
  }

  std::optional<double> value_of(const CommitRun& run, const std::string& metric) const {
    if (metric == kRunFailsMetric) {
      if (run.status == RunStatus::ok) return 0.0;
      // Failures of another kind say nothing of this one.
      return run.status == failure_ ? std::optional(1.0) : std::nullopt;
    }
    if (run.status != RunStatus::ok) return std::nullopt;
    if (metric.starts_with(kConfigPrefix)) {
      if (run.config.empty()) return std::nullopt;
      const std::string name = metric.substr(std::string(kConfigPrefix).size());
      return config_value(run, name) == config_value_at(0, name) ? 0.0 : 1.0;
    }
    if (metric == setup_.metric && run.value) return run.value;
    const auto found = run.metrics.find(stored_name_of(metric));
    return found == run.metrics.end() ? std::nullopt : std::optional(found->second);
  }

  [[nodiscard]] std::vector<double> values_of(const std::string& metric, int position) const {
    std::vector<double> values;
    for (const HuntRun& run : used_runs()) {
      if (run.position != position) continue;
      if (const auto value = value_of(run.run, metric)) values.push_back(*value);
    }
    return values;
  }

  [[nodiscard]] std::vector<std::reference_wrapper<const HuntRun>> used_runs() const {
    std::vector<std::reference_wrapper<const HuntRun>> runs;
    for (size_t i = 0; i < runs_.size(); ++i) {
      if (is_used_[i]) runs.emplace_back(runs_[i]);
    }
    return runs;
  }

  /// Numbers that every good run of both ends has.
  [[nodiscard]] std::set<std::string> common_metrics() const {
    std::optional<std::set<std::string>> names;
    for (const HuntRun& run : used_runs()) {
      const bool is_end = run.position == 0 || run.position == last_position();
      if (!is_end || run.run.status != RunStatus::ok) continue;
      std::set<std::string> own;
      for (const auto& [name, value] : run.run.metrics) {
        if (!names || names->contains(name)) own.insert(name);
      }
      names = std::move(own);
    }
    return names.value_or(std::set<std::string>{});
  }

  [[nodiscard]] static std::string config_value(const CommitRun& run, const std::string& name) {
    const auto found = run.config.find(name);
    return found == run.config.end() ? "" : found->second;
  }

  /// The configuration of a commit's first good run; none when there is none.
  [[nodiscard]] const std::map<std::string, std::string>& config_at(int position) const {
    static const std::map<std::string, std::string> kNone;
    for (const HuntRun& run : used_runs()) {
      if (run.position == position && !run.run.config.empty()) return run.run.config;
    }
    return kNone;
  }

  [[nodiscard]] std::string config_value_at(int position, const std::string& name) const {
    const std::map<std::string, std::string>& config = config_at(position);
    const auto found = config.find(name);
    return found == config.end() ? "" : found->second;
  }

  [[nodiscard]] std::vector<HuntAnswer::ConfigChange> config_changes_between(int before,
                                                                             int after) const {
    const std::map<std::string, std::string>& good = config_at(before);
    const std::map<std::string, std::string>& bad = config_at(after);
    if (good.empty() || bad.empty()) return {};
    std::map<std::string, std::string> names = good;
    names.insert(bad.begin(), bad.end());
    std::vector<HuntAnswer::ConfigChange> changes;
    for (const auto& [name, ignored] : names) {
      HuntAnswer::ConfigChange change{name, config_value_at(before, name),
                                      config_value_at(after, name)};
      if (change.before != change.after && !is_place(name)) changes.push_back(std::move(change));
    }
    return changes;
  }

  void list_skipped() {
    std::set<int> seen;
    for (const HuntRun& run : used_runs()) {
      const bool is_other = run.run.status != RunStatus::ok && run.run.status != failure_;
      if (!is_other || !values_of(setup_.metric, run.position).empty()) continue;
      if (!seen.insert(run.position).second) continue;
      answer_.skipped.push_back({run.position, name_of(run.run.status), run.run.message});
    }
  }

  [[nodiscard]] std::vector<HuntAnswer::Moved> moved_at(int position) const {
    return moved_between(position - 1, position);
  }

  // Exact metrics that changed at all come first, by their ratio; then durations beyond their
  // noise, by what they add.
  [[nodiscard]] std::vector<HuntAnswer::Moved> moved_between(int before, int after) const {
    struct Candidate {
      HuntAnswer::Moved moved;
      bool is_exact = false;
      double weight = 0.0;
    };
    std::set<std::string> names;
    for (const HuntRun& run : used_runs()) {
      if (run.position != before && run.position != after) continue;
      for (const auto& [name, value] : run.run.metrics) names.insert(name);
    }
    std::vector<Candidate> candidates;
    for (const std::string& name : names) {
      if (name == stored_name_of(setup_.metric)) continue;
      const std::vector<double> a = values_of(name, before);
      const std::vector<double> b = values_of(name, after);
      if (a.empty() || b.empty()) continue;
      Candidate candidate{{name, mean_of(a), mean_of(b)}};
      const double change = std::abs(candidate.moved.after - candidate.moved.before);
      if (is_exact_metric(name) && are_equal(a) && are_equal(b)) {
        candidate.is_exact = true;
        candidate.weight = change / std::max(std::abs(candidate.moved.before), 1.0);
        if (candidate.weight < setup_.min_effect_ratio) continue;
      } else if (is_duration(name) && a.size() >= 2 && b.size() >= 2) {
        const tuner::LevelDifference difference = tuner::level_difference(a, b, 0.0);
        if (difference.low <= 0 && difference.high >= 0) continue;
        candidate.weight = change;
      } else {
        continue;
      }
      candidates.push_back(candidate);
    }
    std::stable_sort(candidates.begin(), candidates.end(), [](const auto& x, const auto& y) {
      return x.is_exact != y.is_exact ? x.is_exact : x.weight > y.weight;
    });
    std::vector<HuntAnswer::Moved> moved;
    std::array<size_t, 2> counts{};
    for (const Candidate& candidate : candidates) {
      if (counts[candidate.is_exact]++ < kNumMoved) moved.push_back(candidate.moved);
    }
    return moved;
  }

  const HuntSetup& setup_;
  HuntSource& source_;
  HuntAnswer answer_;
  std::vector<HuntRun> runs_;
  std::vector<bool> is_used_;  ///< by run: asked for by this call
  int num_used_ = 0;
  std::map<int, std::vector<size_t>> by_position_;
  std::map<int, std::vector<size_t>> verified_by_position_;
  bool is_searching_ = false;
  double confirmed_ = 0.0;
  std::optional<RunStatus> failure_;  ///< of the bad end, where it cannot be run
  int num_builds_ = 0;
  double seconds_ = 0.0;
  double run_seconds_ = 0.0;
  double build_seconds_ = 0.0;
};

json ratio_json(double ratio, double low, double high) {
  return {{"ratio", ratio}, {"low", low}, {"high", high}};
}

json config_json(const std::vector<HuntAnswer::ConfigChange>& changes) {
  json list = json::array();
  for (const HuntAnswer::ConfigChange& change : changes) {
    list.push_back({{"name", change.name}, {"before", change.before}, {"after", change.after}});
  }
  return list;
}

std::string config_text(const std::vector<HuntAnswer::ConfigChange>& changes, const char* lead) {
  std::string text;
  for (size_t i = 0; i < std::min(changes.size(), kMostSuspects); ++i) {
    const auto shown = [](const std::string& value) {
      return value.empty() ? std::string("(none)") : plain_text(value, 100);
    };
    text += fmt::format("  {}: {}: {} -> {}\n", lead, plain_text(changes[i].name, 100),
                        shown(changes[i].before), shown(changes[i].after));
  }
  return text;
}

}  // namespace

bool is_exact_metric(const std::string& name) {
  constexpr std::array kEnds = {"_bytes", "_count", "_flops", "_memory"};
  if (name == "flops") return true;
  // Rates, times and what the system counts.
  constexpr std::array kExcept = {"rss", "dram_", "_per_", "tflops", "gflops", "percent", "ratio"};
  if (is_duration(name) || std::any_of(kExcept.begin(), kExcept.end(), [&](const char* word) {
        return name.find(word) != std::string::npos;
      })) {
    return false;
  }
  return name.starts_with("num_") || name.starts_with("memory_") || name.starts_with("peak_") ||
         std::any_of(kEnds.begin(), kEnds.end(),
                     [&](const char* end) { return name.ends_with(end); });
}

HuntAnswer run_hunt(const HuntSetup& setup, HuntSource& source) {
  MOETUNE_CHECK(setup.commits.size() >= 2, "{} commits", setup.commits.size());
  return Hunter(setup, source).run();
}

json to_json(const HuntAnswer& answer, const HuntSetup& setup) {
  const HuntResult& result = answer.result;
  json culprits = json::array();
  for (size_t i = 0; i < result.culprits.size(); ++i) {
    const tuner::Culprit& culprit = result.culprits[i];
    const CommitInfo& commit = setup.commits[static_cast<size_t>(culprit.position)];
    json moved = json::array();
    for (const HuntAnswer::Moved& m : answer.moved[i]) {
      moved.push_back({{"name", m.name}, {"before", m.before}, {"after", m.after}});
    }
    culprits.push_back({{"position", culprit.position},
                        {"commit", commit.id},
                        {"subject", commit.subject},
                        {"author", commit.author},
                        {"author_date", commit.author_date},
                        {"effect", ratio_json(culprit.effect_ratio, culprit.effect_low_ratio,
                                              culprit.effect_high_ratio)},
                        {"before", culprit.before},
                        {"after", culprit.after},
                        {"confidence", culprit.confidence},
                        {"config", config_json(answer.culprit_config_changes[i])},
                        {"moved", std::move(moved)}});
  }
  json candidates = json::array();
  for (const int position : result.suspects) {
    candidates.push_back({{"position", position},
                          {"commit", setup.commits[static_cast<size_t>(position)].id},
                          {"probability", result.posterior[static_cast<size_t>(position)]}});
  }
  json skipped = json::array();
  for (const HuntAnswer::Skipped& skip : answer.skipped) {
    skipped.push_back({{"position", skip.position},
                       {"commit", setup.commits[static_cast<size_t>(skip.position)].id},
                       {"status", skip.status},
                       {"message", skip.message}});
  }
  return {{"verdict", tuner::name_of(result.verdict)},
          {"reason", result.reason},
          {"is_swapped", result.is_swapped},
          {"is_interrupted", answer.is_interrupted},
          {"metric", answer.metric},
          {"hunted_metric", answer.hunted_metric},
          {"note", answer.note},
          {"failure", answer.failure},
          {"config", config_json(answer.config_changes)},
          {"skipped", std::move(skipped)},
          {"unit", answer.unit},
          {"good", setup.commits.front().id},
          {"bad", setup.commits.back().id},
          {"num_commits", setup.commits.size() - 1},
          {"effect",
           ratio_json(result.effect_ratio, result.effect_low_ratio, result.effect_high_ratio)},
          {"noise_ratio", result.noise_ratio},
          {"detectable_ratio", result.detectable_ratio},
          {"detectable_with_more_ratio", result.detectable_with_more_ratio},
          {"more_runs", tuner::kMoreRuns},
          {"confidence", setup.confidence},
          {"min_effect_ratio", setup.min_effect_ratio},
          {"has_drift", result.has_drift},
          {"no_change", result.no_change},
          {"posterior", result.posterior},
          {"culprits", std::move(culprits)},
          {"suspects", result.suspects},
          {"candidates", std::move(candidates)},
          {"runs", answer.num_runs},
          {"builds", answer.num_builds},
          {"seconds", answer.seconds}};
}

std::string to_text(const HuntAnswer& answer, const HuntSetup& setup) {
  const HuntResult& result = answer.result;
  std::string text = fmt::format("verdict: {}\n", tuner::name_of(result.verdict));
  if (!result.reason.empty()) text += fmt::format("  {}\n", result.reason);
  if (answer.failure.empty()) {
    text +=
        fmt::format("  {}: {} between the ends ({} to {}), noise of one run {:.2f} %",
                    answer.metric, percent(result.effect_ratio), percent(result.effect_low_ratio),
                    percent(result.effect_high_ratio), 100 * result.noise_ratio);
    if (result.noise_ratio > 0) {
      text += fmt::format("; as many runs could have shown {:.2f} %, with {} more {:.2f} %",
                          100 * result.detectable_ratio, tuner::kMoreRuns,
                          100 * result.detectable_with_more_ratio);
    }
    text += "\n";
  }
  if (!answer.note.empty()) text += fmt::format("  {}\n", answer.note);
  text += config_text(answer.config_changes, "the ends fill in differently");
  if (result.has_drift)
    text += "  the machine drifted meanwhile; every run was paired with one of an end\n";
  if (result.is_swapped) {
    text +=
        "  are they swapped? To find what made it better, turn the direction of the metric round "
        "(with or without --higher-is-better)\n";
  }
  for (size_t i = 0; i < result.culprits.size(); ++i) {
    const tuner::Culprit& culprit = result.culprits[i];
    const CommitInfo& commit = setup.commits[static_cast<size_t>(culprit.position)];
    text +=
        fmt::format("{}: {} {}\n  {}, {}\n",
                    !answer.failure.empty() || (culprit.effect_ratio < 0) == setup.is_higher_better
                        ? "culprit"
                        : "improvement",
                    commit.id.substr(0, 12), plain_text(commit.subject, 200),
                    plain_text(commit.author, 100), plain_text(commit.author_date, 40));
    if (!answer.failure.empty()) {
      text += fmt::format("  from here on it ends as {}, confidence {:.1f} %\n", answer.failure,
                          100 * culprit.confidence);
    } else {
      text += fmt::format("  effect {} ({} to {}), {:.6g} -> {:.6g}, confidence {:.1f} %\n",
                          percent(culprit.effect_ratio), percent(culprit.effect_low_ratio),
                          percent(culprit.effect_high_ratio), culprit.before, culprit.after,
                          100 * culprit.confidence);
    }
    text += config_text(answer.culprit_config_changes[i], "config");
    for (const HuntAnswer::Moved& moved : answer.moved[i]) {
      text += fmt::format("  moved: {} {:.6g} -> {:.6g}\n", plain_text(moved.name, 100),
                          moved.before, moved.after);
    }
  }
  if (result.culprits.empty() && !result.suspects.empty()) {
    text += fmt::format("suspects ({}):\n", result.suspects.size());
    for (size_t i = 0; i < std::min(result.suspects.size(), kMostSuspects); ++i) {
      const int position = result.suspects[i];
      const CommitInfo& commit = setup.commits[static_cast<size_t>(position)];
      text += fmt::format("  {} {} ({:.0f} %)\n", commit.id.substr(0, 12),
                          plain_text(commit.subject, 200),
                          100 * result.posterior[static_cast<size_t>(position)]);
    }
  }
  for (size_t i = 0; i < std::min(answer.skipped.size(), kMostSuspects); ++i) {
    const HuntAnswer::Skipped& skip = answer.skipped[i];
    text += fmt::format("skipped: {} ({}): {}\n",
                        setup.commits[static_cast<size_t>(skip.position)].id.substr(0, 12),
                        skip.status, plain_text(skip.message, 200));
  }
  text += fmt::format("{} runs, {} builds, {:.0f} s\n", answer.num_runs, answer.num_builds,
                      answer.seconds);
  return text;
}

}  // namespace moetune::sweeps

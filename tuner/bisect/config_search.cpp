// The order of a hunt: the ends, a minimal set, a fresh look at it, the rest.
//
// Every call of next() walks through delta debugging from the start over what is known by now,
// until a classification is missing: a reading that turns one over changes the path by itself.
#include "tuner/bisect/config_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "kernels/base/error.h"
#include "profiler/analysis/stats.h"

namespace moetune::tuner {
namespace {

constexpr size_t kGood = 0;  ///< indices of the ends
constexpr size_t kBad = 1;

constexpr size_t kMostRunsOfSet = 40;  ///< runs after which the likelier answer is taken
constexpr double kLeastLikely = 0.75;  ///< below this probability the set stays untold
/// The path is walked with little certainty: only the answer must be sure, and a false turn leads
/// to one that a fresh look turns down.
constexpr double kSureOnPath = 0.9;
/// But finer sets are many, and rarely needed.
constexpr double kSureBeforeFiner = 0.98;
constexpr size_t kFewestWhenSure = 4;  ///< runs
constexpr double kPrior = 0.5;
/// Prior of the last part when no other part moved the metric: the whole set did.
constexpr double kPriorOfLast = 0.85;
/// Bounds of the prior odds that something is left to find. The odds come from the effects found
/// so far.
constexpr double kLeastRestOdds = 1.0;
constexpr double kMostRestOdds = 20.0;

std::vector<int> members_of(const ChangeSet& set) {
  std::vector<int> members;
  for (size_t i = 0; i < set.size(); ++i) {
    if (set[i]) members.push_back(static_cast<int>(i));
  }
  return members;
}

ChangeSet without(const ChangeSet& set, const ChangeSet& removed) {
  ChangeSet rest = set;
  for (size_t i = 0; i < set.size(); ++i) rest[i] = set[i] && !removed[i];
  return rest;
}

ChangeSet with(const ChangeSet& set, const ChangeSet& added) {
  ChangeSet both = set;
  for (size_t i = 0; i < set.size(); ++i) both[i] = set[i] || added[i];
  return both;
}

/// Into `count` parts of almost the same size.
std::vector<ChangeSet> split(const ChangeSet& set, size_t count) {
  const std::vector<int> members = members_of(set);
  std::vector<ChangeSet> parts(count, ChangeSet(set.size(), false));
  for (size_t m = 0; m < members.size(); ++m) {
    parts[m * count / members.size()][static_cast<size_t>(members[m])] = true;
  }
  return parts;
}

}  // namespace

ConfigHunt::ConfigHunt(ConfigHuntOptions options)
    : options_(options),
      ends_({options_.confidence, options_.max_end_runs, options_.is_deterministic}) {
  MOETUNE_CHECK(options_.num_changes >= 1, "{} changes to search", options_.num_changes);
  MOETUNE_CHECK(
      options_.min_effect_ratio > 0 && options_.confidence > 0.5 && options_.confidence < 1,
      "a least effect of {} at confidence {}", options_.min_effect_ratio, options_.confidence);
  none_.assign(static_cast<size_t>(options_.num_changes), false);
  all_.assign(static_cast<size_t>(options_.num_changes), true);
  index_of(none_);
  index_of(all_);
  result_.suspects = members_of(all_);
}

size_t ConfigHunt::index_of(const ChangeSet& set) {
  MOETUNE_CHECK(set.size() == none_.size(), "a set of {} changes out of {}", set.size(),
                none_.size());
  const auto [found, is_new] = indices_.try_emplace(set, indices_.size());
  if (is_new) is_broken_.push_back(false);
  return found->second;
}

void ConfigHunt::add(const ChangeSet& changes, double value, double time) {
  MOETUNE_CHECK(std::isfinite(value) && std::isfinite(time), "a reading of {} at {}", value, time);
  const size_t set = index_of(changes);
  const double reading = options_.is_higher_better ? -value : value;
  levels_.add(set, reading - drift_.course_at(readings_.size()));
  readings_.push_back({static_cast<int>(set), reading, time});
}

// All levels are made anew, as each reading changes the course of all.
void ConfigHunt::update_drift() {
  if (options_.is_deterministic) return;
  drift_.update(readings_, {static_cast<int>(kGood), static_cast<int>(kBad)}, 1e-12 * scale());
  if (!drift_.is_there()) return;
  result_.has_drift = true;
  levels_.clear(drift_.weight_of_reading());
  for (size_t i = 0; i < readings_.size(); ++i) {
    levels_.add(static_cast<size_t>(readings_[i].position),
                readings_[i].value - drift_.course_at(i));
  }
}

bool ConfigHunt::drift_explains_ends() const {
  if (!drift_.is_there()) return false;
  return drift_.is_trend() ||
         raw_ends_differ(readings_, static_cast<int>(kGood), static_cast<int>(kBad), min_effect(),
                         options_.confidence);
}

void ConfigHunt::add_failure(const ChangeSet& changes) {
  const size_t index = index_of(changes);
  if (!is_broken_[index]) ++result_.num_failed;
  is_broken_[index] = true;
}

bool ConfigHunt::can_measure(const ChangeSet& set) { return !is_broken_[index_of(set)]; }

double ConfigHunt::scale() const {
  if (levels_.num_runs(kGood) == 0) return 1.0;
  const double level = std::abs(profiler::median(levels_.values(kGood)));
  if (level > 0) return level;
  double largest = 0.0;
  for (const auto& [set, index] : indices_) {
    if (levels_.num_runs(index) == 0) continue;
    for (const double value : levels_.values(index)) largest = std::max(largest, std::abs(value));
  }
  return largest > 0 ? largest : 1.0;
}

// Halves of what is left, then the culprit and the rest once more.
std::optional<RunsLeft> ConfigHunt::expected_runs_left() const {
  if (is_over_) return RunsLeft{};
  if (!is_searching_) return std::nullopt;
  std::set<int> sets;
  for (const TimedReading& reading : readings_) sets.insert(reading.position);
  const double per_set = static_cast<double>(num_runs()) / static_cast<double>(sets.size());
  const double num_sets =
      std::ceil(std::log2(static_cast<double>(std::max<size_t>(1, result_.suspects.size())))) + 2;
  const auto likely = static_cast<int>(std::ceil(per_set * num_sets));
  return RunsLeft{likely, 2 * likely};
}

void ConfigHunt::ask(const ChangeSet& set, RunPurpose purpose) {
  pending_ = ConfigRequest{set, purpose};
}

std::optional<ConfigRequest> ConfigHunt::next() {
  if (is_over_) return std::nullopt;
  if (!is_searching_) {
    const std::optional<ConfigRequest> request = compare_ends();
    if (request || is_over_) return request;
  }
  return search();
}

std::optional<ConfigRequest> ConfigHunt::compare_ends() {
  for (const ChangeSet& end : {none_, all_}) {
    if (can_measure(end)) continue;
    finish(HuntVerdict::unresolved,
           fmt::format("the {} configuration cannot be measured", end == none_ ? "good" : "bad"));
    return std::nullopt;
  }
  const size_t count = readings_.size();
  const ConfigRequest request{Ends::is_good_next(count) ? none_ : all_, RunPurpose::ends};
  if (count < ends_.num_first_runs() || count % 2 == 1) return request;
  update_drift();
  describe_effect();
  result_.no_change = 1 - ends_.difference().above;
  const EndsState state = ends_.judge(drift_.is_there());
  if (state == EndsState::open) return request;
  if (state == EndsState::differ) {
    is_searching_ = true;
    ends_again_.begin(readings_.size());
  } else {
    if (state == EndsState::swapped) result_.no_change.reset();
    finish_ends(state);
  }
  return std::nullopt;
}

void ConfigHunt::finish_ends(EndsState state) {
  result_.is_swapped = state == EndsState::swapped;
  EndsVerdict verdict =
      verdict_on(state, drift_explains_ends(), {"configuration", "configuration"}, is_searching_);
  finish(verdict.verdict, std::move(verdict.reason));
}

std::optional<ConfigRequest> ConfigHunt::search() {
  update_drift();
  describe_effect();
  result_.culprits.clear();
  pending_.reset();
  if (!options_.is_deterministic) {
    result_.no_change = 1 - ends_.difference().above;
    if (ends_.difference().above <= 1 - options_.confidence) {
      finish_ends(EndsState::alike);
      return std::nullopt;
    }
  }
  Stage stage = stage_of(all_, 1);
  std::string open;
  bool is_narrowed = true;
  while (!pending_) {
    const std::optional<ChangeSet> found = minimize(stage);
    if (!found) break;
    if (*found == none_) {
      if (result_.culprits.empty()) {
        finish_ends(EndsState::alike);
        return std::nullopt;
      }
      result_.complete = 1 - probability_of(stage.top, stage);
      result_.culprits.back().is_good_restored = true;
      break;
    }
    if (!verify(stage, *found)) break;
    result_.culprits.push_back(describe(stage, *found));
    ConfigCulprit& culprit = result_.culprits.back();
    is_narrowed = is_narrowed && (*found != stage.top || culprit.num_untold == 0);
    const ChangeSet rest = without(stage.top, *found);
    result_.complete = 1.0;
    const std::optional<int> direction = rest == none_ ? 0 : direction_of(stage, *found);
    if (pending_) break;
    if (!direction) {
      open = "the bad configuration without the culprits cannot be measured: there may be more";
      break;
    }
    culprit.is_good_restored = *direction == 0;
    if (*direction == 0) break;
    stage = stage_of(rest, *direction);
  }
  if (pending_) {
    ask_for_reference();
    if (num_runs() < options_.max_runs) return pending_;
    finish(HuntVerdict::unresolved, fmt::format("{} runs were not enough", num_runs()));
  } else if (!is_narrowed) {
    finish(HuntVerdict::unresolved,
           "the changes cannot be told apart: the sets for that fail, or are neither good nor bad");
  } else {
    result_.suspects.clear();
    finish(HuntVerdict::culprit, open);
  }
  return std::nullopt;
}

// In the place of what was to be run next, after the culprits so far were named.
void ConfigHunt::ask_for_reference() {
  if (options_.is_deterministic || !ends_again_.is_due(readings_.size(), drift_.is_there())) return;
  const ChangeSet& end = ends_again_.take(readings_.size(), drift_.is_there()) ? none_ : all_;
  if (can_measure(end)) ask(end, RunPurpose::reference);
}

std::optional<int> ConfigHunt::direction_of(const Stage& before, const ChangeSet& found) {
  const ChangeSet rest = without(before.top, found);
  const size_t index = index_of(rest);
  const size_t num_runs = levels_.num_runs(index);
  if (num_runs == 0) {
    result_.complete = 0.0;
    if (can_measure(rest)) ask(rest, RunPurpose::verify);
    return std::nullopt;
  }
  LevelSides sides = sides_of(index, before.likely, min_effect());
  if (!options_.is_deterministic) {
    // Were effects to add up, the rest would be off by what the culprit leaves unexplained.
    const LevelDifference unexplained = difference_of(index_of(found), index_of(before.top));
    const double p = unexplained.above + unexplained.below;
    const double odds = std::clamp(p / std::max(1e-9, 1 - p), kLeastRestOdds, kMostRestOdds);
    sides.above *= odds;
    sides.below *= odds;
    const double sum = sides.below + sides.near + sides.above;
    sides = {sides.below / sum, sides.near / sum, sides.above / sum};
  }
  const double most = std::max({sides.below, sides.near, sides.above});
  // A search where nothing is to be found is long.
  const bool is_sure =
      most >= options_.confidence &&
      (most == sides.near || num_runs >= kFewestWhenSure || options_.is_deterministic);
  if (!is_sure && can_measure(rest) && num_runs < kMostRunsOfSet) {
    ask(rest, RunPurpose::verify);
    return std::nullopt;
  }
  result_.complete = sides.near;
  return most == sides.near ? 0 : most == sides.above ? 1 : -1;
}

ConfigHunt::Stage ConfigHunt::stage_of(const ChangeSet& top, int direction) {
  Stage stage{top, static_cast<double>(direction), 0.0, {}};
  const size_t index = index_of(top);
  const double off =
      std::abs(profiler::median(levels_.values(index)) - profiler::median(levels_.values(kGood)));
  // Nearer to the top than to the good end, and whatever alone is as large as the least effect.
  const double share = options_.is_deterministic ? 1.0 : 0.5;
  stage.threshold = std::min(min_effect(), share * off);
  stage.likely.push_back(index);
  if (index != kBad && direction > 0) stage.likely.push_back(kBad);
  return stage;
}

LevelSides ConfigHunt::sides_of(size_t set, const std::vector<size_t>& likely, double threshold) {
  if (set == kGood) return {};
  if (options_.is_deterministic) {
    const double off = levels_.values(set).front() - levels_.values(kGood).front();
    if (off >= threshold) return {0.0, 0.0, 1.0};
    return off <= -threshold ? LevelSides{1.0, 0.0, 0.0} : LevelSides{};
  }
  std::vector<size_t> others = likely;
  std::erase(others, set);
  return levels_.compare(set, kGood, others, threshold);
}

double ConfigHunt::probability_of(const ChangeSet& set, const Stage& stage) {
  const LevelSides sides = sides_of(index_of(set), stage.likely, stage.threshold);
  return stage.sign > 0 ? sides.above : sides.below;
}

ConfigHunt::Outcome ConfigHunt::outcome_of(const ChangeSet& set, const Stage& stage, double needed,
                                           double prior) {
  const size_t num_runs = levels_.num_runs(index_of(set));
  if (num_runs == 0) {
    if (!can_measure(set)) return Outcome::untold;
    ask(set, RunPurpose::search);
    return Outcome::pending;
  }
  double p = probability_of(set, stage);
  p = p * prior / (p * prior + (1 - p) * (1 - prior));
  result_.certainty = std::max(p, 1 - p);
  // Two outliers in a row are rare, but many sets are looked at.
  const bool is_sure =
      std::max(p, 1 - p) >= needed &&
      (needed < kSureBeforeFiner || num_runs >= kFewestWhenSure || options_.is_deterministic);
  if (!is_sure && can_measure(set) && num_runs < kMostRunsOfSet) {
    ask(set, RunPurpose::search);
    return Outcome::pending;
  }
  if (!is_sure && std::max(p, 1 - p) < kLeastLikely) return Outcome::untold;
  return p > 0.5 ? Outcome::moved : Outcome::same;
}

std::optional<ChangeSet> ConfigHunt::minimize(const Stage& stage) {
  ChangeSet current = stage.top;
  size_t granularity = 2;
  for (;;) {
    const std::vector<int> members = members_of(current);
    result_.suspects = members;
    if (members.size() < 2) return current;
    const std::vector<ChangeSet> parts = split(current, granularity);
    std::optional<ChangeSet> smaller;
    int num_same = 0;
    for (const ChangeSet& part : parts) {
      const bool is_last = num_same + 1 == static_cast<int>(parts.size());
      const Outcome outcome = outcome_of(part, stage, kSureOnPath, is_last ? kPriorOfLast : kPrior);
      if (outcome == Outcome::pending) return std::nullopt;
      num_same += outcome == Outcome::same;
      if (outcome == Outcome::moved) smaller = part;
      if (smaller) break;
    }
    if (smaller) {
      current = *smaller;
      granularity = 2;
      continue;
    }
    // Several parts are needed, or a run has misled: better look twice before the many finer sets.
    if (granularity == 2) {
      for (const ChangeSet& set : {current, parts[0], parts[1]}) {
        const Outcome outcome = outcome_of(set, stage, kSureBeforeFiner, kPrior);
        if (outcome == Outcome::pending) return std::nullopt;
        if (outcome == Outcome::same && set == stage.top) return none_;
      }
      const std::optional<ChangeSet> candidate = interfering(stage, current, none_);
      if (!candidate) return std::nullopt;
      if (*candidate != current) {
        const Outcome outcome = outcome_of(*candidate, stage, kSureOnPath, kPrior);
        if (outcome == Outcome::pending) return std::nullopt;
        if (outcome == Outcome::moved) smaller = candidate;
      }
    } else {
      for (const ChangeSet& part : parts) {
        const ChangeSet complement = without(current, part);
        const Outcome outcome = outcome_of(complement, stage, kSureOnPath, kPrior);
        if (outcome == Outcome::pending) return std::nullopt;
        if (outcome == Outcome::moved) smaller = complement;
        if (smaller) break;
      }
    }
    if (smaller) {
      current = *smaller;
      granularity = std::max<size_t>(granularity - 1, 2);
      continue;
    }
    if (granularity >= members.size()) return current;
    granularity = std::min(members.size(), 2 * granularity);
  }
}

std::optional<ChangeSet> ConfigHunt::interfering(const Stage& stage, const ChangeSet& set,
                                                 const ChangeSet& context) {
  if (members_of(set).size() < 2) return set;
  const std::vector<ChangeSet> parts = split(set, 2);
  for (const ChangeSet& part : parts) {
    const Outcome outcome = outcome_of(with(part, context), stage, kSureOnPath,
                                       part == parts[1] ? kPriorOfLast : kPrior);
    if (outcome == Outcome::pending) return std::nullopt;
    if (outcome == Outcome::moved) return interfering(stage, part, context);
  }
  const std::optional<ChangeSet> first = interfering(stage, parts[0], with(context, parts[1]));
  if (!first) return std::nullopt;
  const std::optional<ChangeSet> second = interfering(stage, parts[1], with(context, *first));
  if (!second) return std::nullopt;
  return with(*first, *second);
}

std::vector<ConfigHunt::Check> ConfigHunt::checks_of(const ChangeSet& found) const {
  std::vector<Check> checks = {{found, true}};
  const std::vector<int> members = members_of(found);
  if (members.size() < 2) return checks;
  for (const int member : members) {
    ChangeSet less = found;
    less[static_cast<size_t>(member)] = false;
    checks.push_back({less, false});
  }
  return checks;
}

bool ConfigHunt::verify(const Stage& stage, const ChangeSet& found) {
  if (options_.is_deterministic) return true;
  const std::vector<Check> checks = checks_of(found);
  std::vector<ChangeSet> sets = {none_};
  for (const Check& check : checks) sets.push_back(check.set);
  const ChangeSet rest = without(stage.top, found);
  if (rest != none_) sets.push_back(rest);
  auto [at, is_new] = suspected_at_.try_emplace(found);
  if (is_new) {
    for (const ChangeSet& set : sets) at->second[set] = levels_.num_runs(index_of(set));
  }
  // The one with the fewest fresh runs; one that cannot be measured any more is not asked for.
  size_t fewest = kFreshRuns;
  const ChangeSet* chosen = nullptr;
  for (const ChangeSet& set : sets) {
    const size_t fresh = levels_.num_runs(index_of(set)) - at->second[set];
    if (fresh >= fewest || !can_measure(set)) continue;
    fewest = fresh;
    chosen = &set;
  }
  if (chosen == nullptr) {
    double product = 1.0;
    double weakest = 1.0;
    for (const Check& check : checks) {
      const size_t num_runs = levels_.num_runs(index_of(check.set));
      if (num_runs == 0) continue;
      const double moved = probability_of(check.set, stage);
      const double sure = check.is_moved ? moved : 1 - moved;
      product *= sure;
      if (sure >= weakest || !can_measure(check.set) || num_runs >= kMostRunsOfSet) continue;
      weakest = sure;
      chosen = &check.set;
    }
    if (product >= options_.confidence) chosen = nullptr;
  }
  if (chosen == nullptr) return true;
  ask(*chosen, RunPurpose::verify);
  return false;
}

ConfigCulprit ConfigHunt::describe(const Stage& stage, const ChangeSet& found) {
  ConfigCulprit culprit;
  culprit.changes = members_of(found);
  culprit.confidence = 1.0;
  for (const Check& check : checks_of(found)) {
    if (levels_.num_runs(index_of(check.set)) == 0) {
      ++culprit.num_untold;
      continue;
    }
    const double moved = probability_of(check.set, stage);
    culprit.confidence *= check.is_moved ? moved : 1 - moved;
    culprit.num_untold += !check.is_moved && moved > 1 - kLeastLikely;
  }
  culprit.is_interaction = culprit.changes.size() > 1;
  for (const int change : culprit.changes) {
    ChangeSet single = none_;
    single[static_cast<size_t>(change)] = true;
    if (levels_.num_runs(index_of(single)) > 0 && probability_of(single, stage) > 0.5) {
      culprit.is_interaction = false;
    }
  }
  culprit.is_improvement = stage.sign < 0;
  const double sign = options_.is_higher_better ? -1.0 : 1.0;
  const LevelDifference difference = difference_of(kGood, index_of(found));
  culprit.before = sign * profiler::median(levels_.values(kGood));
  culprit.after = culprit.before + sign * difference.mean;
  static_cast<Effect&>(culprit) = effect_of(difference, sign, scale());
  return culprit;
}

void ConfigHunt::describe_effect() {
  ends_.update(levels_.values(kGood), levels_.values(kBad), min_effect(),
               drift_.weight_of_reading());
  static_cast<EndsEffect&>(result_) =
      ends_effect_of(ends_.difference(), options_.is_higher_better ? -1.0 : 1.0, scale(),
                     levels_.num_runs(kGood), levels_.num_runs(kBad));
}

LevelDifference ConfigHunt::difference_of(size_t a, size_t b) {
  const std::vector<double>& of_a = levels_.values(a);
  const std::vector<double>& of_b = levels_.values(b);
  if (options_.is_deterministic) return exact_difference(of_a.front(), of_b.front());
  return differences_[{a, b}].of(of_a, of_b, min_effect(), options_.confidence,
                                 drift_.weight_of_reading());
}

void ConfigHunt::finish(HuntVerdict verdict, std::string reason) {
  is_over_ = true;
  result_.verdict = verdict;
  result_.reason = std::move(reason);
}

}  // namespace moetune::tuner

// All choices of a layout together: recomputation, chunks, graphs, overlap and what else says when
// things run; see three_walls.h. Playing every point would take minutes, so layouts are looked at
// in the order of what they may reach, and of a large product only what its sums promise is played.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tuner/judgement.h"
#include "tuner/strategies/three_walls.h"

namespace moetune::tuner {
namespace {

/// Products of schedules up to this size are played one by one.
constexpr size_t kMostPlayedSchedules = 32;
/// Of larger ones so many, those whose changes add up to most.
constexpr size_t kBestOfSums = 16;
/// Layouts that one ranking looks at closely.
constexpr size_t kMostLookedAt = 96;

}  // namespace

int64_t ThreeWalls::step_ns_of(const spec::Knobs& knobs) {
  const auto [place, is_new] = steps_.try_emplace({point_of(knobs).hash, num_calibrations_});
  if (is_new) place->second = predicted_step_ns(knobs);
  return place->second;
}

int64_t ThreeWalls::num_choices() const {
  auto product = static_cast<int64_t>(recompute_ladder().size());
  for (const std::string_view name : space_.schedule_knobs()) {
    product *= static_cast<int64_t>(space_.values(name).size());
  }
  return product;
}

std::optional<TrialRequest> ThreeWalls::cheapest_fitting(const spec::Knobs& layout) {
  std::optional<TrialRequest> smallest;
  for (const std::string& rung : recompute_ladder()) {
    const spec::Knobs knobs = space_.with(layout, "recompute", rung);
    if (!is_legal(knobs)) continue;
    TrialRequest request = request_for(knobs, Phase::scale, "scale: " + describe(knobs));
    if (fits(request)) return request;
    if (!smallest || request.prediction.peak_bytes < smallest->prediction.peak_bytes) {
      smallest = std::move(request);
    }
  }
  if (!smallest) return std::nullopt;
  if (const std::optional<spec::Knobs> lean = with_lean_schedule(smallest->spec.knobs)) {
    return request_for(*lean, Phase::scale,
                       fmt::format("scale: {}{}", describe(*lean),
                                   schedule_text(*lean, layout, space_.schedule_knobs())));
  }
  refuse(*smallest, Action::pruned, over_capacity_text(*smallest), kMaxPrunedPerPhase);
  return std::nullopt;
}

// Each schedule knob on its own says which of its values takes least.
std::optional<spec::Knobs> ThreeWalls::with_lean_schedule(const spec::Knobs& knobs) {
  spec::Knobs lean = knobs;
  for (const std::string_view name : space_.schedule_knobs()) {
    int64_t least_bytes = request_for(lean, Phase::scale, {}).prediction.peak_bytes;
    for (const std::string& value : space_.values(name)) {
      const spec::Knobs changed = space_.with(lean, name, value);
      if (changed == lean || !is_legal(changed)) continue;
      const int64_t bytes = request_for(changed, Phase::scale, {}).prediction.peak_bytes;
      if (bytes >= least_bytes) continue;
      least_bytes = bytes;
      lean = changed;
    }
  }
  if (lean == knobs || !fits(request_for(lean, Phase::scale, {}))) return std::nullopt;
  return with_room(with_lightest_recompute(lean));
}

spec::Knobs ThreeWalls::with_lightest_recompute(const spec::Knobs& knobs) {
  for (const std::string& rung : recompute_ladder()) {
    const spec::Knobs lighter = space_.with(knobs, "recompute", rung);
    if (is_legal(lighter)) return lighter;
  }
  return knobs;
}

std::optional<spec::Knobs> ThreeWalls::with_room(const spec::Knobs& knobs) {
  const int weight = recompute_weight(knobs.recompute);
  for (const std::string& rung : recompute_ladder()) {
    const spec::Knobs heavier = space_.with(knobs, "recompute", rung);
    if (recompute_weight(heavier.recompute) < weight || !is_legal(heavier)) continue;
    if (fits(request_for(heavier, Phase::scale, {}))) return heavier;
  }
  return std::nullopt;
}

std::vector<ThreeWalls::Priced> ThreeWalls::promising_schedules(const spec::Knobs& plain,
                                                                int64_t& num_priced) {
  const spec::Knobs base = with_lightest_recompute(plain);
  const std::vector<std::string_view> names = space_.schedule_knobs();
  std::vector<Priced> schedules;
  for (spec::Knobs& knobs : space_.product(base, names)) schedules.push_back({std::move(knobs), 0});
  num_priced += static_cast<int64_t>(schedules.size());
  const auto sort = [&] {
    std::ranges::stable_sort(schedules, {}, [](const Priced& priced) { return priced.step_ns; });
  };
  if (schedules.size() > kMostPlayedSchedules) {
    // What each change is worth alone, added up.
    const auto base_ns = static_cast<double>(step_ns_of(base));
    std::map<std::pair<std::string_view, std::string>, double> worth_ns;
    for (const std::string_view name : names) {
      for (const std::string& value : space_.values(name)) {
        const spec::Knobs changed = space_.with(base, name, value);
        if (changed == base || !is_legal(changed)) continue;
        worth_ns[{name, value}] = static_cast<double>(step_ns_of(changed)) - base_ns;
      }
    }
    for (Priced& priced : schedules) {
      priced.step_ns = base_ns;
      for (const std::string_view name : names) {
        const auto worth =
            worth_ns.find({name, spec::get_knob(priced.knobs, *spec::find_knob(name))});
        if (worth != worth_ns.end()) priced.step_ns += worth->second;
      }
    }
    sort();
    size_t num_legal = 0;
    std::erase_if(schedules, [&](const Priced& priced) {
      return num_legal == kBestOfSums || !is_legal(priced.knobs) || ++num_legal > kBestOfSums;
    });
  } else {
    std::erase_if(schedules, [&](const Priced& priced) { return !is_legal(priced.knobs); });
  }
  for (Priced& priced : schedules) priced.step_ns = static_cast<double>(step_ns_of(priced.knobs));
  sort();
  return schedules;
}

const ThreeWalls::Choices& ThreeWalls::choices_for(const TrialRequest& plain) {
  const auto [place, is_new] = choices_.try_emplace({plain.hash, knowledge()});
  if (is_new) place->second = best_choices(plain.spec.knobs);
  return place->second;
}

ThreeWalls::Choices ThreeWalls::best_choices(const spec::Knobs& plain) {
  if (predictor_ == TimePredictor::none) return {plain, 1};
  // A trial that ran out of memory may have taught that it does not fit.
  const std::optional<spec::Knobs> base = with_room(plain);
  if (!base) return {plain, 0};
  const auto base_ns = static_cast<double>(step_ns_of(*base));
  Priced best{*base, base_ns};
  int64_t num_priced = 0;
  for (const Priced& lightest : promising_schedules(plain, num_priced)) {
    if (lightest.step_ns >= best.step_ns) break;
    take_if_faster(lightest.knobs, best.step_ns, best);
  }
  descend(best);
  // A gain that would not count is not worth leaving what the sweep starts from.
  const double enough_ns = best.step_ns * (1 + sweep_.min_gain_ratio);
  if (base_ns <= enough_ns) return {*base, num_priced};
  for (const std::string_view name : space_.schedule_knobs()) {
    const std::string value = spec::get_knob(*base, *spec::find_knob(name));
    if (value == spec::get_knob(best.knobs, *spec::find_knob(name))) continue;
    take_if_faster(space_.with(best.knobs, name, value), enough_ns, best, true);
  }
  return {best.knobs, num_priced};
}

// More recomputation only takes longer: with the lightest a schedule takes the least that it can.
bool ThreeWalls::take_if_faster(const spec::Knobs& knobs, double limit_ns, Priced& best,
                                bool may_equal) {
  const auto is_enough = [&](double ns) { return ns < limit_ns || (may_equal && ns <= limit_ns); };
  if (!is_legal(knobs)) return false;
  const spec::Knobs lightest = with_lightest_recompute(knobs);
  auto ns = static_cast<double>(step_ns_of(lightest));
  if (!is_enough(ns)) return false;
  const std::optional<spec::Knobs> roomy = with_room(lightest);
  if (!roomy) return false;
  if (*roomy != lightest) ns = static_cast<double>(step_ns_of(*roomy));
  if (!is_enough(ns)) return false;
  best = {*roomy, ns};
  return true;
}

// Sums leave out what two changes are worth together: one at a time from the best of them.
void ThreeWalls::descend(Priced& best) {
  for (bool has_changed = true; has_changed;) {
    has_changed = false;
    for (const std::string_view name : space_.schedule_knobs()) {
      for (const std::string& value : space_.values(name)) {
        const spec::Knobs changed = space_.with(best.knobs, name, value);
        if (changed == best.knobs) continue;
        const double limit_ns = best.step_ns / (1 + sweep_.min_gain_ratio);
        has_changed |= take_if_faster(changed, limit_ns, best);
      }
    }
  }
}

void ThreeWalls::look_at(Candidate& candidate) {
  const Choices& choices = choices_for(candidate.plain);
  candidate.best = request_for(
      choices.knobs, Phase::scale,
      fmt::format("scale: {}{}", describe(choices.knobs),
                  schedule_text(choices.knobs, candidate.layout, space_.schedule_knobs())));
  candidate.num_priced = choices.num_priced;
  candidate.ratio = static_cast<double>(candidate.best.prediction.step_ns) /
                    static_cast<double>(step_ns_of(candidate.plain.spec.knobs));
  candidate.looked_at = knowledge();
}

void ThreeWalls::rank_jointly(std::vector<Candidate>& candidates, size_t num_wanted) {
  double lowest_ratio = 1;
  for (const Candidate& candidate : candidates) {
    lowest_ratio = std::min(lowest_ratio, candidate.ratio);
  }
  const auto incumbent_ns = static_cast<double>(step_ns_of(incumbent_->request.spec.knobs));
  const auto is_fresh = [&](const Candidate& c) { return c.looked_at == knowledge(); };
  // What was looked at before keeps what its choices gained then.
  const auto sort = [&](double unknown_ratio) {
    for (Candidate& c : candidates) {
      c.step_ns = static_cast<double>(step_ns_of(c.plain.spec.knobs)) *
                  (c.looked_at ? c.ratio : unknown_ratio);
      c.is_last = c.is_again && c.step_ns * (1 + sweep_.min_gain_ratio) >= incumbent_ns;
    }
    std::ranges::stable_sort(candidates, {},
                             [](const Candidate& c) { return std::pair(c.is_last, c.step_ns); });
  };
  for (size_t num_looked = 0; num_looked < kMostLookedAt; ++num_looked) {
    // One that nobody looked at may gain as much as the one that gains most.
    sort(lowest_ratio);
    std::map<std::string_view, int> num_of_layout;
    size_t num_seen = 0;
    Candidate* stale = nullptr;
    for (Candidate& c : candidates) {
      if (stale != nullptr || num_seen == num_wanted) break;
      if (++num_of_layout[c.name] > kMostBatchesOfLayout) continue;
      ++num_seen;
      if (!is_fresh(c)) stale = &c;
    }
    if (stale == nullptr) return;
    look_at(*stale);
    lowest_ratio = std::min(lowest_ratio, stale->ratio);
  }
  sort(1);
}

}  // namespace moetune::tuner

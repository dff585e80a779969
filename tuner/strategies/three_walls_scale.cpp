// The second wall: which layout, measured with the schedule that is predicted to suit it; see
// three_walls.h.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tuner/judgement.h"
#include "tuner/strategies/three_walls.h"

namespace moetune::tuner {
namespace {

/// So many times the layouts that are measured are looked at more closely before.
constexpr size_t kRefinedShare = 4;
/// Micro-batches of a layout that are looked at more closely, and that may be measured.
constexpr int kMostBatchesOfLayout = 2;

/// What a layout is measured with, where it is not what the sweep starts from: ",
/// overlap_grad_reduce true".
std::string schedule_text(const spec::Knobs& knobs, const spec::Knobs& from,
                          const std::vector<std::string_view>& names) {
  std::string text;
  for (const std::string_view name : names) {
    const spec::KnobRow& row = *spec::find_knob(name);
    const std::string value = spec::get_knob(knobs, row);
    if (value != spec::get_knob(from, row)) text += fmt::format(", {} {}", name, value);
  }
  return text;
}

}  // namespace

// Every legal layout of the space with the cheapest recompute that fits, ranked by the calibrated
// cost model; of the best few each with the schedule, and the recompute that makes room for it,
// that are predicted to suit it: one that needs its gradients reduced meanwhile is not to be judged
// without. The best of these are measured, and after each of them the others are ranked again. A
// layout is measured once, and again with another micro-batch only where later trials have taught
// that it beats the incumbent with that.
void ThreeWalls::scale() {
  phase_ = Phase::scale;
  const spec::Knobs from = first_fitting_->request.spec.knobs;
  std::vector<TrialRequest> ranked;
  int64_t num_points = 0;
  for (const spec::Knobs& layout : space_.product(from, layout_knobs({"micro_batch_size"}))) {
    ++num_points;
    if (is_illegal(layout, Phase::scale, "scale: " + describe(layout))) continue;
    if (auto request = cheapest_fitting(layout)) ranked.push_back(std::move(*request));
  }
  const auto sort = [&] {
    std::ranges::stable_sort(ranked, {},
                             [](const TrialRequest& r) { return r.prediction.step_ns; });
  };
  sort();
  const size_t num_fitting = ranked.size();
  // Of a layout one is measured: no need to look at all its micro-batches.
  std::map<std::string, int> num_of_layout;
  std::erase_if(ranked, [&](const TrialRequest& request) {
    return ++num_of_layout[layout_text(request.spec.knobs)] > kMostBatchesOfLayout;
  });
  // No trial corrects predictions by so much that one of the others becomes the best.
  ranked.resize(std::min(ranked.size(), kRefinedShare * static_cast<size_t>(sweep_.scale_trials)));
  for (TrialRequest& request : ranked) request = with_best_schedule(std::move(request));
  sort();
  Decision& ranking = decide(
      Phase::scale, DecisionKind::note,
      fmt::format("{} layouts considered, {} legal ones fit with some recompute setting; the {} "
                  "predicted to be fastest, at most, are measured, each layout with the schedule "
                  "that is predicted to suit it.",
                  num_points, num_fitting, sweep_.scale_trials));
  constexpr size_t kMaxListed = 50;
  for (size_t i = 0; i < std::min(ranked.size(), kMaxListed); ++i) {
    ranking.evidence["predicted"].push_back({{"layout", describe(ranked[i].spec.knobs)},
                                             {"step_ns", ranked[i].prediction.step_ns},
                                             {"peak_bytes", ranked[i].prediction.peak_bytes}});
  }
  std::vector<Contender> contenders;
  try {
    measure_layouts(std::move(ranked), contenders);
  } catch (const BudgetSpent&) {
    look_again(contenders, false);
    conclude(contenders);
    throw;
  }
  look_again(contenders, false);
  conclude(contenders);
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
  if (smallest) {
    refuse(*smallest, Action::pruned, over_capacity_text(*smallest), kMaxPrunedPerPhase);
  }
  return std::nullopt;
}

TrialRequest ThreeWalls::with_best_schedule(TrialRequest request) {
  const auto [place, is_new] =
      best_schedules_.try_emplace({request.hash, num_calibrations_}, request.spec.knobs);
  if (is_new) place->second = best_schedule(request);
  const spec::Knobs& knobs = place->second;
  if (knobs == request.spec.knobs) return request;
  const std::string changes = schedule_text(knobs, request.spec.knobs, space_.schedule_knobs());
  return request_for(knobs, Phase::scale, fmt::format("scale: {}{}", describe(knobs), changes));
}

spec::Knobs ThreeWalls::best_schedule(const TrialRequest& request) {
  spec::Knobs best = request.spec.knobs;
  auto best_ns = static_cast<double>(request.prediction.step_ns);
  for (bool has_changed = true; has_changed;) {
    has_changed = false;
    for (const std::string_view name : space_.schedule_knobs()) {
      for (const std::string& value : space_.values(name)) {
        const spec::Knobs changed = space_.with(best, name, value);
        if (changed == best || !is_legal(changed)) continue;
        // A gain that would not count is not worth leaving what the sweep starts from.
        const auto gains = [&](double ns) {
          return ns < best_ns && ns * (1 + sweep_.min_gain_ratio) <= best_ns;
        };
        auto ns = static_cast<double>(predicted_step_ns(changed));
        if (!gains(ns)) continue;
        const std::optional<spec::Knobs> knobs = with_room(changed);
        if (!knobs) continue;
        if (*knobs != changed) ns = static_cast<double>(predicted_step_ns(*knobs));
        if (!gains(ns)) continue;
        best = *knobs;
        best_ns = ns;
        has_changed = true;
      }
    }
  }
  return best;
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

void ThreeWalls::measure_layouts(std::vector<TrialRequest> ranked,
                                 std::vector<Contender>& contenders) {
  std::map<std::string, int> num_of_layout;
  const spec::Knobs from = first_fitting_->request.spec.knobs;
  int64_t num_measured = 0;
  while (num_measured < sweep_.scale_trials) {
    std::erase_if(ranked, [&](const TrialRequest& request) {
      return measured_.contains(request.hash) ||
             num_of_layout[layout_text(request.spec.knobs)] == kMostBatchesOfLayout;
    });
    for (TrialRequest& request : ranked) predict(request);
    const auto incumbent_ns =
        static_cast<double>(predicted_step_ns(incumbent_->request.spec.knobs));
    // By what is known now, and with the schedule that now seems to suit it. Those of a layout that
    // was measured come last, unless they are predicted to gain.
    const auto rank = [&](const TrialRequest& request) {
      const auto ns = static_cast<double>(request.prediction.step_ns);
      const bool is_again = num_of_layout[layout_text(request.spec.knobs)] > 0;
      return std::pair(is_again && ns * (1 + sweep_.min_gain_ratio) >= incumbent_ns, ns);
    };
    const auto first = std::ranges::min_element(ranked, {}, rank);
    if (first == ranked.end() || rank(*first).first) return;
    const TrialRequest request = with_best_schedule(*first);
    ranked.erase(first);
    if (measured_.contains(request.hash)) continue;
    if (!is_promising(request)) {
      tell_hopeless(request, "layouts");
      return;
    }
    ++num_of_layout[layout_text(request.spec.knobs)];
    ++num_measured;
    look_at_incumbent_again();
    Contender contender;
    contender.name = describe(request.spec.knobs) +
                     schedule_text(request.spec.knobs, from, space_.schedule_knobs());
    contender.decision.phase = Phase::scale;
    contender.decision.remedy = "layout";
    contender.decision.knob = "layout";
    contender.decision.value_after = contender.name;
    contender.trial = measure_judged(request);
    if (reject_failed(contender)) continue;
    contenders.push_back(std::move(contender));
    take_if_better(contenders);
  }
}

}  // namespace moetune::tuner

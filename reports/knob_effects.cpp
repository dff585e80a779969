// Groups trials by all knobs but one, and looks what that one does within each group.
#include "reports/knob_effects.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "kernels/base/median.h"

namespace moetune::reports {
namespace {

using store::TrialRow;

/// A trial that ran, with the value of one knob.
struct Ran {
  const TrialRow* trial = nullptr;
  const std::string* value = nullptr;
};

double seconds(const TrialRow& trial) { return static_cast<double>(*trial.step_ns); }

bool took_less(const Ran& a, const Ran& b) { return *a.trial->step_ns < *b.trial->step_ns; }

uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 29)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 32);
}

double explained_by_value(const std::vector<Ran>& trials) {
  struct Sum {
    double count = 0;
    double sum = 0;
  };
  Sum all;
  double squares = 0;
  std::map<std::string, Sum> by_value;
  for (const Ran& ran : trials) {
    const double log = std::log(seconds(*ran.trial));
    Sum& own = by_value[*ran.value];
    own = {own.count + 1, own.sum + log};
    all = {all.count + 1, all.sum + log};
    squares += log * log;
  }
  const double whole = squares - all.sum * all.sum / all.count;
  // Rounding is all that is left where every trial took the same time.
  if (!(whole > 1e-12 * squares)) return 0;
  double between = -all.sum * all.sum / all.count;
  for (const auto& [value, own] : by_value) between += own.sum * own.sum / own.count;
  return std::clamp(between / whole, 0.0, 1.0);
}

KnobEffect effect_of(const std::string& knob, const std::vector<Ran>& trials,
                     const std::vector<uint64_t>& settings) {
  KnobEffect effect;
  effect.knob = knob;
  std::unordered_map<uint64_t, std::vector<Ran>> groups;
  std::map<std::string, size_t> num_fastest;
  for (size_t i = 0; i < trials.size(); ++i) {
    groups[settings[i]].push_back(trials[i]);
    num_fastest.try_emplace(*trials[i].value, 0);
  }
  effect.num_values = num_fastest.size();
  std::vector<double> ratios;
  for (const auto& [setting, group] : groups) {
    const auto [fastest, slowest] = std::minmax_element(group.begin(), group.end(), took_less);
    if (*fastest->value == *slowest->value) continue;
    ratios.push_back(seconds(*slowest->trial) / seconds(*fastest->trial) - 1);
    ++num_fastest[*fastest->value];
    const auto high = fastest->trial->step_ns_high;
    const auto low = slowest->trial->step_ns_low;
    effect.num_clear += high && low && *high < *low ? 1 : 0;
  }
  effect.num_settings = ratios.size();
  if (!ratios.empty()) {
    std::ranges::sort(ratios);
    effect.median_ratio = base::median(ratios);
    effect.most_ratio = ratios.back();
    const auto best =
        std::ranges::max_element(num_fastest, {}, [](const auto& entry) { return entry.second; });
    effect.best_value = best->first;
    effect.num_best = best->second;
  }
  effect.explained_ratio = explained_by_value(trials);
  return effect;
}

}  // namespace

std::vector<KnobEffect> knob_effects(const Context& context) {
  std::vector<const TrialRow*> ran;
  for (const TrialRow& trial : context.trials) {
    const bool is_timed = trial.status == "ok" && trial.step_ns && *trial.step_ns > 0;
    if (is_timed && !is_reference(trial)) ran.push_back(&trial);
  }
  const std::vector<std::string>& knobs = context.varying_knobs;
  // Of each trial a number made of all its values, from which that of one knob can be taken out.
  std::vector<std::vector<std::string>> values(knobs.size());
  const auto own_part = [&](size_t knob, size_t trial) {
    return mixed(std::hash<std::string>{}(values[knob][trial]) + mixed(knob + 1));
  };
  std::vector<uint64_t> whole(ran.size(), 0);
  for (size_t k = 0; k < knobs.size(); ++k) {
    for (const TrialRow* trial : ran) values[k].push_back(knob_of(*trial, knobs[k]));
    for (size_t i = 0; i < ran.size(); ++i) whole[i] += own_part(k, i);
  }
  std::vector<KnobEffect> effects;
  for (size_t k = 0; k < knobs.size(); ++k) {
    std::vector<Ran> trials;
    std::vector<uint64_t> settings;
    for (size_t i = 0; i < ran.size(); ++i) {
      trials.push_back({ran[i], &values[k][i]});
      settings.push_back(whole[i] - own_part(k, i));
    }
    KnobEffect effect = effect_of(knobs[k], trials, settings);
    if (effect.num_values > 1) effects.push_back(std::move(effect));
  }
  std::ranges::stable_sort(effects, std::greater(), [](const KnobEffect& effect) {
    return std::tuple(effect.num_settings > 0, effect.most_ratio, effect.explained_ratio);
  });
  return effects;
}

}  // namespace moetune::reports

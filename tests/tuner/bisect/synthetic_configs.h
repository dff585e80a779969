// Hunts among the changes of a configuration with planted culprits: what is right, what is claimed,
// and what it costs. Shared by the calibration test and the benchmark.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <ostream>
#include <random>
#include <set>
#include <vector>

#include "tuner/bisect/config_search.h"

namespace moetune::tests {

using tuner::ChangeSet;
using Culprits = std::set<std::set<int>>;
using ConfigEffect = std::function<double(const ChangeSet&)>;

constexpr double kConfigLevel = 100.0;
constexpr double kConfigNoise = 2.0;  ///< the least effect of interest

/// What else moves the readings, in noises.
struct ConfigTrouble {
  double outlier_share = 0.0;  ///< of runs, each 8 too slow
  double drift = 0.0;          ///< per run
  double wander = 0.0;         ///< of a speed that resembles the run before by 0.9
};

/// Readings with noise; `effect` in noises.
class ConfigMachine {
 public:
  ConfigMachine(unsigned seed, ConfigEffect effect, const ConfigTrouble& trouble = {})
      : random_(seed), effect_(std::move(effect)), trouble_(trouble) {}
  double operator()(const ChangeSet& set) {
    const double outlier = share_(random_) < trouble_.outlier_share ? 8.0 : 0.0;
    if (trouble_.wander > 0) speed_ = 0.9 * speed_ + std::sqrt(1 - 0.81) * noise_(random_);
    const double course = trouble_.drift * num_runs_++ + trouble_.wander * speed_;
    return kConfigLevel + kConfigNoise * (effect_(set) + noise_(random_) + outlier + course);
  }

 private:
  std::mt19937_64 random_;
  std::normal_distribution<double> noise_;
  std::uniform_real_distribution<double> share_;
  ConfigEffect effect_;
  ConfigTrouble trouble_;
  int num_runs_ = 0;
  double speed_ = 0.0;
};

inline Culprits named_by(const tuner::ConfigHuntResult& result) {
  Culprits named;
  for (const tuner::ConfigCulprit& culprit : result.culprits) {
    named.insert({culprit.changes.begin(), culprit.changes.end()});
  }
  return named;
}

/// What two changes, a and b, do among others that do nothing.
struct ConfigPlant {
  const char* name = "";
  int num_changes = 6;
  double (*effect)(bool a, bool b) = nullptr;  ///< in noises
  int num_culprits = 1;                        ///< a; a and b apart
  bool is_pair = false;                        ///< a and b together
  ConfigTrouble trouble;
  double right = 0.93;  ///< at least
  int runs = 60;        ///< median, at most
};
inline std::ostream& operator<<(std::ostream& out, const ConfigPlant& p) { return out << p.name; }

inline double first(bool a, bool /*b*/) { return a ? 2.0 : 0.0; }
inline double together(bool a, bool b) { return a && b ? 2.0 : 0.0; }
inline double each(bool a, bool b) { return (a ? 2.0 : 0.0) + (b ? 2.0 : 0.0); }
inline double either(bool a, bool b) { return a || b ? 2.0 : 0.0; }
inline double worse_and_better(bool a, bool b) { return (a ? 4.0 : 0.0) - (b ? 2.0 : 0.0); }
inline double nothing(bool /*a*/, bool /*b*/) { return 0.0; }

/// The bounds leave room for the chance of 200 hunts.
inline const std::vector<ConfigPlant> kConfigPlants = {
    {.name = "one of one", .num_changes = 1, .effect = first, .runs = 30},
    {.name = "one of six", .effect = first, .runs = 50},
    {.name = "one of twenty", .num_changes = 20, .effect = first},
    {.name = "one of twenty, outliers",
     .num_changes = 20,
     .effect = first,
     .trouble = {.outlier_share = 0.05},
     .runs = 65},
    {.name = "two together", .effect = together, .is_pair = true, .runs = 110},
    {.name = "two apart", .effect = each, .num_culprits = 2, .runs = 95},
    {.name = "two, either does", .effect = either, .num_culprits = 2, .runs = 85},
    {.name = "a hidden improvement", .effect = worse_and_better, .num_culprits = 2, .runs = 75},
    {.name = "none of twenty", .num_changes = 20, .effect = nothing, .num_culprits = 0},
    {.name = "one of six, drift", .effect = first, .trouble = {.drift = 0.1}, .runs = 90},
    {.name = "one of six, speed wanders", .effect = first, .trouble = {.wander = 2}, .runs = 120},
    {.name = "none of six, drift", .effect = nothing, .num_culprits = 0, .trouble = {.drift = 0.1}},
    {.name = "none of six, speed wanders",
     .effect = nothing,
     .num_culprits = 0,
     .trouble = {.wander = 2},
     .runs = 90},
};

struct ConfigHuntStatistics {
  int num_hunts = 0;
  int num_right = 0;  ///< all culprits and no other; without culprits: said so
  int num_named = 0;  ///< hunts that named any
  int num_named_right = 0;
  double claimed = 0.0;  ///< sum over those: that all of it is right
  std::vector<int> runs;

  [[nodiscard]] double right() const { return static_cast<double>(num_right) / num_hunts; }
  [[nodiscard]] double delivered() const {
    return num_named == 0 ? 0 : static_cast<double>(num_named_right) / num_named;
  }
  [[nodiscard]] double mean_claimed() const { return num_named == 0 ? 0 : claimed / num_named; }
  [[nodiscard]] int median_runs() const {
    std::vector<int> sorted = runs;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
};

/// Of one history.
inline void run_config_hunt(const ConfigPlant& plant, unsigned seed,
                            ConfigHuntStatistics& statistics) {
  std::mt19937_64 random(50000 + seed);
  std::vector<int> order(static_cast<size_t>(plant.num_changes));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  std::shuffle(order.begin(), order.end(), random);
  const auto a = static_cast<size_t>(order.front());
  const auto b = static_cast<size_t>(order.back());
  Culprits planted;
  if (plant.is_pair) {
    planted.insert({order.front(), order.back()});
  } else {
    if (plant.num_culprits >= 1) planted.insert({order.front()});
    if (plant.num_culprits >= 2) planted.insert({order.back()});
  }
  tuner::ConfigHuntOptions options;
  options.num_changes = plant.num_changes;
  tuner::ConfigHunt hunt(options);
  const auto effect = plant.effect;
  ConfigMachine machine(
      90000 + seed, [=](const ChangeSet& set) { return effect(set[a], set[b]); }, plant.trouble);
  constexpr int kMostRuns = 2000;  // one that does not end is wrong
  while (const auto request = hunt.next()) {
    if (hunt.num_runs() >= kMostRuns) break;
    hunt.add(request->changes, machine(request->changes));
  }
  ++statistics.num_hunts;
  statistics.runs.push_back(hunt.num_runs());
  const tuner::ConfigHuntResult& result = hunt.result();
  if (result.verdict == tuner::HuntVerdict::culprit) {
    const bool is_right = named_by(result) == planted;
    double product = result.complete;
    for (const tuner::ConfigCulprit& culprit : result.culprits) product *= culprit.confidence;
    statistics.claimed += product;
    ++statistics.num_named;
    statistics.num_named_right += is_right;
    statistics.num_right += is_right;
  } else {
    const bool may_change = plant.trouble.drift > 0 || plant.trouble.wander > 0;
    const bool is_none = result.verdict == tuner::HuntVerdict::no_change ||
                         (may_change && result.verdict == tuner::HuntVerdict::environment_changed);
    statistics.num_right += planted.empty() && is_none;
  }
}

inline ConfigHuntStatistics run_config_hunts(const ConfigPlant& plant, int num_hunts) {
  ConfigHuntStatistics statistics;
  for (int h = 0; h < num_hunts; ++h) run_config_hunt(plant, static_cast<unsigned>(h), statistics);
  return statistics;
}

}  // namespace moetune::tests

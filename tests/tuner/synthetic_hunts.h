// Hunts in synthetic histories with planted culprits: what is right, and what it costs. Shared by
// the calibration tests and the benchmark.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <vector>

#include "tuner/bisect/commit_search.h"

namespace moetune::tests {

struct HuntCase {
  const char* name = "";
  int num_commits = 64;
  double shift = 2.0;          ///< of each culprit, in noises
  double outlier_share = 0.0;  ///< of runs, each 8 noises too slow
  double drift = 0.0;          ///< noises per run
  double wander = 0.0;         ///< noises, of a speed that resembles the run before by 0.9
  int num_culprits = 1;
  double build_cost = 5.0;  ///< in runs
};

struct HuntStatistics {
  int num_hunts = 0;
  int num_right = 0;  ///< all culprits and no other; without culprits: said so
  int num_named = 0;  ///< culprits named, in all hunts
  int num_named_right = 0;
  double claimed = 0.0;  ///< sum of their confidences
  int num_covered = 0;   ///< of the culprits, in how many the interval holds the planted effect
  std::vector<int> runs;
  std::vector<int> builds;

  [[nodiscard]] double right() const { return static_cast<double>(num_right) / num_hunts; }
  [[nodiscard]] double delivered() const {
    return num_named == 0 ? 0 : static_cast<double>(num_named_right) / num_named;
  }
  [[nodiscard]] double mean_claimed() const { return num_named == 0 ? 0 : claimed / num_named; }
  [[nodiscard]] double covered() const {
    return num_named_right == 0 ? 0 : static_cast<double>(num_covered) / num_named_right;
  }
  /// Counts an answer; `shift` of each culprit, in units of the metric. The hunt and what it has
  /// cost are counted by the caller.
  void add(const tuner::HuntResult& result, const std::set<int>& culprits, double shift) {
    if (result.verdict != tuner::HuntVerdict::culprit) {
      num_right += culprits.empty() && (result.verdict == tuner::HuntVerdict::no_change ||
                                        result.verdict == tuner::HuntVerdict::environment_changed);
      return;
    }
    std::set<int> named;
    for (const tuner::Culprit& culprit : result.culprits) {
      named.insert(culprit.position);
      claimed += culprit.confidence;
      ++num_named;
      if (!culprits.contains(culprit.position)) continue;
      ++num_named_right;
      const double ratio = shift / culprit.before;
      num_covered += culprit.effect_low_ratio <= ratio && ratio <= culprit.effect_high_ratio;
    }
    num_right += named == culprits;
  }
  static int quantile(std::vector<int> values, double q) {
    std::sort(values.begin(), values.end());
    return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1))];
  }
};

/// One hunt per seed from `first_seed` on. The noise of a run is 2 % of the level, the least effect
/// of interest 2 %: one noise.
inline HuntStatistics run_synthetic_hunts(const HuntCase& c, int num_hunts,
                                          unsigned first_seed = 1000) {
  constexpr double kLevel = 100.0;
  constexpr double kNoise = 2.0;
  HuntStatistics statistics;
  for (int h = 0; h < num_hunts; ++h) {
    std::mt19937_64 random(first_seed + static_cast<unsigned>(h));
    std::normal_distribution<double> noise;
    std::uniform_real_distribution<double> share;
    std::uniform_int_distribution<int> place(1, c.num_commits);
    std::set<int> culprits;
    while (static_cast<int>(culprits.size()) < c.num_culprits) {
      const int at = place(random);
      // Two next to one another are one to anybody who looks from afar.
      if (std::all_of(culprits.begin(), culprits.end(),
                      [&](int other) { return std::abs(other - at) >= 4; })) {
        culprits.insert(at);
      }
    }
    tuner::HuntOptions options;
    options.num_positions = c.num_commits;
    tuner::CommitHunt hunt(options);
    hunt.set_costs({c.build_cost});
    std::set<int> built;
    double speed = c.wander > 0 ? noise(random) : 0.0;
    while (const auto request = hunt.next()) {
      double value =
          kLevel + kNoise * (noise(random) + c.drift * hunt.num_runs() + c.wander * speed);
      if (c.wander > 0) speed = 0.9 * speed + std::sqrt(1 - 0.81) * noise(random);
      for (const int culprit : culprits) {
        if (request->position >= culprit) value += c.shift * kNoise;
      }
      if (share(random) < c.outlier_share) value += 8 * kNoise;
      hunt.add(request->position, value);
      built.insert(request->position);
    }
    ++statistics.num_hunts;
    statistics.runs.push_back(hunt.num_runs());
    statistics.builds.push_back(static_cast<int>(built.size()));
    statistics.add(hunt.result(), culprits, c.shift * kNoise);
  }
  return statistics;
}

}  // namespace moetune::tests

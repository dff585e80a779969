// Hunts in synthetic histories with planted culprits: what is right, and what it costs. Shared by
// the calibration tests and the benchmark.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "tuner/bisect/commit_search.h"

namespace moetune::tests {

/// Of the noise of a run, with the middle half as wide as that of a normal one of the same size,
/// and the median at 0.
enum class NoiseShape : uint8_t { normal, log_normal, exponential, student_2, two_speeds };

class Noise {
 public:
  explicit Noise(NoiseShape shape) : shape_(shape) {}

  template <typename Random>
  double operator()(Random& random) {
    const double z = normal_(random);
    switch (shape_) {
      case NoiseShape::normal:
        return z;
      case NoiseShape::log_normal:  // of sigma 1: quartiles at 0.51 and 1.96 times the median
        return (std::exp(z) - 1) / 1.0757;
      case NoiseShape::exponential:
        return (std::exponential_distribution<double>()(random) - std::log(2.0)) / 0.8145;
      case NoiseShape::student_2:
        return std::student_t_distribution<double>(2)(random) / 1.2105;
      case NoiseShape::two_speeds:  // one run in five of another, 5 noises slower
        return 0.8 * z + (std::uniform_real_distribution<double>()(random) < 0.2 ? 5.0 : 0.0);
    }
    return z;
  }

 private:
  NoiseShape shape_;
  std::normal_distribution<double> normal_;
};

struct HuntCase {
  const char* name = "";
  int num_commits = 64;
  NoiseShape shape = NoiseShape::normal;
  double noise_ratio = 0.02;   ///< of a run, over the level; the least effect of interest is 0.02
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
  int num_swapped = 0;   ///< said to be better at the bad end
  int num_guessed = 0;   ///< in which the first guess at the runs to go held
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
    num_swapped += result.is_swapped;
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

/// One hunt per seed from `first_seed` on.
inline HuntStatistics run_synthetic_hunts(const HuntCase& c, int num_hunts,
                                          unsigned first_seed = 1000) {
  constexpr double kLevel = 100.0;
  const double noise_size = c.noise_ratio * kLevel;
  HuntStatistics statistics;
  for (int h = 0; h < num_hunts; ++h) {
    std::mt19937_64 random(first_seed + static_cast<unsigned>(h));
    std::normal_distribution<double> normal;
    Noise noise(c.shape);
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
    double speed = c.wander > 0 ? normal(random) : 0.0;
    std::optional<int> guessed;  ///< runs in all
    while (const auto request = hunt.next()) {
      const auto left = hunt.expected_runs_left();
      if (left && !guessed) guessed = hunt.num_runs() + left->most;
      double value =
          kLevel + noise_size * (noise(random) + c.drift * hunt.num_runs() + c.wander * speed);
      if (c.wander > 0) speed = 0.9 * speed + std::sqrt(1 - 0.81) * normal(random);
      for (const int culprit : culprits) {
        if (request->position >= culprit) value += c.shift * noise_size;
      }
      if (share(random) < c.outlier_share) value += 8 * noise_size;
      hunt.add(request->position, value);
      built.insert(request->position);
    }
    ++statistics.num_hunts;
    statistics.num_guessed += guessed && hunt.num_runs() <= *guessed;
    statistics.runs.push_back(hunt.num_runs());
    statistics.builds.push_back(static_cast<int>(built.size()));
    statistics.add(hunt.result(), culprits, c.shift * noise_size);
  }
  return statistics;
}

}  // namespace moetune::tests

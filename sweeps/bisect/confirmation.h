// Tests whether the requested metric changes at the commit where another metric was found to
// change. Makes fresh runs of that commit and its parent in turns until they confirm or refute it.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sweeps/bisect/even_speed.h"
#include "sweeps/bisect/hunt_runs.h"
#include "sweeps/bisect/vocabulary.h"

namespace moetune::sweeps {

/// Prior probability that the metric changes at the same commit as another one that differs between
/// the ends. With it, claimed confidences agree with measured ones (tests/bench/bisect_bench.cpp).
inline constexpr double kCoincidence = 0.75;

class Confirmation {
 public:
  /// Makes the nth fresh run of a position, unless it has been made.
  using Run = std::function<void(int position, size_t n)>;

  /// `ends`: result for the metric at the two ends. Keeps references to the first three.
  Confirmation(const HuntSetup& setup, const HuntRuns& runs, const tuner::HuntResult& ends,
               int position, Run run)
      : setup_(setup), runs_(runs), ends_(ends), position_(position), run_(std::move(run)) {}

  /// Tests by the posterior over all commits from all runs, with a prior for this commit. Returns
  /// the change of the metric; empty if it is not confirmed.
  std::optional<tuner::LevelDifference> by_all_commits();

  /// Tests for a `part` of the step that takes longer by `growth`, in units of the metric. Compares
  /// two hypotheses: the metric grows by exactly that, or not at all, as other work hides it. No
  /// level has to be estimated, so noise that hides the change is no evidence against it. If
  /// even_speed() is set, the machine's speed is subtracted first, and the plain readings only must
  /// not contradict. Returns the change of the metric, or that of the part if the metric is too
  /// noisy (is_of_part). `part` may also be the metric at even speed.
  std::optional<tuner::LevelDifference> by_growth(const std::string& part,
                                                  const tuner::LevelDifference& growth);

  /// Whether the metric has likely changed at other commits, too.
  [[nodiscard]] bool has_more(const tuner::LevelDifference& confirmed) const;

  [[nodiscard]] double probability() const { return probability_; }
  /// Runs that may still be made.
  [[nodiscard]] int num_left() const { return num_left_; }
  [[nodiscard]] bool is_drifting() const { return is_drifting_; }
  /// True if only the part showed the change, as the metric itself was too noisy.
  [[nodiscard]] bool is_of_part() const { return is_of_part_; }
  /// The machine's speed that by_growth() has subtracted; empty if it has not.
  [[nodiscard]] const std::optional<EvenSpeed>& even_speed() const { return even_speed_; }

 private:
  template <typename Probability>
  std::optional<tuner::LevelDifference> confirm_by(bool uses_all,
                                                   const Probability& probability_of);
  [[nodiscard]] bool changes_within(int first, int last) const;
  /// Difference of the two ends in units of the metric; positive is worse.
  struct EndsDifference {
    double mean = 0.0;
    double width = 0.0;  ///< width of its interval
  };
  [[nodiscard]] EndsDifference plain_difference_of_ends() const;
  [[nodiscard]] bool leaves_some(const EndsDifference& whole,
                                 const tuner::LevelDifference& confirmed) const;
  [[nodiscard]] int most_runs(double noise_now) const;
  [[nodiscard]] tuner::DriftWatch drift() const;
  [[nodiscard]] std::vector<tuner::CommitReadings> readings_within(int first, int last) const;
  [[nodiscard]] std::vector<tuner::CommitReadings> readings_at(
      const std::vector<int>& positions) const;
  [[nodiscard]] std::vector<tuner::CommitReadings> readings_of_two(int a, int b) const;
  [[nodiscard]] std::vector<tuner::CommitReadings> plain_readings_of_two(int a, int b) const;
  [[nodiscard]] std::vector<tuner::CommitReadings> freed_readings(int a, int b) const;
  [[nodiscard]] int last_position() const { return static_cast<int>(setup_.commits.size()) - 1; }

  const HuntSetup& setup_;
  const HuntRuns& runs_;
  const tuner::HuntResult& ends_;
  int position_;
  Run run_;
  double probability_ = 0.0;
  int num_left_ = 0;
  bool is_drifting_ = false;
  bool is_of_part_ = false;
  std::optional<EvenSpeed> even_speed_;
};

}  // namespace moetune::sweeps

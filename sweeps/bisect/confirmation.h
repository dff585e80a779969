// Whether the metric that was asked for moves at the commit where another one has been found to:
// fresh runs of that commit and its parent in turns, until they say so or the contrary.
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

/// Prior that the metric moves where another one that differs between the ends does; what is
/// claimed with it agrees with what is delivered (tests/bench/bisect_bench.cpp).
inline constexpr double kCoincidence = 0.75;

class Confirmation {
 public:
  /// Makes the nth fresh run of a position, unless there is one.
  using Run = std::function<void(int position, size_t n)>;

  /// Of the metric at the ends: `ends`.
  Confirmation(const HuntSetup& setup, const HuntRuns& runs, const tuner::HuntResult& ends,
               int position, Run run)
      : setup_(setup), runs_(runs), ends_(ends), position_(position), run_(std::move(run)) {}

  /// By the posterior over all commits from all runs, with a prior for this one. Gives the change
  /// of the metric, none where it is not confirmed.
  std::optional<tuner::LevelDifference> by_all_commits();

  /// `part` takes longer by `growth`, in units of the metric. Compares two hypotheses: the metric
  /// grows by just that, or not at all, as other work hides it. That leaves no level to be guessed,
  /// so that a noise that hides the change does not speak against it. With even_speed() the
  /// machine's speed is taken off first; the plain readings must only not contradict. Gives the
  /// metric's change, or the part's where the metric is too noisy (is_of_part). `part` may also be
  /// the metric at even speed.
  std::optional<tuner::LevelDifference> by_growth(const std::string& part,
                                                  const tuner::LevelDifference& growth);

  /// Whether the metric has likely changed elsewhere, too, beside the change that was confirmed.
  [[nodiscard]] bool has_more(const tuner::LevelDifference& confirmed) const;

  [[nodiscard]] double probability() const { return probability_; }
  /// Runs that it may still ask for.
  [[nodiscard]] int num_left() const { return num_left_; }
  [[nodiscard]] bool is_drifting() const { return is_drifting_; }
  /// The part has shown the change, the metric itself was too noisy for that.
  [[nodiscard]] bool is_of_part() const { return is_of_part_; }
  /// By which it was confirmed, if it was.
  [[nodiscard]] const std::optional<EvenSpeed>& even_speed() const { return even_speed_; }

 private:
  template <typename Probability>
  std::optional<tuner::LevelDifference> confirm_by(bool uses_all,
                                                   const Probability& probability_of);
  [[nodiscard]] bool changes_within(int first, int last) const;
  /// By how much the ends differ, in units of the metric; more is worse.
  struct EndsDifference {
    double mean = 0.0;
    double width = 0.0;  ///< of its interval
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

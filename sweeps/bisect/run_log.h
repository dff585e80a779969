// The runs of a hunt in the order of time. A position is a commit or a set of changes.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "sweeps/bisect/vocabulary.h"

namespace moetune::sweeps {

/// Runs of an earlier call are kept from the beginning. They count as used only when the hunt asks
/// for them, so that it takes the same way as the first time.
class RunLog {
 public:
  /// Keeps a run and returns its index. Runs that are kept apart are numbered by themselves at each
  /// position.
  size_t keep(const HuntRun& run, bool is_apart = false);
  void use(size_t index);
  /// Index of the nth run at a position; empty if there are fewer.
  [[nodiscard]] std::optional<size_t> nth(int position, size_t n, bool is_apart = false) const;
  [[nodiscard]] const CommitRun& operator[](size_t index) const { return runs_[index].run; }
  /// When a run began, in seconds of building and running.
  [[nodiscard]] double time_of(size_t index) const { return times_[index]; }

  [[nodiscard]] int num_used() const { return num_used_; }
  [[nodiscard]] int num_builds() const { return num_builds_; }
  [[nodiscard]] double seconds() const { return run_seconds_ + build_seconds_; }
  /// Cost of a build in units of a run: 5 before anything is known, 0 if runs needed no build.
  [[nodiscard]] double build_cost() const;
  /// The runs at a position that were used and ended well, in the order of time.
  [[nodiscard]] RunList good_runs_at(int position) const;

 protected:
  [[nodiscard]] const std::vector<HuntRun>& runs() const { return runs_; }
  [[nodiscard]] bool is_used(size_t index) const { return is_used_[index]; }
  [[nodiscard]] std::vector<std::reference_wrapper<const HuntRun>> used_runs() const;

 private:
  std::vector<HuntRun> runs_;
  std::vector<double> times_;  ///< by run
  double next_time_ = 0.0;
  std::vector<bool> is_used_;  ///< by run
  std::map<int, std::vector<size_t>> by_position_;
  std::map<int, std::vector<size_t>> apart_by_position_;
  int num_used_ = 0;
  int num_builds_ = 0;
  double run_seconds_ = 0.0;
  double build_seconds_ = 0.0;
};

}  // namespace moetune::sweeps

// The processes of one trial that live and die together, seen as one.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "sweeps/processes/process.h"

namespace moetune::sweeps {

/// Ends when all members have. When one has failed, the others get a while to find out and end by
/// themselves, then they are ended.
class ProcessGroup : public Process {
 public:
  /// `patience`: how long the other members may go on after one has failed.
  ProcessGroup(std::vector<std::unique_ptr<Process>> members, std::chrono::milliseconds patience);

  std::optional<ProcessEnd> wait(std::chrono::milliseconds limit) override;
  /// Ends all members at the same time.
  ProcessEnd end(std::chrono::milliseconds grace) override;
  /// Process id of the first member.
  [[nodiscard]] int64_t pid() const override { return members_.front()->pid(); }

  /// Index of the member whose end is the group's: the first one that failed by itself, else one
  /// that failed because another rank had or that we ended. The group's largest resident set is
  /// that of the largest member.
  [[nodiscard]] size_t cause() const { return cause_; }

 private:
  /// Notes who has ended; true when all have.
  bool look();
  void conclude();

  std::vector<std::unique_ptr<Process>> members_;
  std::chrono::milliseconds patience_;
  std::vector<std::optional<ProcessEnd>> ends_;
  std::vector<size_t> order_;  ///< in which they were seen to have ended
  std::optional<std::chrono::steady_clock::time_point> first_failure_;
  size_t cause_ = 0;
  std::optional<ProcessEnd> end_;
};

}  // namespace moetune::sweeps

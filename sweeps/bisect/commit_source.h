// The source of a hunt's runs: measures commits of a repository, and stores each result before the
// hunt goes on.
#pragma once

#include <string>
#include <vector>

#include "profiler/store/store.h"
#include "sweeps/bisect/commit_runner.h"
#include "sweeps/bisect/vocabulary.h"

namespace moetune::sweeps {

/// One line with all that a measurement depends on besides commit and spec: machine, driver,
/// clocks.
std::string machine_identity();

class CommitSource final : public HuntSource {
 public:
  /// `key_parts`: what all measurements of this hunt share (spec, commands, machine).
  CommitSource(store::Store& store, int64_t hunt_id, CommitRunner& runner,
               std::vector<CommitInfo> commits, std::string key_parts, std::string metric);

  CommitRun measure(int position, const std::string& purpose) override;
  [[nodiscard]] bool is_built(int position) const override;
  void discard_build(int position) override;

  /// Stored measurements that can be used again, in the order of time: those of this hunt, if it
  /// was interrupted, and those of other hunts through the same commits. The latter never count as
  /// fresh runs of a suspect.
  [[nodiscard]] std::vector<HuntRun> earlier() const;

 private:
  [[nodiscard]] std::string key_of(int position) const;
  [[nodiscard]] const std::string& id_of(int position) const;

  store::Store& store_;
  int64_t hunt_id_;
  CommitRunner& runner_;
  std::vector<CommitInfo> commits_;
  std::string key_parts_;
  std::string metric_;
};

}  // namespace moetune::sweeps

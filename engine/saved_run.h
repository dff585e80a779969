// A run of one rank that may be interrupted: between two steps all that training needs is put into
// a folder, and the next process that runs the same spec goes on from there, to the same bits.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "engine/routing_recorder.h"
#include "engine/trainer.h"
#include "engine/trial_recorder.h"

namespace moetune::engine {

/// How far a run has come.
struct RunState {
  int64_t next_step = 0;
  int64_t num_updates = 0;  ///< steps that changed the weights
  int64_t num_skipped = 0;
};

/// The folder holds `state` (a line of JSON, then routing counts, weights, master weights and
/// moments as they lie in memory) and, for the step that it says, a copy of the shard. Peaks of
/// memory are those of the last process.
class SavedRun {
 public:
  /// Reads what the folder holds: nothing, where another spec, build or machine has left it or it
  /// is damaged. Throws base::UsageError for a trial of several ranks, and for one whose losses are
  /// compared with others, as that looks back.
  SavedRun(const spec::TrialSpec& trial, std::string folder);

  /// True when there is a run to go on with.
  [[nodiscard]] bool is_there() const { return saved_.next_step > 0; }
  /// Puts the shard so far at `path`.
  void restore_shard(const std::string& path) const;
  /// Puts weights, moments and counts back and returns how far the run had come: to step 0, and
  /// nothing is put anywhere, where there is none.
  RunState restore(RankTrainer& trainer, RoutingRecorder& routing) const;

  /// Saves so seldom that it takes a twentieth of the time at most. When the disk fails, it says so
  /// on standard error, once, and the run goes on unsaved.
  void save_when_due(const RunState& state, RankTrainer& trainer, RoutingRecorder& routing,
                     TrialRecorder& recorder);
  /// At once. Not once steps are traced, as traces are written at the end.
  void save(const RunState& state, RankTrainer& trainer, RoutingRecorder& routing,
            TrialRecorder& recorder);

 private:
  [[nodiscard]] std::string state_path() const { return folder_ + "/state"; }
  [[nodiscard]] std::string shard_path(int64_t next_step) const;
  void give_up(const std::string& unfinished, const std::string& why);

  const spec::TrialSpec& trial_;
  std::string folder_;
  std::string key_;            ///< of spec, build and machine
  RunState saved_;             ///< as the folder has it
  uint64_t header_bytes_ = 0;  ///< of the file when it was read
  bool is_given_up_ = false;
  std::chrono::steady_clock::time_point last_save_;
  std::chrono::steady_clock::duration cost_{};  ///< of the last time
};

}  // namespace moetune::engine

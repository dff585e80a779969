// What the ranks of a trial report, written to the shard of their process as it comes.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/routing_recorder.h"
#include "engine/trainer.h"
#include "kernels/backend.h"
#include "profiler/device/device_counters.h"
#include "profiler/store/shard.h"

namespace moetune::engine {

/// Writes what the ranks report. add_work and add_trace: by every rank for itself, at any time. The
/// rest: by the first rank of the process, or under mutex().
class TrialRecorder {
 public:
  /// `ranks`: those of this process.
  TrialRecorder(const spec::TrialSpec& trial, const std::string& out_dir,
                const std::vector<int>& ranks,
                store::ShardWriter::File file = store::ShardWriter::File::created);

  /// Of a traced step, before add_step.
  void add_trace(int rank, profiler::StepTrace trace);

  void add_work(const store::ShardWork& work) { shard_.add_work(work); }
  void add_step(int64_t step, const StepResult& result, int64_t wall_step_ns, int64_t launches);

  void add_memory(int rank, const profiler::MemoryLedger& ledger);

  /// What the device holds beside the ledger's allocations, of one rank; the driver's number is of
  /// all ranks on the device.
  void add_device_memory(int rank, const kernels::DeviceMemoryAccount& account,
                         int64_t ledger_bytes, int64_t arena_bytes);

  void add_skipped(int64_t num_steps);

  void add_workspaces(int rank, int64_t bytes);

  void add_graphs(int rank, const Graphs& graphs);

  /// Of a traced step: what the tracing interface says it has cost, over all threads.
  void add_tracing_overhead(int64_t ns) { tracing_overhead_ns_.push_back(ns); }
  /// Of the traced steps of this process: records that they lack.
  void set_lost_records(int rank, int64_t count) {
    shard_.add_metric(rank, "lost_records", static_cast<double>(count));
  }
  /// Of a traced step, after its traces.
  void add_counters(const profiler::CounterSums& counters) { counters_.push_back(counters); }
  void add_text(const std::string& key, const std::string& value) { shard_.add_text(key, value); }

  void finish(const RoutingRecorder* routing);

  /// Empty when no step was timed, and in all but one of several processes.
  [[nodiscard]] std::string summary() const;

  void fail(const std::string& reason);

  /// After a step.
  void copy_shard_to(const std::string& path) { shard_.copy_to(path); }

  std::mutex& mutex() { return mutex_; }

 private:
  /// Of the traced steps, the one to tell first (store::choose_steps).
  [[nodiscard]] std::vector<size_t> kept_steps() const;

  void add_traces();

  void write_counters(const profiler::CounterSums& counters);

  const spec::TrialSpec& trial_;
  bool is_leader_;  ///< rank 0 is here: writes the progress and the summary
  store::ShardWriter shard_;
  std::string progress_path_;
  std::map<int, std::vector<profiler::StepTrace>> traces_;  ///< by rank, then traced step
  nlohmann::json device_memory_ = nlohmann::json::array();
  int64_t driver_used_bytes_ = 0;
  std::vector<profiler::CounterSums> counters_;  ///< by traced step
  std::vector<int64_t> tracing_overhead_ns_;     ///< by traced step
  std::vector<int64_t> step_ns_;
  std::vector<int64_t> traced_step_ns_;
  std::vector<int64_t> wall_ns_;
  std::vector<int64_t> traced_wall_ns_;
  std::mutex mutex_;
};

}  // namespace moetune::engine

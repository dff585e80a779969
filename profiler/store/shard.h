// The file a rank process writes while it runs: one SQLite database per process, committed after
// every step, so that a killed process leaves everything up to its last step. The tuner ingests it
// (store.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "profiler/memory_ledger.h"
#include "profiler/record.h"

namespace moetune::store {

/// One training step of the whole run (losses and norms are global).
struct ShardStep {
  int64_t step = 0;
  bool is_warmup = false;
  bool is_traced = false;
  int64_t step_ns = 0;
  double loss = 0;  ///< mean cross-entropy, nats per token
  double aux_loss = 0;
  double z_loss = 0;
  double grad_norm = 0;  ///< before clipping
  double lr = 0;
};

/// Memory of one rank: the peak, what it was made of, and the capacity.
struct ShardMemory {
  int rank = 0;
  int64_t peak_bytes = 0;
  int64_t capacity_bytes = 0;
  profiler::GroupBytes peak_by_group{};
  std::string peak_allocation;
};

/// One operation of the step's vocabulary, as the engine ran it (per rank and name): joins
/// prediction and measurement.
struct ShardOp {
  int rank = 0;
  std::string name;   ///< op and pass
  int64_t count = 0;  ///< launches in the traced step
  int64_t flops = 0;  ///< sum over launches
  int64_t bytes = 0;
  int64_t duration_ns = 0;
};

/// What is needed to play a step of one rank, measured in virtual time, once more.
struct ShardWork {
  int64_t step = 0;
  int rank = 0;
  /// Durations of its operations and of the host's work, in the order of the rank's program.
  std::vector<int64_t> durations_ns;
  /// One entry for each exchange of row counts between the ranks, in order: rows sent to every
  /// peer, then received from every peer, chunk by chunk, forward, then backward.
  std::vector<int64_t> routed_rows;
  std::vector<int64_t> probe_ns;  ///< times of a fixed piece of work that was done with the step
};

class ShardWriter {
 public:
  enum class File : uint8_t { created, gone_on_with };
  /// Creates the file, which must not exist, or goes on with an existing copy of a shard. Throws
  /// base::Error for a file that is not a shard.
  explicit ShardWriter(const std::string& path, File file = File::created);
  ~ShardWriter();
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  void add_step(const ShardStep& step);
  void add_trace(const profiler::StepTrace& trace);
  void add_memory(const ShardMemory& memory);
  void add_op(const ShardOp& op);
  void add_work(const ShardWork& work);
  /// A named number of a rank (-1: the whole run), such as "tokens_per_s".
  void add_metric(int rank, const std::string& name, double value);
  /// A named text, such as "reason", "routing_profile" (JSON) or "log".
  void add_text(const std::string& key, const std::string& value);
  /// Makes everything added so far durable against a kill of this process.
  void commit();
  /// Copies what has been committed to one file, which must not exist.
  void copy_to(const std::string& path);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moetune::store

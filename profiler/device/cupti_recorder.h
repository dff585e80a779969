// The place of CUPTI, which measures what really ran on a GPU: cupti_recorder.cpp implements it in
// a build that has CUPTI, cupti_stub.cpp stands in elsewhere; the linker chooses.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "profiler/device/device_activity.h"
#include "profiler/device/device_trace.h"

namespace moetune::profiler {

/// How much is recorded; each level costs more than the one before.
enum class DeviceDetail : uint8_t {
  kernels,   ///< kernels, copies, fills: when, but neither why nor for whom
  launches,  ///< and the calls that launched them, with the op they belong to; synchronisations and
             ///< events: what waited for what
  all,       ///< and what tracing itself cost
};

struct DeviceRecorderOptions {
  std::vector<int32_t> ranks = {0};  ///< ranks of this process
  DeviceDetail detail = DeviceDetail::all;
  /// Graph replays as one record each: cheap, but blind inside.
  bool use_whole_graphs = false;
  /// Record every call of the driver and not only those that enqueue work.
  bool use_all_driver_calls = false;
};

/// Records the device activity of the ranks of this process, step by step. begin_step and end_step
/// belong to one thread, while no other has an op open; ops may be opened on any thread. CUPTI sets
/// itself up in the first step after the construction or a pause, which is better not used.
class DeviceRecorder {
 public:
  virtual ~DeviceRecorder() = default;

  /// Why nothing, or not everything, is recorded, in sentences for the user; empty when all is
  /// well. An inactive recorder can be used like any other and returns empty traces.
  [[nodiscard]] virtual std::string note() const = 0;
  [[nodiscard]] virtual bool is_active() const = 0;

  virtual void begin_step(int step) = 0;
  /// Waits for the current device (ranks with devices of their own wait for those before). The step
  /// ends when the device is done; what follows here, reading and converting, is not part of it.
  virtual DeviceStep end_step() = 0;
  /// Stops tracing until the next begin_step; without it the steps between pay for it, too.
  virtual void pause() = 0;

  /// Work that this thread enqueues until pop_op belongs to the op; of nested ops to the innermost.
  /// Nodes of graphs captured meanwhile are labelled with it, also outside of steps.
  virtual OpId push_op(const DeviceOp& op) = 0;
  virtual void pop_op() = 0;
  /// What is known only after a communication op has run.
  virtual void set_communication(OpId op, int64_t bytes, int64_t sequence) = 0;

  /// Device memory that CUPTI sets aside for its records, at least; 0 when inactive.
  [[nodiscard]] virtual int64_t device_buffer_bytes() const = 0;
};

/// Opens an op for its lifetime. Without a recorder it does nothing.
class DeviceOpScope {
 public:
  DeviceOpScope(DeviceRecorder* recorder, const DeviceOp& op) : recorder_(recorder) {
    if (recorder_ != nullptr) id_ = recorder_->push_op(op);
  }
  ~DeviceOpScope() {
    if (recorder_ != nullptr) recorder_->pop_op();
  }
  DeviceOpScope(const DeviceOpScope&) = delete;
  DeviceOpScope& operator=(const DeviceOpScope&) = delete;

  void set_communication(int64_t bytes, int64_t sequence) {
    if (recorder_ != nullptr) recorder_->set_communication(id_, bytes, sequence);
  }

 private:
  DeviceRecorder* recorder_;
  OpId id_ = kNoOp;
};

/// Whether this build can record GPU activity.
bool has_cupti();

/// The recorder of this process; there is one at most, as CUPTI has one subscriber. Never throws
/// for what the machine lacks: without a driver, with another tool attached or without permission
/// the recorder is inactive and its note says why. Null in a build without CUPTI.
std::unique_ptr<DeviceRecorder> make_cupti_recorder(const DeviceRecorderOptions& options);
std::unique_ptr<DeviceRecorder> make_cupti_recorder(int rank);

}  // namespace moetune::profiler

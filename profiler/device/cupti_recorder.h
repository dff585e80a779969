// Records what ran on a GPU, by CUPTI. The linker chooses the implementation: cupti_recorder.cpp in
// a build with CUPTI, else cupti_stub.cpp.
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
  kernels,   ///< times of kernels, copies and fills, without their ops
  launches,  ///< also the calls that launched them with their ops, synchronisations and events
  all,       ///< also the cost of tracing itself
};

struct DeviceRecorderOptions {
  std::vector<int32_t> ranks = {0};  ///< ranks of this process
  DeviceDetail detail = DeviceDetail::all;
  /// Record each graph replay as one record: cheap, but without the kernels inside.
  bool use_whole_graphs = false;
  /// Record every call of the driver and not only those that enqueue work.
  bool use_all_driver_calls = false;
};

/// Records the device activity of the ranks of this process, step by step. Call begin_step and
/// end_step on one thread while no other thread has an op open; ops may be opened on any thread. Do
/// not use the first step after the construction or a pause: CUPTI initializes itself in it.
class DeviceRecorder {
 public:
  virtual ~DeviceRecorder() = default;

  /// Sentences for the user on why nothing, or not everything, is recorded; empty if nothing is
  /// missing. An inactive recorder can be used like any other and returns empty traces.
  [[nodiscard]] virtual std::string note() const = 0;
  [[nodiscard]] virtual bool is_active() const = 0;

  virtual void begin_step(int step) = 0;
  /// Waits for the current device; ranks on other devices have to wait for theirs before the call.
  /// The step ends when the device is done: reading and converting the records is not part of it.
  virtual DeviceStep end_step() = 0;
  /// Stops tracing until the next begin_step. Without this, tracing also slows the steps in
  /// between.
  virtual void pause() = 0;

  /// Opens an op. Work that this thread enqueues until pop_op belongs to it, or to the innermost of
  /// nested ops. Graph nodes captured meanwhile are labelled with it, also outside of steps.
  virtual OpId push_op(const DeviceOp& op) = 0;
  virtual void pop_op() = 0;
  /// Sets values that are known only after a communication op has run.
  virtual void set_communication(OpId op, int64_t bytes, int64_t sequence) = 0;

  /// Device memory that CUPTI reserves for its records, at least; 0 if inactive.
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

/// Makes the recorder of this process. There can be only one, as CUPTI allows one subscriber.
/// Without a driver, without permission or with another tool attached it does not throw: the
/// recorder is inactive and note() says why. Null in a build without CUPTI.
std::unique_ptr<DeviceRecorder> make_cupti_recorder(const DeviceRecorderOptions& options);
std::unique_ptr<DeviceRecorder> make_cupti_recorder(int rank);

}  // namespace moetune::profiler

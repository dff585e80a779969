// The process's one subscription to CUPTI and what its callbacks touch: buffers, open ops, labels
// of graph nodes. Only cupti_session.cpp knows CUPTI's types.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "profiler/device/activity_buffers.h"
#include "profiler/device/device_activity.h"

namespace moetune::profiler {

/// An op that a thread has open.
struct OpenOp {
  OpId id = kNoOp;
  DeviceOp op;
  bool is_pushed = false;  ///< CUPTI has its id as well
};
/// The open ops of this thread, innermost last.
std::vector<OpenOp>& open_ops();

/// The clock of CUPTI's time stamps, in ns: the host's own.
uint64_t cupti_now();

/// Never destroyed: CUPTI may call back until the process is gone.
class CuptiSession {
 public:
  static CuptiSession& instance();

  /// Attaches to CUPTI without enabling anything. Returns why that failed, or an empty text.
  std::string attach();
  void detach();

  ActivityBuffers buffers;
  std::atomic<bool> is_recording{false};  ///< changes while no op is open

  std::mutex mutex;  ///< protects the members below
  OpTable ops;
  OpId next_op = 1;
  GraphLabels labels;
  std::string fatal_note;  ///< why CUPTI gave up; empty while it has not

  /// Sets these values for an op of this step and for the nodes that were captured in it.
  void set_communication(OpId op, int64_t bytes, int64_t sequence);

  // From the callbacks, with node ids.
  void add_node(uint64_t id);
  void clone_node(uint64_t original, uint64_t id);
  void add_edge(uint64_t a, uint64_t b);

 private:
  CuptiSession();
  /// The first call that CUPTI refused, with its reason.
  std::string set_up();

  std::unordered_map<OpId, std::vector<uint64_t>> nodes_of_op_;
  void* subscriber_ = nullptr;
  bool is_attached_ = false;
};

/// "CUPTI_ERROR_... (35); what the user can do about it" of a CUptiResult.
std::string cupti_error_text(int result);

}  // namespace moetune::profiler

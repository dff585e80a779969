// For who wants to watch the fake device as a profiler watches a card: calls of the runtime, work
// as it runs, waits, and nodes of graphs. Without an observer nothing changes.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace moetune::simt {

enum class WorkKind : uint8_t { kernel, library_kernel, copy, fill, host };

/// One operation on the device.
struct Operation {
  WorkKind kind = WorkKind::host;
  const void* kernel = nullptr;  ///< a kernel of this program
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;
  cudaMemcpyKind direction = cudaMemcpyDefault;  ///< of a copy: where its ends really lie
  bool is_to_pinned = false;
  bool is_from_pinned = false;
  bool is_async = true;  ///< of a copy or fill: by the name of the function that was called
  size_t bytes = 0;
  int device = 0;
  unsigned stream = 0;         ///< numbered from 0 in the process
  uint32_t call = 0;           ///< what begin_call said of the call that enqueued it
  const void* node = nullptr;  ///< of the instance of a graph that was launched
};

enum class WaitKind : uint8_t { stream, device, event, stream_for_event };

/// The host, or a stream, was told to wait.
struct WaitReport {
  WaitKind kind{};
  int device = 0;
  unsigned stream = 0;    ///< not of a wait for a device
  uint64_t record = 0;    ///< the cudaEventRecord whose work is waited for; 0: none
  uint64_t start_ns = 0;  ///< by the observer's clock
  cudaError_t status = cudaSuccess;
};

/// Called by any thread; begin_call and end_call without any lock of the device, the others inside
/// of a call. It must not call the runtime.
class Observer {
 public:
  virtual ~Observer() = default;

  /// A function of the runtime, or "enqueue", which stands for a library's launch. Returns its
  /// number.
  virtual uint32_t begin_call(const char* function) = 0;
  virtual void end_call(const char* function, uint32_t call, cudaError_t status) = 0;

  virtual uint64_t now_ns() = 0;
  virtual void ran(const Operation& operation, uint64_t start_ns) = 0;
  virtual void waited(const WaitReport& wait, uint32_t call) = 0;
  /// cudaEventRecord outside of captures; records are numbered from 1.
  virtual void recorded(int device, unsigned stream, uint64_t record, uint32_t call) = 0;

  /// A captured call became a node, in the thread that made the call.
  virtual void created_node(const void* node) = 0;
  virtual void depends(const void* node, const void* dependency) = 0;
  /// The node of an instance; instances are numbered from 1.
  virtual void cloned_node(const void* original, const void* node, uint32_t instance) = 0;
};

/// Null ends it. The observer must outlive all calls that began before.
void set_observer(Observer* observer);

}  // namespace moetune::simt

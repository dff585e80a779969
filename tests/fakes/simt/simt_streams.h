// The inside of the fake's streams, events and graphs. Whatever orders work is one thing here: an
// operation knows the operations it comes after. A stream is the operations that its next one comes
// after, an event is a copy of that, a captured graph is operations that are copied to run.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "tests/fakes/simt/simt.h"
#include "tests/fakes/simt/simt_device.h"
#include "tests/fakes/simt/simt_observer.h"

namespace moetune::simt {

/// Returns what went wrong. Captured work runs many times.
using Work = std::function<Failure()>;

/// One operation on the device.
struct Node {
  std::shared_ptr<const Work> work;
  Operation what;
  std::vector<std::shared_ptr<Node>> after;  ///< emptied when it has run
  std::vector<Node*> successors;             ///< have not run either, and so exist
  size_t num_undone = 0;                     ///< of `after`
  uint64_t wanted_by = 0;                    ///< the wait that runs it
  uint64_t done_at = 0;                      ///< on the device's clock, which counts operations
  unsigned lane = 0;                         ///< the stream
  bool is_done = false;
};
using Nodes = std::vector<std::shared_ptr<Node>>;

/// What is recorded from one cudaStreamBeginCapture to its end.
struct Capture {
  ~Capture();

  CUstream_st* origin = nullptr;
  cudaStreamCaptureMode mode{};
  std::thread::id thread;
  bool is_invalid = false;
  bool is_over = false;
  Nodes nodes;
  std::vector<CUstream_st*> streams;  ///< the origin and those that joined
};

}  // namespace moetune::simt

struct CUstream_st {
  int device = 0;
  unsigned flags = 0;
  int priority = 0;
  unsigned lane = 0;
  moetune::simt::Nodes frontier;                    ///< what the next operation comes after
  std::shared_ptr<moetune::simt::Capture> capture;  ///< that it takes part in
  moetune::simt::Nodes frontier_before;             ///< of the capture

  [[nodiscard]] bool is_blocking() const { return (flags & cudaStreamNonBlocking) == 0; }
};

struct CUevent_st {
  int device = 0;
  bool has_time = true;
  bool is_recorded = false;
  moetune::simt::Nodes after;
  std::shared_ptr<moetune::simt::Capture> capture;  ///< of the last record, if in one
  uint64_t recorded_at = 0;
  uint64_t record = 0;  ///< number of the last record
  unsigned lane = 0;    ///< where that was
};

namespace moetune::simt {

/// All that the runtime knows. Never destroyed: threads may outlive main().
struct World {
  /// Held during every call, and by the thread that waits while it runs the device's work.
  std::recursive_mutex mutex;

  Schedule schedule;
  std::mt19937_64 random;
  uint64_t clock = 1;
  uint64_t last_wait = 0;
  uint64_t last_record = 0;
  int64_t num_pending = 0;
  unsigned num_lanes = 0;
  bool is_executing = false;
  std::unordered_set<CUstream_st*> streams;
  std::unordered_set<CUevent_st*> events;
  std::map<int, std::unique_ptr<CUstream_st>> legacy_streams;  ///< by device
  std::map<int, Nodes> orphans;                                ///< of destroyed streams, by device
  std::vector<std::shared_ptr<Capture>> captures;              ///< not over

  cudaError_t failure = cudaSuccess;  ///< the device's end
  std::string failure_text;
  bool is_failure_known = false;  ///< some call has returned it

  struct Fault {
    cudaError_t error{};
    int num_before = 0;
  };
  std::map<std::string, Fault> faults;
  int device_count = 1;
  int major = 9;
  int minor = 0;
  int64_t capacity_bytes = int64_t{80} << 30;
  int64_t bytes_of_others = 0;
};

World& world();

/// The calling thread's device.
int current_device();

// --- how a function of the runtime begins and ends --------------------------------------------

/// What the function returns before it does anything.
cudaError_t enter(const char* function);
/// Keeps the error for cudaGetLastError.
cudaError_t leave(cudaError_t status);
/// `status`, with what cudaGetErrorString will say of it in this thread.
cudaError_t refuse(cudaError_t status, const std::string& text);

// --- who watches ------------------------------------------------------------------------------

/// Null when nobody does.
Observer* observer();

/// What the observer called the outermost call of this thread.
uint32_t current_call();

/// A call for its lifetime.
class ObservedCall {
 public:
  explicit ObservedCall(const char* function);
  ~ObservedCall();
  ObservedCall(const ObservedCall&) = delete;
  ObservedCall& operator=(const ObservedCall&) = delete;

  cudaError_t keep(cudaError_t status) { return status_ = status; }

 private:
  const char* function_;
  Observer* observer_ = nullptr;
  cudaError_t status_ = cudaSuccess;
};

/// With the stream, and as the current call's doing.
Operation placed(Operation what, const CUstream_st& stream);

/// The frame of each function of the runtime: one at a time, failing when the test wants it to.
template <typename Body>
cudaError_t call(const char* function, const Body& body) {
  ObservedCall observed(function);
  const std::lock_guard lock(world().mutex);
  const cudaError_t status = enter(function);
  return observed.keep(leave(status == cudaSuccess ? body() : status));
}

/// True, counting it, when the test wants this call to fail.
bool is_faulty(const char* function, cudaError_t& error);

// --- work -------------------------------------------------------------------------------------

/// Null when there is no such stream; a null handle is the legacy stream of the current device.
CUstream_st* find_stream(cudaStream_t handle);

/// Whether the stream takes work now; joins it to what it has to wait for by itself.
cudaError_t prepare(CUstream_st& stream);

/// Enqueues. `stream` has been prepared.
cudaError_t submit(CUstream_st& stream, Work work, const Operation& what);

/// Adds operations to what the next one on a frontier comes after.
void join(Nodes& frontier, const Nodes& nodes);

/// Runs `targets` and what they come after, and returns the device's failure.
cudaError_t finish(const Nodes& targets);
cudaError_t finish_device(int device);

/// A bit of finish(); cudaErrorNotReady unless nothing was left to do.
cudaError_t advance(const Nodes& targets);

/// Runs at once, as everything does in order.
cudaError_t run_now(const Work& work, const Operation& what);

/// A new operation, to run after `after` when somebody waits.
std::shared_ptr<Node> defer(const std::shared_ptr<const Work>& work, const Operation& what,
                            const Nodes& after, unsigned lane);

// --- capture ----------------------------------------------------------------------------------

/// For functions that might wait or that a graph cannot contain: refuses in a thread that captures.
cudaError_t refuse_while_capturing(const char* function);
/// For functions that wait for the whole device.
cudaError_t refuse_device_capture(int device);
/// Adds an operation to the graph that the stream is captured into.
cudaError_t capture_node(CUstream_st& stream, Work work, const Operation& what);
cudaError_t invalidate(Capture& capture, cudaError_t status, const std::string& text);
/// Gives the capture's streams back.
void end(const std::shared_ptr<Capture>& capture);

}  // namespace moetune::simt

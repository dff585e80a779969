// What a test says to the fake device: in which order work on its streams runs, how large it is,
// and which calls of the runtime fail.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <string>

namespace moetune::simt {

/// When work on streams runs. A program whose streams and events say everything computes the same
/// under each schedule.
struct Schedule {
  bool is_deferred = false;
  uint64_t seed = 0;
};

/// Everything at once, when it is enqueued; a kernel's failure is returned by its launch and
/// forgotten. How the device starts.
constexpr Schedule in_order() { return {}; }

/// Work runs only when somebody waits, then only what that wait needs, and in an order that streams
/// and events leave open drawn from `seed`. A kernel's failure ends the device: every later call
/// returns it, until the next set_schedule() or reset().
constexpr Schedule adversarial(uint64_t seed) { return {true, seed}; }

/// Runs what is outstanding first; throws when that fails, so that no failure is lost, and while a
/// stream is captured.
void set_schedule(const Schedule& schedule);

/// Memory of each device; what is in use stays.
void set_memory_capacity(int64_t bytes);
/// What programs beside this one hold of each device.
void set_memory_of_others(int64_t bytes);
int64_t used_memory_bytes(int device = 0);

void set_compute_capability(int major, int minor);

/// With 0, calls return cudaErrorNoDevice.
void set_device_count(int count);

/// From now on, or after `num_before` more calls, this function of the runtime (or of the driver,
/// as CUDA_ERROR_UNKNOWN) returns `error` and does nothing. cudaSuccess ends that.
void set_failure(const std::string& function, cudaError_t error, int num_before = 0);

/// Everything above as at the start of the program, like a new process; memory, streams and graphs
/// remain. Throws like set_schedule().
void reset();

/// Puts work of the host on a stream, in its order, like a library's kernel; it must not call the
/// runtime. An exception is a kernel's failure. A captured stream keeps it for each replay.
cudaError_t enqueue(cudaStream_t stream, const std::function<void()>& work);

/// Operations that have been enqueued and have not run.
int64_t num_pending();

}  // namespace moetune::simt

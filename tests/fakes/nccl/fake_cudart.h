// Streams of the fake CUDA runtime, for the fake NCCL that puts work on them.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

struct CUstream_st;

namespace moetune::fakes {

/// Runs `work` on the stream after what is on it already; null is the calling thread's own default
/// stream. Dropped while the stream is being captured.
void enqueue(CUstream_st* stream, std::function<void()> work);

/// From now on a call of the runtime fails, as it does after a bad kernel.
void inject_cuda(const std::string& call, int error);
void reset_cuda();
/// What the driver says of every device's memory from now on.
void set_device_memory(size_t free_bytes, size_t total_bytes);

}  // namespace moetune::fakes

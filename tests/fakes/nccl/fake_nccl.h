// What tests can ask of the fake NCCL: faults to inject, and what it has seen. Ranks are threads of
// one process; streams are threads (fake_cudart.cpp) or those of the fake device
// (tests/fakes/simt).
#pragma once

#include <memory>
#include <string>
#include <vector>

struct CUstream_st;

namespace moetune::fakes {

constexpr int kNcclUnhandledCudaError = 1;
constexpr int kNcclSystemError = 2;
constexpr int kNcclRemoteError = 6;

/// A call that is to fail, once: the one number `skip` (from 0) of this name by this rank.
struct NcclFault {
  std::string call;  ///< such as "ncclAllReduce"
  int rank = 0;      ///< in the world
  int skip = 0;
  int result = 0;  ///< an ncclResult_t
};

/// One split as a rank has made it.
struct NcclSplitSeen {
  int rank = 0;
  int color = 0;
  std::string name;
  bool shares = false;  ///< resources with its parent
  int size = 0;         ///< of the new communicator; 0: none
};

/// Forgets everything, faults too. Only between tests, with no communicator alive.
void reset_nccl();
void inject(const NcclFault& fault);
/// What ncclGetLastError says from now on.
void set_last_error(const std::string& text);
/// From now on asking for the state of the rank's communicator `name` gives `result`.
void set_async_error(const std::string& name, int rank, int result);
/// How often each operation of this rank is reported as "in progress" before it is done.
void set_slow_calls(int num_polls);

/// Wrong uses, such as a call to an aborted communicator; empty is right.
std::vector<std::string> nccl_misuse();
std::vector<NcclSplitSeen> splits_seen();
int num_live_communicators();
int num_aborted();

// What follows is there only where streams are threads.

/// The GPU of the calling thread, as the fake bus sees it; by default each thread has its own.
void use_device(int device);

int num_live_allocations();
/// Memory that the fake runtime takes for the device's.
std::shared_ptr<char> device_memory(size_t bytes);
/// A stream of its own; it ends with what is on it done.
std::shared_ptr<CUstream_st> make_stream();

/// A stream that begins (ends) to be captured: what is launched on it does not run.
void set_capturing(void* stream, bool is_capturing);

}  // namespace moetune::fakes

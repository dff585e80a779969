// The inside of the fake NCCL: communicators and what they carry, whatever a stream is. How
// operations get onto streams stands in fake_nccl_threads.cpp, for streams that are threads, and in
// fake_nccl_simt.cpp, for those of the fake device; the linker chooses.
#pragma once

#include <nccl.h>

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/fakes/nccl/fake_nccl.h"
#include "tests/fakes/nccl/fake_nccl_math.h"

namespace moetune::fakes {

struct P2p {
  bool is_send = false;
  char* data = nullptr;
  size_t bytes = 0;
  int peer = 0;
};

struct SplitCall {
  int color = 0;
  int key = 0;
  std::string name;
};

/// What is on its way between the members of a communicator.
struct Traffic;
std::shared_ptr<Traffic> make_traffic();

/// What the members of a communicator have in common.
struct Core {
  explicit Core(int size_in) : size(size_in) {}
  int size;
  int num_joined = 0;
  int num_finalized = 0;
  std::shared_ptr<Traffic> traffic = make_traffic();
  std::map<int, std::map<int, SplitCall>> splits;                 ///< by number and rank
  std::map<std::pair<int, int>, std::shared_ptr<Core>> children;  ///< by number and color
};

/// The order of operations over shared resources.
struct Chain {
  int num_launched = 0;
  int num_done = 0;
  bool is_broken = false;
};

/// Does what can be done of a launch without waiting for other ranks' calls; false: not all yet.
using Launch = std::function<bool()>;

}  // namespace moetune::fakes

struct ncclComm {
  std::shared_ptr<moetune::fakes::Core> core;
  std::shared_ptr<moetune::fakes::Chain> chain;
  std::string name;
  int rank = 0;
  int world_rank = 0;
  bool shares_with_children = false;
  bool is_gone = false;  ///< aborted or destroyed
  bool is_aborted = false;
  bool is_finalized = false;
  int num_running = 0;  ///< operations that an abort has to wait for
  int num_collectives = 0;
  int num_splits = 0;
  int num_polls = 0;
  ncclComm_t* split_result = nullptr;
  std::vector<moetune::fakes::Launch> launches;  ///< when the polls are through
};

namespace moetune::fakes {

struct World {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::unique_ptr<ncclComm>> comms;
  std::map<std::string, std::shared_ptr<Core>> cores;
  std::vector<NcclFault> faults;
  std::map<std::pair<std::string, int>, int> num_calls;
  std::map<std::pair<std::string, int>, int> async_errors;
  std::vector<std::string> misuse;
  std::vector<NcclSplitSeen> splits;
  int num_ids = 0;
  int num_aborted = 0;
  int slow_polls = 1;
  std::string last_error = "as the test wants it";
};
World& world();

// All that follows with the world's mutex held.

/// Notes a wrong use.
ncclResult_t complain(const std::string& text);

/// The launch of a communicator's collective number `number`, or of a group of messages. Called
/// again while it is not done, by whatever thread asks for the communicator's state.
Launch launch_of(ncclComm& comm, cudaStream_t stream, const Collective& collective, int number);
Launch launch_of(ncclComm& comm, cudaStream_t stream, const std::vector<P2p>& parts);

}  // namespace moetune::fakes

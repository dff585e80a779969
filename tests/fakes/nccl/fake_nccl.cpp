// NCCL for tests: ranks are threads of one process, so that every path of nccl_comm.cpp, the bad
// ones most of all, is run without a card. Keeps NCCL's rules and notes who breaks them: nothing
// may be called while the last call is in progress, and groups are of one communicator and stream.
#include "tests/fakes/nccl/fake_nccl.h"

#include <nccl.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>

#include "tests/fakes/nccl/fake_nccl_inside.h"

namespace moetune::fakes {

World& world() {
  static World instance;
  return instance;
}

// With the mutex held, as all that follows.
ncclResult_t complain(const std::string& text) {
  world().misuse.push_back(text);
  return ncclInvalidUsage;
}

namespace {

struct Group {
  int depth = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<P2p> parts;
};
thread_local Group t_group;

ncclResult_t take_fault(const std::string& call, int rank) {
  const int number = world().num_calls[{call, rank}]++;
  for (const NcclFault& fault : world().faults) {
    if (fault.call == call && fault.rank == rank && fault.skip == number) {
      return static_cast<ncclResult_t>(fault.result);
    }
  }
  return ncclSuccess;
}

bool is_joined(const ncclComm& comm) { return comm.core->num_joined == comm.core->size; }

bool is_busy(const ncclComm& comm) {
  return !is_joined(comm) || comm.num_polls > 0 || !comm.launches.empty();
}

// Whether `call` may be made now.
ncclResult_t admit(ncclComm_t comm, const std::string& call) {
  if (comm == nullptr) return complain(call + " without a communicator");
  if (comm->is_gone) return complain(call + " on " + comm->name + ", which is gone");
  const ncclResult_t fault = take_fault(call, comm->world_rank);
  if (fault != ncclSuccess) return fault;
  if (is_busy(*comm)) return complain(call + " on " + comm->name + ", which is busy");
  if (comm->is_finalized) return complain(call + " on " + comm->name + ", which is finalized");
  return ncclSuccess;
}

// Starts as soon as the call is no longer in progress.
template <typename Operation>
void launch(ncclComm_t comm, Operation operation) {
  comm->num_polls = world().slow_polls;
  comm->launches.push_back([operation, next = Launch()]() mutable {
    if (!next) next = operation();
    return next();
  });
}

ncclResult_t launch_collective(const std::string& call, const Collective& collective,
                               ncclComm_t comm, cudaStream_t stream) {
  const std::scoped_lock lock(world().mutex);
  const ncclResult_t result = admit(comm, call);
  if (result != ncclSuccess) return result;
  if (t_group.depth > 0) return complain(call + " in a group");
  const int number = comm->num_collectives++;
  launch(comm, [=] { return launch_of(*comm, stream, collective, number); });
  return ncclInProgress;
}

ncclResult_t launch_p2p(const std::string& call, const P2p& part, ncclComm_t comm,
                        cudaStream_t stream) {
  const std::scoped_lock lock(world().mutex);
  const ncclResult_t result = admit(comm, call);
  if (result != ncclSuccess) return result;
  if (t_group.depth > 0) {
    if (t_group.comm != nullptr && (t_group.comm != comm || t_group.stream != stream)) {
      return complain("a group over two communicators or streams");
    }
    t_group.comm = comm;
    t_group.stream = stream;
    t_group.parts.push_back(part);
    return ncclSuccess;
  }
  launch(comm, [=] { return launch_of(*comm, stream, {part}); });
  return ncclInProgress;
}

ncclComm_t make_comm(std::shared_ptr<Core> core, int rank, int world_rank,
                     const ncclConfig_t& config) {
  auto comm = std::make_unique<ncclComm>();
  comm->core = std::move(core);
  ++comm->core->num_joined;
  comm->chain = std::make_shared<Chain>();
  comm->name = config.commName == nullptr ? "?" : config.commName;
  comm->rank = rank;
  comm->world_rank = world_rank;
  comm->shares_with_children = config.splitShare == 1;
  if (config.blocking != 0) complain(comm->name + " is blocking");
  world().comms.push_back(std::move(comm));
  world().changed.notify_all();
  return world().comms.back().get();
}

// Ends the split of `parent` once all its members have made it; false before that.
bool finish_split(ncclComm_t parent, bool child_shares) {
  const int number = parent->num_splits - 1;
  const std::map<int, SplitCall>& calls = parent->core->splits[number];
  if (static_cast<int>(calls.size()) < parent->core->size) return false;
  const SplitCall& own = calls.at(parent->rank);
  NcclSplitSeen seen{parent->world_rank, own.color, own.name, parent->shares_with_children, 0};
  *parent->split_result = nullptr;
  if (own.color != NCCL_SPLIT_NOCOLOR) {
    std::vector<std::pair<int, int>> members;
    for (const auto& [rank, call] : calls) {
      if (call.color == own.color) members.emplace_back(call.key, rank);
    }
    std::sort(members.begin(), members.end());
    seen.size = static_cast<int>(members.size());
    std::shared_ptr<Core>& core = parent->core->children[{number, own.color}];
    if (!core) core = std::make_shared<Core>(seen.size);
    const auto place = std::find(members.begin(), members.end(), std::pair(own.key, parent->rank));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.splitShare = child_shares ? 1 : 0;
    config.commName = own.name.c_str();
    ncclComm_t child =
        make_comm(core, static_cast<int>(place - members.begin()), parent->world_rank, config);
    core->num_joined = core->size;  // the split is over only when all have joined
    if (parent->shares_with_children) child->chain = parent->chain;
    *parent->split_result = child;
  }
  parent->split_result = nullptr;
  world().splits.push_back(seen);
  return true;
}

}  // namespace

void reset_nccl() {
  const std::scoped_lock lock(world().mutex);
  World& w = world();
  w.comms.clear();
  w.cores.clear();
  w.faults.clear();
  w.num_calls.clear();
  w.async_errors.clear();
  w.misuse.clear();
  w.splits.clear();
  w.num_aborted = 0;
  w.slow_polls = 1;
  w.last_error = World().last_error;
}

void set_last_error(const std::string& text) {
  const std::scoped_lock lock(world().mutex);
  world().last_error = text;
}

void inject(const NcclFault& fault) {
  const std::scoped_lock lock(world().mutex);
  world().faults.push_back(fault);
}

void set_async_error(const std::string& name, int rank, int result) {
  const std::scoped_lock lock(world().mutex);
  world().async_errors[{name, rank}] = result;
}

void set_slow_calls(int num_polls) {
  const std::scoped_lock lock(world().mutex);
  world().slow_polls = num_polls;
}

std::vector<std::string> nccl_misuse() {
  const std::scoped_lock lock(world().mutex);
  return world().misuse;
}

std::vector<NcclSplitSeen> splits_seen() {
  const std::scoped_lock lock(world().mutex);
  return world().splits;
}

int num_live_communicators() {
  const std::scoped_lock lock(world().mutex);
  return static_cast<int>(std::count_if(world().comms.begin(), world().comms.end(),
                                        [](const auto& comm) { return !comm->is_gone; }));
}

int num_aborted() {
  const std::scoped_lock lock(world().mutex);
  return world().num_aborted;
}

}  // namespace moetune::fakes

using namespace moetune::fakes;

extern "C" {

const char* ncclGetErrorString(ncclResult_t result) {
  if (result == ncclRemoteError) return "remote process exited or there was a network error";
  return result == ncclSystemError ? "unhandled system error" : "some NCCL error";
}
const char* ncclGetLastError(ncclComm_t /*comm*/) { return world().last_error.c_str(); }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::scoped_lock lock(world().mutex);
  const ncclResult_t fault = take_fault("ncclGetUniqueId", 0);
  if (fault != ncclSuccess) return fault;
  std::memset(id->internal, 0, sizeof(id->internal));
  const int number = world().num_ids++;
  std::memcpy(id->internal + 64, &number, sizeof(number));
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  const std::scoped_lock lock(world().mutex);
  const ncclResult_t fault = take_fault("ncclCommInitRankConfig", rank);
  if (fault != ncclSuccess) return fault;
  std::shared_ptr<Core>& core = world().cores[{id.internal, sizeof(id.internal)}];
  if (!core) core = std::make_shared<Core>(size);
  *comm = make_comm(core, rank, rank, *config);
  return ncclInProgress;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* child,
                           ncclConfig_t* config) {
  const std::scoped_lock lock(world().mutex);
  const ncclResult_t result = admit(comm, "ncclCommSplit");
  if (result != ncclSuccess) return result;
  *child = nullptr;
  comm->split_result = child;
  comm->core->splits[comm->num_splits++][comm->rank] = {color, key, config->commName};
  const bool child_shares = config->splitShare == 1;
  comm->num_polls = world().slow_polls;
  comm->launches.push_back([comm, child_shares] { return finish_split(comm, child_shares); });
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  const std::scoped_lock lock(world().mutex);
  if (comm == nullptr) return complain("a question about no communicator");
  if (comm->is_gone) return complain("a question about " + comm->name + ", which is gone");
  const auto error = world().async_errors.find({comm->name, comm->world_rank});
  *state = ncclInProgress;
  if (error != world().async_errors.end()) {
    *state = static_cast<ncclResult_t>(error->second);
    return ncclSuccess;
  }
  if (!is_joined(*comm)) return ncclSuccess;
  if (comm->num_polls > 0 && --comm->num_polls > 0) return ncclSuccess;
  std::erase_if(comm->launches, [](Launch& launch) { return launch(); });
  if (!comm->launches.empty()) return ncclSuccess;
  if (comm->is_finalized && comm->core->num_finalized < comm->core->size) return ncclSuccess;
  *state = ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const std::scoped_lock lock(world().mutex);
  const ncclResult_t result = admit(comm, "ncclCommFinalize");
  if (result != ncclSuccess) return result;
  comm->is_finalized = true;
  ++comm->core->num_finalized;
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const std::scoped_lock lock(world().mutex);
  if (comm == nullptr || comm->is_gone) return complain("destroying what is gone");
  if (!comm->is_finalized) complain("destroying " + comm->name + " before its end");
  comm->is_gone = true;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  std::unique_lock lock(world().mutex);
  if (comm == nullptr || comm->is_gone) return complain("aborting what is gone");
  comm->is_gone = true;
  comm->is_aborted = true;
  comm->launches.clear();
  ++world().num_aborted;
  world().changed.notify_all();
  world().changed.wait(lock, [comm] { return comm->num_running == 0; });
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++t_group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  const std::scoped_lock lock(world().mutex);
  if (t_group.depth == 0) return complain("the end of no group");
  if (--t_group.depth > 0) return ncclSuccess;
  const Group group = std::exchange(t_group, {});
  if (group.comm == nullptr) return ncclSuccess;
  const ncclResult_t fault = take_fault("ncclGroupEnd", group.comm->world_rank);
  if (fault != ncclSuccess) return fault;
  launch(group.comm, [group] { return launch_of(*group.comm, group.stream, group.parts); });
  return ncclInProgress;
}

ncclResult_t ncclAllGather(const void* send, void* recv, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return launch_collective(
      "ncclAllGather",
      {"all_gather", static_cast<const char*>(send), static_cast<char*>(recv), count, type}, comm,
      stream);
}
ncclResult_t ncclReduceScatter(const void* send, void* recv, size_t count, ncclDataType_t type,
                               ncclRedOp_t /*op*/, ncclComm_t comm, cudaStream_t stream) {
  return launch_collective(
      "ncclReduceScatter",
      {"reduce_scatter", static_cast<const char*>(send), static_cast<char*>(recv), count, type},
      comm, stream);
}
ncclResult_t ncclAllReduce(const void* send, void* recv, size_t count, ncclDataType_t type,
                           ncclRedOp_t /*op*/, ncclComm_t comm, cudaStream_t stream) {
  return launch_collective(
      "ncclAllReduce",
      {"all_reduce", static_cast<const char*>(send), static_cast<char*>(recv), count, type}, comm,
      stream);
}
ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  char* place = static_cast<char*>(const_cast<void*>(data));
  return launch_p2p("ncclSend", {true, place, count * size_of_type(type), peer}, comm, stream);
}
ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return launch_p2p("ncclRecv", {false, static_cast<char*>(data), count * size_of_type(type), peer},
                    comm, stream);
}

}  // extern "C"

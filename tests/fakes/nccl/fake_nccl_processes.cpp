// NCCL for tests whose ranks are processes, each with a fake device (tests/fakes/simt) of its own:
// messages are files in a folder that the unique id names. As on a card, an operation waits for its
// partners on its stream, so traces show who was late. Which uses of NCCL are wrong is tested with
// ranks as threads (fake_nccl.cpp).
#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "tests/fakes/nccl/fake_nccl_math.h"
#include "tests/fakes/simt/simt_device.h"

struct ncclComm {
  std::string place;  ///< what the names of its files begin with
  int rank = 0;
  int size = 1;
  int num_collectives = 0;
  int num_splits = 0;
  std::map<int, int> num_sent;  ///< by peer
  std::map<int, int> num_received;
  /// What is on the device then ends, as NCCL's kernels do.
  std::shared_ptr<std::atomic<bool>> is_aborted = std::make_shared<std::atomic<bool>>(false);
};

namespace moetune::fakes {
namespace {

namespace fs = std::filesystem;

using Flag = std::shared_ptr<std::atomic<bool>>;

struct P2p {
  Flag is_aborted;
  std::string path;
  bool is_send = false;
  char* data = nullptr;
  size_t bytes = 0;
};

struct Group {
  int depth = 0;
  cudaStream_t stream = nullptr;
  std::vector<P2p> parts;
};
thread_local Group t_group;

// All processes see the same GPUs, and each takes its own.
[[maybe_unused]] const bool g_has_devices = [] {
  simt::set_device_count(8);
  return true;
}();

void put(const std::string& path, const char* data, size_t bytes) {
  {
    std::ofstream file(path + ".part", std::ios::binary);
    file.write(data, static_cast<std::streamsize>(bytes));
    if (!file) throw std::runtime_error("fake NCCL: cannot write " + path);
  }
  fs::rename(path + ".part", path);
}

/// What a partner has put there, once it has.
std::string take(const std::string& path, const Flag& is_aborted) {
  using std::chrono::steady_clock;
  const auto deadline = steady_clock::now() + std::chrono::seconds(60);
  while (!fs::exists(path)) {
    if (*is_aborted) throw std::runtime_error("fake NCCL: aborted");
    if (steady_clock::now() > deadline) throw std::runtime_error("fake NCCL: nobody sends " + path);
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void check_length(const std::string& sent, size_t expected) {
  if (sent.size() == expected) return;
  throw std::runtime_error("fake NCCL: " + std::to_string(sent.size()) + " bytes sent where " +
                           std::to_string(expected) + " are expected");
}

ncclResult_t as_result(cudaError_t status) {
  return status == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t launch_collective(const Collective& collective, ncclComm_t comm, cudaStream_t stream) {
  if (t_group.depth > 0) return ncclInvalidUsage;
  const std::string place = comm->place + ".c" + std::to_string(comm->num_collectives++) + ".";
  const auto size = static_cast<size_t>(comm->size);
  return as_result(simt::enqueue(stream, [=, rank = comm->rank, is_aborted = comm->is_aborted] {
    const size_t bytes = send_bytes(collective, size);
    put(place + std::to_string(rank), collective.send, bytes);
    std::vector<std::string> parts;
    for (size_t i = 0; i < size; ++i) {
      parts.push_back(take(place + std::to_string(i), is_aborted));
      check_length(parts.back(), bytes);
    }
    std::vector<const char*> sent;
    for (const std::string& part : parts) sent.push_back(part.data());
    deliver(collective, combine(collective, sent), rank);
  }));
}

// All that is sent, then what is received: nobody waits for who waits for him.
ncclResult_t launch_parts(const std::vector<P2p>& parts, cudaStream_t stream) {
  return as_result(simt::enqueue(stream, [parts] {
    for (const P2p& part : parts) {
      if (part.is_send) put(part.path, part.data, part.bytes);
    }
    for (const P2p& part : parts) {
      if (part.is_send) continue;
      const std::string bytes = take(part.path, part.is_aborted);
      check_length(bytes, part.bytes);
      std::memcpy(part.data, bytes.data(), part.bytes);
    }
  }));
}

ncclResult_t launch_p2p(P2p part, int from, int to, int number, ncclComm_t comm,
                        cudaStream_t stream) {
  part.is_aborted = comm->is_aborted;
  part.path = comm->place + ".p" + std::to_string(from) + "-" + std::to_string(to) + "." +
              std::to_string(number);
  if (t_group.depth == 0) return launch_parts({part}, stream);
  t_group.stream = stream;
  t_group.parts.push_back(std::move(part));
  return ncclSuccess;
}

}  // namespace
}  // namespace moetune::fakes

using namespace moetune::fakes;

extern "C" {

const char* ncclGetErrorString(ncclResult_t /*result*/) { return "some NCCL error"; }
const char* ncclGetLastError(ncclComm_t /*comm*/) { return ""; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::string folder = (fs::temp_directory_path() / "fake-nccl-XXXXXX").string();
  if (folder.size() >= sizeof(id->internal) || mkdtemp(folder.data()) == nullptr) {
    return ncclSystemError;
  }
  std::memset(id->internal, 0, sizeof(id->internal));
  std::memcpy(id->internal, folder.data(), folder.size());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* /*config*/) {
  *comm = new ncclComm{std::string(id.internal) + "/world", rank, size};
  return ncclSuccess;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* child,
                           ncclConfig_t* /*config*/) {
  const std::string place = comm->place + ".s" + std::to_string(comm->num_splits++) + ".";
  const std::string own = std::to_string(color) + " " + std::to_string(key);
  put(place + std::to_string(comm->rank), own.data(), own.size());
  std::vector<std::pair<int, int>> members;  // key and rank
  for (int rank = 0; rank < comm->size; ++rank) {
    const std::string call = take(place + std::to_string(rank), comm->is_aborted);
    const size_t space = call.find(' ');
    if (std::stoi(call.substr(0, space)) == color) {
      members.emplace_back(std::stoi(call.substr(space + 1)), rank);
    }
  }
  *child = nullptr;
  if (color == NCCL_SPLIT_NOCOLOR) return ncclSuccess;
  std::sort(members.begin(), members.end());
  const auto at = std::find(members.begin(), members.end(), std::pair(key, comm->rank));
  *child = new ncclComm{place + "color" + std::to_string(color),
                        static_cast<int>(at - members.begin()), static_cast<int>(members.size())};
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t /*comm*/, ncclResult_t* state) {
  *state = ncclSuccess;
  return ncclSuccess;
}

// The folder stays until whoever set TMPDIR removes it: others may still read there.
ncclResult_t ncclCommFinalize(ncclComm_t /*comm*/) { return ncclSuccess; }
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  *comm->is_aborted = true;
  return ncclCommDestroy(comm);
}

ncclResult_t ncclGroupStart() {
  ++t_group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (t_group.depth == 0) return ncclInvalidUsage;
  if (--t_group.depth > 0) return ncclSuccess;
  const Group group = std::exchange(t_group, {});
  return group.parts.empty() ? ncclSuccess : launch_parts(group.parts, group.stream);
}

ncclResult_t ncclAllGather(const void* send, void* recv, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return launch_collective(
      {"all_gather", static_cast<const char*>(send), static_cast<char*>(recv), count, type}, comm,
      stream);
}
ncclResult_t ncclReduceScatter(const void* send, void* recv, size_t count, ncclDataType_t type,
                               ncclRedOp_t /*op*/, ncclComm_t comm, cudaStream_t stream) {
  return launch_collective(
      {"reduce_scatter", static_cast<const char*>(send), static_cast<char*>(recv), count, type},
      comm, stream);
}
ncclResult_t ncclAllReduce(const void* send, void* recv, size_t count, ncclDataType_t type,
                           ncclRedOp_t /*op*/, ncclComm_t comm, cudaStream_t stream) {
  return launch_collective(
      {"all_reduce", static_cast<const char*>(send), static_cast<char*>(recv), count, type}, comm,
      stream);
}
ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  char* place = static_cast<char*>(const_cast<void*>(data));
  return launch_p2p({nullptr, "", true, place, count * size_of_type(type)}, comm->rank, peer,
                    comm->num_sent[peer]++, comm, stream);
}
ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return launch_p2p({nullptr, "", false, static_cast<char*>(data), count * size_of_type(type)},
                    peer, comm->rank, comm->num_received[peer]++, comm, stream);
}

}  // extern "C"

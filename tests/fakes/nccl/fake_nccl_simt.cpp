// Operations of the fake NCCL on the streams of the fake device. What a member sends is copied when
// its stream comes to the operation, and what it receives is written when the streams of all
// members have come so far: each says so by an event, and by nothing else. A launch is in progress
// until all partners have made theirs, where NCCL would let it wait on the device; only sending
// waits for nobody.
#include <algorithm>
#include <cstring>
#include <deque>
#include <stdexcept>

#include "tests/fakes/nccl/fake_nccl_inside.h"
#include "tests/fakes/simt/simt_device.h"

namespace moetune::fakes {
namespace {

void must(cudaError_t status) {
  if (status != cudaSuccess) complain(std::string("CUDA: ") + cudaGetErrorString(status));
}

/// The end of what is on a stream so far.
class Point {
 public:
  explicit Point(cudaStream_t stream) {
    must(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
    must(cudaEventRecord(event_, stream));
  }
  ~Point() { (void)cudaEventDestroy(event_); }
  Point(const Point&) = delete;
  Point& operator=(const Point&) = delete;

  /// What comes later on `stream` comes after this.
  void precede(cudaStream_t stream) const { must(cudaStreamWaitEvent(stream, event_, 0)); }

 private:
  cudaEvent_t event_ = nullptr;
};

/// What was sent, once the stream has come there.
struct Sent {
  std::shared_ptr<std::string> bytes = std::make_shared<std::string>();
  std::shared_ptr<Point> point;
};

// Fails the device, as a kernel does.
void check_length(const std::string& sent, size_t expected) {
  if (sent.size() == expected) return;
  throw std::runtime_error("fake NCCL: " + std::to_string(sent.size()) + " bytes sent where " +
                           std::to_string(expected) + " are expected");
}

// NCCL's kernels read and write memory of their device.
void check_place(const ncclComm& comm, const void* data, size_t bytes) {
  int device = 0;
  cudaPointerAttributes attributes{};
  (void)cudaGetDevice(&device);
  (void)cudaPointerGetAttributes(&attributes, data);
  const bool is_own = attributes.type == cudaMemoryTypeDevice && attributes.device == device;
  if (bytes > 0 && !is_own) complain("a buffer for " + comm.name + " is not on its device");
}

Sent send(const ncclComm& comm, cudaStream_t stream, const char* data, size_t bytes) {
  check_place(comm, data, bytes);
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  must(cudaStreamIsCapturing(stream, &capture));
  if (capture != cudaStreamCaptureStatusNone) complain("an operation in a graph is not faked");
  Sent sent;
  must(simt::enqueue(stream, [to = sent.bytes, data, bytes] { to->assign(data, bytes); }));
  sent.point = std::make_shared<Point>(stream);
  return sent;
}

/// One collective of all members.
struct Exchange {
  Collective first;
  std::map<int, Sent> sent;  ///< by rank
};

}  // namespace

struct Traffic {
  std::map<int, std::shared_ptr<Exchange>> exchanges;
  std::map<std::pair<int, int>, std::deque<Sent>> mail;
};

std::shared_ptr<Traffic> make_traffic() { return std::make_shared<Traffic>(); }

Launch launch_of(ncclComm& comm, cudaStream_t stream, const Collective& collective, int number) {
  const auto size = static_cast<size_t>(comm.core->size);
  std::map<int, std::shared_ptr<Exchange>>& all = comm.core->traffic->exchanges;
  std::shared_ptr<Exchange>& exchange = all[number];
  if (!exchange) exchange = std::make_shared<Exchange>(Exchange{collective, {}});
  if (!exchange->first.matches(collective)) {
    complain("members of " + comm.name + " do different things");
  }
  exchange->sent[comm.rank] = send(comm, stream, collective.send, send_bytes(collective, size));
  check_place(comm, collective.recv, collective.count);
  return [&comm, &all, size, stream, collective, number, exchange = exchange] {
    if (exchange->sent.size() < size) return false;
    all.erase(number);  // those that are still to go on hold it
    std::vector<std::shared_ptr<std::string>> parts;
    for (const auto& [rank, sent] : exchange->sent) {
      if (rank != comm.rank) sent.point->precede(stream);
      parts.push_back(sent.bytes);
    }
    must(simt::enqueue(stream, [collective, parts, rank = comm.rank] {
      std::vector<const char*> sent;
      for (const auto& part : parts) {
        check_length(*part, send_bytes(collective, parts.size()));
        sent.push_back(part->data());
      }
      deliver(collective, combine(collective, sent), rank);
    }));
    return true;
  };
}

Launch launch_of(ncclComm& comm, cudaStream_t stream, const std::vector<P2p>& parts) {
  auto& mail = comm.core->traffic->mail;
  std::vector<P2p> expected;
  for (const P2p& part : parts) {
    if (part.is_send) {
      mail[{comm.rank, part.peer}].push_back(send(comm, stream, part.data, part.bytes));
    } else {
      check_place(comm, part.data, part.bytes);
      expected.push_back(part);
    }
  }
  return [&comm, &mail, stream, expected]() mutable {
    std::map<int, bool> is_waiting;  // messages of one peer come in order
    std::erase_if(expected, [&](const P2p& part) {
      std::deque<Sent>& box = mail[{part.peer, comm.rank}];
      if (is_waiting[part.peer] || box.empty()) {
        is_waiting[part.peer] = true;
        return false;
      }
      box.front().point->precede(stream);
      must(simt::enqueue(stream, [part, bytes = box.front().bytes] {
        check_length(*bytes, part.bytes);
        std::memcpy(part.data, bytes->data(), part.bytes);
      }));
      box.pop_front();
      return true;
    });
    return expected.empty();
  };
}

}  // namespace moetune::fakes

// Operations of the fake NCCL on streams that are threads (fake_cudart.cpp). An operation holds its
// stream until its partners have come, as on a device: messages wait for their receivers, and
// operations of one communicator (and of those it shares resources with) run in the order of their
// launch.
#include <algorithm>
#include <cstring>
#include <deque>

#include "tests/fakes/nccl/fake_cudart.h"
#include "tests/fakes/nccl/fake_nccl_inside.h"

namespace moetune::fakes {
namespace {

/// One collective of all members.
struct Exchange {
  std::map<int, Collective> entries;  ///< by rank
  bool is_done = false;
};

struct Message {
  const char* data = nullptr;
  size_t bytes = 0;
  bool is_taken = false;
};

}  // namespace

struct Traffic {
  std::map<int, Exchange> exchanges;
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Message>>> mail;
};

std::shared_ptr<Traffic> make_traffic() { return std::make_shared<Traffic>(); }

namespace {

// The whole operation for all members, by the last that has come.
void carry_out(const std::map<int, Collective>& entries) {
  std::vector<const char*> sent;
  for (const auto& [rank, entry] : entries) sent.push_back(entry.send);
  const std::string result = combine(entries.begin()->second, sent);
  for (const auto& [rank, entry] : entries) deliver(entry, result, rank);
}

void run_collective(ncclComm& comm, int number, const Collective& own,
                    std::unique_lock<std::mutex>& lock) {
  Exchange& exchange = comm.core->traffic->exchanges[number];
  if (!exchange.entries.empty() && !exchange.entries.begin()->second.matches(own)) {
    complain("members of " + comm.name + " do different things");
  }
  exchange.entries[comm.rank] = own;
  if (static_cast<int>(exchange.entries.size()) == comm.core->size) {
    carry_out(exchange.entries);
    exchange.is_done = true;
    world().changed.notify_all();
  }
  world().changed.wait(lock, [&] { return exchange.is_done || comm.is_aborted; });
  if (!exchange.is_done) exchange.entries.erase(comm.rank);
}

void run_p2p(ncclComm& comm, const std::vector<P2p>& parts, std::unique_lock<std::mutex>& lock) {
  std::vector<std::shared_ptr<Message>> sent;
  for (const P2p& part : parts) {
    if (!part.is_send) continue;
    sent.push_back(std::make_shared<Message>(Message{part.data, part.bytes, false}));
    comm.core->traffic->mail[{comm.rank, part.peer}].push_back(sent.back());
  }
  world().changed.notify_all();
  std::deque<P2p> expected;
  std::copy_if(parts.begin(), parts.end(), std::back_inserter(expected),
               [](const P2p& part) { return !part.is_send; });
  const auto receive = [&] {
    std::map<int, bool> is_waiting;  // messages of one peer come in order
    std::erase_if(expected, [&](const P2p& part) {
      auto& box = comm.core->traffic->mail[{part.peer, comm.rank}];
      if (is_waiting[part.peer] || box.empty()) {
        is_waiting[part.peer] = true;
        return false;
      }
      if (box.front()->bytes != part.bytes) {
        complain("a message over " + comm.name + " has another length than its receiver expects");
      } else {
        std::memcpy(part.data, box.front()->data, part.bytes);
      }
      box.front()->is_taken = true;
      box.pop_front();
      world().changed.notify_all();
      return true;
    });
    return expected.empty() && std::all_of(sent.begin(), sent.end(),
                                           [](const auto& message) { return message->is_taken; });
  };
  world().changed.wait(lock, [&] { return comm.is_aborted || receive(); });
  for (auto& [pair, box] : comm.core->traffic->mail) {
    std::erase_if(box, [&](const auto& message) {
      return std::find(sent.begin(), sent.end(), message) != sent.end();
    });
  }
}

// Puts `body` on the stream.
template <typename Body>
Launch launch(ncclComm* comm, cudaStream_t stream, Body body) {
  return [comm, stream, body] {
    const int place = comm->chain->num_launched++;
    enqueue(stream, [comm, place, body] {
      std::unique_lock lock(world().mutex);
      Chain& chain = *comm->chain;
      ++comm->num_running;
      world().changed.wait(
          lock, [&] { return chain.num_done == place || chain.is_broken || comm->is_aborted; });
      if (!comm->is_aborted) body(lock);
      if (comm->is_aborted) chain.is_broken = true;
      ++chain.num_done;
      --comm->num_running;
      world().changed.notify_all();
    });
    return true;
  };
}

}  // namespace

Launch launch_of(ncclComm& comm, cudaStream_t stream, const Collective& collective, int number) {
  return launch(&comm, stream, [&comm, number, collective](std::unique_lock<std::mutex>& held) {
    run_collective(comm, number, collective, held);
  });
}

Launch launch_of(ncclComm& comm, cudaStream_t stream, const std::vector<P2p>& parts) {
  return launch(&comm, stream,
                [&comm, parts](std::unique_lock<std::mutex>& held) { run_p2p(comm, parts, held); });
}

}  // namespace moetune::fakes

#include "tests/fakes/recording/recording_world.h"

#include <algorithm>
#include <numeric>

#include "kernels/base/error.h"

namespace moetune::recording {
namespace {

using engine::AllToAllLane;
using engine::CommStart;
using engine::CommTiming;
using engine::MessageSlots;

constexpr std::string_view kSent[] = {"send 0", "send 1", "send 2"};
constexpr std::string_view kReceived[] = {"recv 0", "recv 1", "recv 2"};
constexpr std::string_view kSentTo[] = {"to 0", "to 1", "to 2", "to 3",
                                        "to 4", "to 5", "to 6", "to 7"};
constexpr std::string_view kReceivedFrom[] = {"from 0", "from 1", "from 2", "from 3",
                                              "from 4", "from 5", "from 6", "from 7"};

template <size_t N>
std::string_view name_at(const std::string_view (&names)[N], size_t index) {
  MOETUNE_CHECK(index < N, "no name for number {}", index);
  return names[index];
}

class RecordingCommunicator final : public engine::Communicator {
 public:
  RecordingCommunicator(plan::Group group, size_t num_ranks, size_t index,
                        RecordingBackend& backend)
      : group_(group), num_ranks_(num_ranks), index_(index), backend_(backend) {}

  [[nodiscard]] int size() const override { return static_cast<int>(num_ranks_); }
  [[nodiscard]] int rank() const override { return static_cast<int>(index_); }

  CommTiming all_gather(const void* send, void* recv, int64_t bytes_per_rank,
                        const CommStart& start) override {
    write("all_gather", {bytes_at("send", send, bytes_per_rank),
                         bytes_at("recv", recv, bytes_per_rank * size())});
    return {start.ready_ns};
  }

  CommTiming reduce_scatter(const void* send, void* recv, int64_t numel_per_rank, base::DType dtype,
                            const CommStart& start) override {
    write("reduce_scatter", {flat("send", send, dtype, numel_per_rank * size()),
                             flat("recv", recv, dtype, numel_per_rank)});
    return {start.ready_ns};
  }

  CommTiming all_reduce(void* data, int64_t numel, base::DType dtype,
                        const CommStart& start) override {
    write("all_reduce", {flat("data", data, dtype, numel)});
    return {start.ready_ns};
  }

  CommTiming all_to_all(std::span<const AllToAllLane> lanes, std::span<const int64_t> send_rows,
                        std::span<const int64_t> recv_rows, const CommStart& start) override {
    Entry& entry = write("all_to_all", {});
    const auto total = [](std::span<const int64_t> rows) {
      return std::accumulate(rows.begin(), rows.end(), int64_t{0});
    };
    const auto add = [&](std::string_view role, const void* data, int64_t rows, int64_t row_bytes) {
      if (data == nullptr) return;
      entry.operands.push_back({role, data, std::nullopt, rows, row_bytes, row_bytes});
    };
    for (size_t i = 0; i < lanes.size(); ++i) {
      add(lane_role(true, i), lanes[i].send, total(send_rows), lanes[i].row_bytes);
      add(lane_role(false, i), lanes[i].recv, total(recv_rows), lanes[i].row_bytes);
    }
    for (size_t i = 0; i < send_rows.size(); ++i) {
      entry.numbers.push_back({peer_name(true, i), send_rows[i]});
      entry.numbers.push_back({peer_name(false, i), recv_rows[i]});
    }
    return {start.ready_ns};
  }

  CommTiming send(int peer, int64_t tag, const void* data, int64_t bytes, const MessageSlots& slots,
                  const CommStart& start) override {
    Entry& entry = write("send", {bytes_at("data", data, bytes),
                                  bytes_at("slots", slots.memory, slots.count * bytes)});
    entry.numbers.insert(entry.numbers.end(),
                         {{"peer", peer}, {"tag", tag}, {"slots", slots.count}});
    return {start.ready_ns};
  }

  CommTiming recv(int peer, int64_t tag, void* data, int64_t bytes,
                  const CommStart& start) override {
    Entry& entry = write("recv", {bytes_at("data", data, bytes)});
    entry.numbers.insert(entry.numbers.end(), {{"peer", peer}, {"tag", tag}});
    return {start.ready_ns};
  }

 private:
  Entry& write(std::string_view function, std::initializer_list<Operand> operands) {
    Entry& entry = backend_.tape().emplace_back();
    entry.name = function;
    entry.stream = backend_.stream();
    for (const Operand& each : operands) {
      if (each.data != nullptr) entry.operands.push_back(each);
    }
    entry.numbers = {{"group", static_cast<int64_t>(group_)}};
    return entry;
  }

  plan::Group group_;
  size_t num_ranks_;
  size_t index_;
  RecordingBackend& backend_;
};

}  // namespace

std::unique_ptr<engine::Communicator> RecordingWorld::communicator(plan::Group group, int rank,
                                                                   kernels::Backend& backend) {
  auto* recording = dynamic_cast<RecordingBackend*>(&backend);
  MOETUNE_CHECK(recording != nullptr, "a recording world needs a recording backend");
  const std::vector<int> ranks = layout_.group_ranks(group, rank);
  const auto place = std::find(ranks.begin(), ranks.end(), rank);
  if (place == ranks.end()) return nullptr;
  return std::make_unique<RecordingCommunicator>(
      group, ranks.size(), static_cast<size_t>(place - ranks.begin()), *recording);
}

std::string_view lane_role(bool is_sent, size_t lane) {
  return is_sent ? name_at(kSent, lane) : name_at(kReceived, lane);
}

std::string_view peer_name(bool is_sent, size_t peer) {
  return is_sent ? name_at(kSentTo, peer) : name_at(kReceivedFrom, peer);
}

}  // namespace moetune::recording

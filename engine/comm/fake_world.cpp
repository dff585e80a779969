#include "engine/comm/fake_world.h"

#include <algorithm>

#include "engine/model/philox.h"
#include "engine/spec/precision.h"
#include "kernels/base/error.h"
#include "profiler/timeline.h"

namespace moetune::engine {
namespace {

constexpr int64_t kPatternElements = int64_t{1} << 16;

/// Normally distributed numbers as elements of `dtype`.
std::vector<char> make_pattern(base::DType dtype) {
  std::vector<char> pattern(static_cast<size_t>(kPatternElements * base::size_of(dtype)));
  const uint64_t key = philox_key(1, "fake messages");
  for (int64_t i = 0; i < kPatternElements; ++i) {
    const double value = philox_normal(key, static_cast<uint64_t>(i));
    const auto narrow = static_cast<float>(value);
    if (dtype == base::DType::f64) {
      reinterpret_cast<double*>(pattern.data())[i] = value;
    } else if (dtype == base::DType::f32) {
      reinterpret_cast<float*>(pattern.data())[i] = narrow;
    } else {
      reinterpret_cast<uint16_t*>(pattern.data())[i] = base::to_bf16(narrow);
    }
  }
  return pattern;
}

class FakeCommunicator final : public Communicator {
 public:
  FakeCommunicator(const spec::TrialSpec& trial, std::vector<int> ranks, size_t index,
                   kernels::Backend& backend, int64_t& message_bytes)
      : trial_(trial),
        ranks_(std::move(ranks)),
        index_(index),
        backend_(backend),
        message_bytes_(message_bytes) {}
  ~FakeCommunicator() override {
    if (pattern_ != nullptr) backend_.free(pattern_);
  }
  FakeCommunicator(const FakeCommunicator&) = delete;
  FakeCommunicator& operator=(const FakeCommunicator&) = delete;

  [[nodiscard]] int size() const override { return static_cast<int>(ranks_.size()); }
  [[nodiscard]] int rank() const override { return static_cast<int>(index_); }

  CommTiming all_gather(const void* send, void* recv, int64_t bytes_per_rank,
                        const CommStart& start) override {
    char* to = static_cast<char*>(recv);
    if (send != to + static_cast<int64_t>(index_) * bytes_per_rank) {
      for (int i = 0; i < size(); ++i) {
        backend_.copy_on_device(to + i * bytes_per_rank, send, bytes_per_rank);
      }
    }
    return finish(spec::CollectiveKind::all_gather, bytes_per_rank * size(),
                  bytes_per_rank * (size() - 1), start);
  }

  CommTiming reduce_scatter(const void* send, void* recv, int64_t numel_per_rank, base::DType dtype,
                            const CommStart& start) override {
    const int64_t bytes = numel_per_rank * base::size_of(dtype);
    backend_.copy_on_device(
        recv, static_cast<const char*>(send) + static_cast<int64_t>(index_) * bytes, bytes);
    return finish(spec::CollectiveKind::reduce_scatter, bytes * size(), bytes * (size() - 1),
                  start);
  }

  CommTiming all_reduce(void* data, int64_t numel, base::DType dtype,
                        const CommStart& start) override {
    const int64_t bytes = numel * base::size_of(dtype);
    if (bytes <= FakeWorld::kMostSummedBytes) multiply(data, numel, dtype);
    return finish(spec::CollectiveKind::all_reduce, bytes, 2 * bytes * (size() - 1) / size(),
                  start);
  }

  CommTiming all_to_all(std::span<const AllToAllLane> lanes, std::span<const int64_t> send_rows,
                        std::span<const int64_t> recv_rows, const CommStart& start) override {
    int64_t row_bytes = 0;
    int64_t num_sent = 0;
    for (const int64_t rows : send_rows) num_sent += rows;
    int64_t num_received = 0;
    for (const int64_t rows : recv_rows) num_received += rows;
    for (const AllToAllLane& lane : lanes) {
      row_bytes += lane.row_bytes;
      repeat(lane.recv, num_received * lane.row_bytes, lane.send, num_sent * lane.row_bytes);
    }
    // The others send as this rank does: to the same experts, or around a ring to the one behind
    // them.
    const auto n = ranks_.size();
    const bool is_ring = num_sent > 0 && num_sent == send_rows[(index_ + 1) % n] &&
                         num_sent == recv_rows[(index_ + n - 1) % n];
    int64_t sent = 0;
    for (size_t j = 0; j < n; ++j) sent += j == index_ ? 0 : send_rows[j] * row_bytes;
    return finish_after(
        [&] {
          std::vector<int64_t> matrix(n * n);
          for (size_t i = 0; i < n * n; ++i) {
            const size_t to = i % n;
            const size_t place = is_ring ? (index_ + to + n - i / n) % n : to;
            matrix[i] = send_rows[place] * row_bytes;
          }
          return spec::all_to_all_ns(trial_.hardware, ranks_, matrix, start.links);
        },
        sent, start);
  }

  CommTiming send(int peer, int64_t /*tag*/, const void* /*data*/, int64_t bytes,
                  const MessageSlots& /*slots*/, const CommStart& start) override {
    return finish_after(
        [&] {
          return spec::p2p_ns(trial_.hardware, ranks_[index_], global(peer), bytes, start.links);
        },
        bytes, start);
  }

  CommTiming recv(int peer, int64_t /*tag*/, void* data, int64_t bytes,
                  const CommStart& start) override {
    if (pattern_ == nullptr) {
      const std::vector<char> pattern =
          make_pattern(spec::precision_of(trial_.dtype, trial_.knobs).element);
      pattern_bytes_ = static_cast<int64_t>(pattern.size());
      pattern_ = backend_.allocate(pattern_bytes_);
      message_bytes_ += pattern_bytes_;
      backend_.copy_to_device(pattern_, pattern.data(), pattern_bytes_);
    }
    repeat(data, bytes, pattern_, pattern_bytes_);
    return finish_after(
        [&] {
          return spec::p2p_ns(trial_.hardware, global(peer), ranks_[index_], bytes, start.links);
        },
        0, start);
  }

 private:
  [[nodiscard]] int global(int index) const { return ranks_[static_cast<size_t>(index)]; }

  // Fills `to` with `from` over and over; zeros where there is nothing to repeat.
  void repeat(void* to, int64_t bytes, const void* from, int64_t period) {
    if (period == 0) return backend_.fill_zero(to, bytes);
    for (int64_t at = 0; at < bytes; at += period) {
      backend_.copy_on_device(static_cast<char*>(to) + at, from, std::min(period, bytes - at));
    }
  }

  // data *= size(), by one sum for each factor that fits.
  void multiply(void* data, int64_t numel, base::DType dtype) {
    auto left = ranks_.size();
    while (left > 1) {
      size_t factor = std::min(left, kernels::SumArgs::kMaxSources);
      while (left % factor != 0) --factor;
      // A prime number of ranks beyond what one sum takes: left as it is.
      if (factor == 1) return;
      kernels::SumArgs args;
      args.sources.assign(factor, data);
      args.target = data;
      args.numel = numel;
      args.dtype = dtype;
      backend_.sum(args);
      left /= factor;
    }
  }

  CommTiming finish(spec::CollectiveKind kind, int64_t payload_bytes, int64_t sent_bytes,
                    const CommStart& start) {
    return finish_after(
        [&] {
          return spec::collective_ns(trial_.hardware, kind, ranks_, payload_bytes, start.links);
        },
        sent_bytes, start);
  }

  // `transfer`: how long it takes on the emulated cluster; asked for in virtual time only, since
  // the host pays for the answer.
  template <typename Transfer>
  CommTiming finish_after(Transfer&& transfer, int64_t sent_bytes, const CommStart& start) {
    CommTiming timing;
    timing.sequence = num_calls_++;
    timing.sent_bytes = sent_bytes;
    if (trial_.clock == spec::ClockMode::wall) {
      timing.end_ns = profiler::wall_ns();
    } else {
      timing.transfer_ns = transfer();
      timing.end_ns = start.ready_ns + timing.transfer_ns;
    }
    return timing;
  }

  const spec::TrialSpec& trial_;
  std::vector<int> ranks_;
  size_t index_;
  kernels::Backend& backend_;
  int64_t& message_bytes_;  ///< of the world
  int64_t num_calls_ = 0;
  void* pattern_ = nullptr;
  int64_t pattern_bytes_ = 0;
};

}  // namespace

FakeWorld::FakeWorld(const spec::TrialSpec& trial, int rank)
    : trial_(trial), layout_(plan::layout_of(trial.knobs)) {
  if (rank >= 0 && rank < layout_.world_size()) return;
  throw base::UsageError(
      fmt::format("fake_rank {} is not in the layout, which has {} ranks counted from 0", rank,
                  layout_.world_size()));
}

FakeWorld::~FakeWorld() = default;

std::unique_ptr<Communicator> FakeWorld::communicator(plan::Group group, int rank,
                                                      kernels::Backend& backend) {
  std::vector<int> ranks = layout_.group_ranks(group, rank);
  const auto place = std::find(ranks.begin(), ranks.end(), rank);
  if (place == ranks.end()) return nullptr;
  const auto index = static_cast<size_t>(place - ranks.begin());
  return std::make_unique<FakeCommunicator>(trial_, std::move(ranks), index, backend,
                                            message_bytes_);
}

}  // namespace moetune::engine

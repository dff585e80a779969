// Collectives and messages of the engine as calls of NCCL. The only file that knows nccl.h.
//
// All communicators are non-blocking: NCCL's calls return at once and tell later how they went, so
// every wait is ours and has an end. NCCL forbids calls to a communicator that another thread
// aborts; one mutex is held for each (short) call, and an abort takes it, too.
#include "engine/comm/nccl_comm.h"

#include <cuda_runtime.h>
#include <fmt/format.h>
#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "engine/comm/cuda_transit.h"
#include "engine/comm/nccl_plan.h"
#include "engine/comm/wire.h"
#include "kernels/base/error.h"
#include "kernels/cuda/runtime_check.h"
#include "profiler/timeline.h"

namespace moetune::engine {
namespace {

using std::chrono::milliseconds;
using wire::Deadline;

constexpr milliseconds kWatchPeriod{5};
constexpr milliseconds kAskPeriod{100};
constexpr milliseconds kSpinPeriod{1};

/// How long something may take, and when that is over.
struct TimeLimit {
  explicit TimeLimit(milliseconds time_in) : time(time_in), deadline(time_in) {}
  [[nodiscard]] double seconds() const { return std::chrono::duration<double>(time).count(); }

  milliseconds time;
  Deadline deadline;
};

bool is_accepted(ncclResult_t result) { return result == ncclSuccess || result == ncclInProgress; }

ncclDataType_t type_of(base::DType dtype) {
  switch (dtype) {
    case base::DType::f32:
      return ncclFloat32;
    case base::DType::f64:
      return ncclFloat64;
    case base::DType::i32:
      return ncclInt32;
    case base::DType::bf16:
      return ncclBfloat16;
  }
  throw base::Error("no NCCL type for this dtype");
}

// NCCL has no code for it: only the text of its last warning tells, in one of these forms.
bool is_out_of_memory(const std::string& text) {
  constexpr std::array kForms = {"Failed to CUDA malloc", "Failed to CUDA calloc",
                                 "Failed to CUDA host alloc", "Cuda failure 2 ", "out of memory"};
  return std::any_of(kForms.begin(), kForms.end(),
                     [&](const char* form) { return text.find(form) != std::string::npos; });
}

/// The communicators of a rank, what is on its way over them, and how they failed if they did.
/// Shared with the watching thread, which outlives the world when an abort hangs.
class NcclState {
 public:
  NcclState(const plan::Layout& layout, Rendezvous& rendezvous, NcclOptions options)
      : layout_(layout), rendezvous_(&rendezvous), options_(std::move(options)) {
    check_cuda(cudaGetDevice(&device_), "the current device");
  }

  [[nodiscard]] int rank() const { return rendezvous_->rank(); }
  [[nodiscard]] const plan::Layout& layout() const { return layout_; }
  [[nodiscard]] const NcclOptions& options() const { return options_; }
  [[nodiscard]] cudaStream_t stream() const {
    return options_.stream ? static_cast<cudaStream_t>(options_.stream()) : nullptr;
  }

  void connect(const ncclUniqueId& id) {
    const TimeLimit limit(options_.join_timeout);
    std::string what = fmt::format("joining {} ranks", layout_.world_size());
    ncclConfig_t config = config_of(NcclRole::world);
    call(NcclRole::world, what, [&](ncclComm_t& comm) {
      return ncclCommInitRankConfig(&comm, layout_.world_size(), id, rank(), &config);
    });
    settle(NcclRole::world, what, limit);
    for (const NcclSplit& split : nccl_splits(layout_, rank())) {
      what = fmt::format("the split into {} groups", name_of(split.role));
      config = config_of(split.role);
      // NCCL fills this in from a thread of its own.
      ncclComm_t& child = children_[static_cast<size_t>(split.role)];
      call(split.parent, what, [&](ncclComm_t comm) {
        return ncclCommSplit(comm, split.color.value_or(NCCL_SPLIT_NOCOLOR), rank(), &child,
                             &config);
      });
      settle(split.parent, what, limit);
      call(split.role, what, [&](ncclComm_t& comm) {
        comm = child;
        return ncclSuccess;
      });
    }
  }

  /// One NCCL call, or one group of them, on a communicator.
  template <typename Body>
  void call(NcclRole role, const std::string& what, Body&& body) {
    std::unique_lock lock = lock_nccl();
    const ncclResult_t result = body(comms_[static_cast<size_t>(role)]);
    if (is_accepted(result)) return;
    fail_nccl(role, what, result);
    lock.unlock();
    check();
  }

  /// Waits until the last call on a communicator has been carried out (not: has moved its data).
  void settle(NcclRole role, const std::string& what, const TimeLimit& limit) {
    std::chrono::microseconds pause{1};
    // The shortest sleep takes longer than most launches: this time is the host's, each operation.
    const Deadline patience(kSpinPeriod);
    ncclResult_t state = ncclInProgress;
    while (state != ncclSuccess) {
      call(role, what, [&](ncclComm_t comm) {
        const ncclResult_t result = ncclCommGetAsyncError(comm, &state);
        return is_accepted(result) ? state : result;
      });
      if (state == ncclSuccess) break;
      if (limit.deadline.is_past()) fail_late(role, what, limit);
      if (!patience.is_past()) {
        std::this_thread::yield();
        continue;
      }
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, std::chrono::microseconds(1000));
    }
  }

  /// From now on the watching thread looks after what is on the stream so far. Null when the stream
  /// is being captured: then nothing runs yet.
  std::shared_ptr<Mark> watch(NcclRole role, const std::string& what, cudaStream_t stream) {
    if (is_capturing(stream)) return nullptr;
    auto mark = std::make_shared<Mark>(stream);
    {
      const std::scoped_lock lock(mutex_);
      watched_.push_back({role, what, mark, TimeLimit(options_.op_timeout)});
    }
    changed_.notify_all();
    return mark;
  }

  void wait(const std::shared_ptr<Mark>& mark) {
    std::chrono::microseconds pause{1};
    while (mark->query() == Mark::State::running) {
      check();
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, std::chrono::microseconds(200));
    }
    check();
    if (mark->query() == Mark::State::failed) std::rethrow_exception(mark->failure("CUDA"));
  }

  /// Throws the failure, if there is one, once nothing runs any more that could touch the caller's
  /// buffers. Not with nccl_mutex_ held, which the abort needs.
  void check() {
    std::unique_lock lock(mutex_);
    if (!failure_) return;
    changed_.wait_for(lock, options_.farewell_timeout, [this] { return has_ended_; });
    std::rethrow_exception(failure_);
  }

  /// The first failure stays; the watching thread aborts everything.
  void fail(std::exception_ptr failure) {
    {
      const std::scoped_lock lock(mutex_);
      if (!failure_) failure_ = std::move(failure);
    }
    changed_.notify_all();
  }

  [[nodiscard]] bool has_failed() {
    const std::scoped_lock lock(mutex_);
    return failure_ != nullptr;
  }

  /// Hands everything back, the children before their parents; all ranks do the same.
  void say_farewell() {
    const TimeLimit limit(options_.farewell_timeout);
    const std::string what = "ending";
    for (size_t i = comms_.size(); i-- > 0;) {
      const auto role = static_cast<NcclRole>(i);
      if (comms_[i] == nullptr) continue;
      call(role, what, [](ncclComm_t comm) { return ncclCommFinalize(comm); });
      settle(role, what, limit);
      call(role, what,
           [](ncclComm_t& comm) { return ncclCommDestroy(std::exchange(comm, nullptr)); });
    }
  }

  /// The watching thread.
  void run_watch() {
    (void)cudaSetDevice(device_);
    Deadline next_question(kAskPeriod);
    while (true) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, watched_.empty() ? kAskPeriod : kWatchPeriod,
                          [this] { return is_ending_ || failure_; });
        if (failure_ || is_ending_) break;
      }
      look_at_marks();
      if (!next_question.is_past()) continue;
      // In this order: a peer that fails says why, NCCL only that it is gone.
      ask_peers();
      ask_nccl();
      next_question = Deadline(kAskPeriod);
    }
    if (has_failed()) abort_all();
    const std::scoped_lock lock(mutex_);
    watched_.clear();
    has_ended_ = true;
    changed_.notify_all();
  }

  /// Ends the watching thread. False when it hangs.
  bool end_watch() {
    std::unique_lock lock(mutex_);
    is_ending_ = true;
    changed_.notify_all();
    return changed_.wait_for(lock, options_.farewell_timeout, [this] { return has_ended_; });
  }

 private:
  struct Watched {
    NcclRole role;
    std::string what;
    std::shared_ptr<Mark> mark;
    TimeLimit limit;
  };

  static ncclConfig_t config_of(NcclRole role) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.splitShare = has_sharing_child(role) ? 1 : 0;
    config.commName = name_of(role);
    return config;
  }

  // Throws instead of waiting for an abort that is under way, or calling what it has freed.
  std::unique_lock<std::mutex> lock_nccl() {
    std::unique_lock lock(nccl_mutex_, std::defer_lock);
    while (!lock.try_lock()) {
      check();
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    if (has_failed()) {
      lock.unlock();
      check();
    }
    return lock;
  }

  [[nodiscard]] std::string text_of(NcclRole role, const std::string& what) const {
    return fmt::format("NCCL group {} on rank {}: {}", name_of(role), rank(), what);
  }

  // With nccl_mutex_ held.
  void fail_nccl(NcclRole role, const std::string& what, ncclResult_t result) {
    const char* detail = ncclGetLastError(comms_[static_cast<size_t>(role)]);
    std::string text = fmt::format("{}: {}", text_of(role, what), ncclGetErrorString(result));
    if (detail != nullptr && *detail != '\0') text += fmt::format(" ({})", detail);
    if (result == ncclRemoteError) {
      fail(std::make_exception_ptr(base::PeerFailed(text)));
    } else if (is_out_of_memory(text)) {
      fail(kernels::cuda::memory_failure(device_, text));
    } else {
      fail(std::make_exception_ptr(base::Error(text)));
    }
  }

  void fail_late(NcclRole role, const std::string& what, const TimeLimit& limit) {
    fail(std::make_exception_ptr(base::Error(
        fmt::format("{}: not done within {} s; another rank hangs, is gone or does something else",
                    text_of(role, what), limit.seconds()))));
  }

  void look_at_marks() {
    std::deque<Watched> watched;
    {
      const std::scoped_lock lock(mutex_);
      std::erase_if(watched_,
                    [](const Watched& w) { return w.mark->query() == Mark::State::done; });
      watched = watched_;
    }
    for (const Watched& w : watched) {
      const Mark::State state = w.mark->query();
      if (state == Mark::State::failed) {
        fail(w.mark->failure(text_of(w.role, w.what) + ": CUDA"));
      } else if (state == Mark::State::running && w.limit.deadline.is_past()) {
        fail_late(w.role, w.what, w.limit);
      }
    }
  }

  void ask_nccl() {
    const std::unique_lock lock(nccl_mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return;  // the owner gets to know by itself
    for (size_t i = 0; i < comms_.size(); ++i) {
      if (comms_[i] == nullptr) continue;
      ncclResult_t state = ncclSuccess;
      const ncclResult_t result = ncclCommGetAsyncError(comms_[i], &state);
      if (!is_accepted(result)) state = result;
      const auto role = static_cast<NcclRole>(i);
      if (!is_accepted(state)) fail_nccl(role, oldest_on_its_way(role), state);
    }
  }

  void ask_peers() {
    try {
      rendezvous_->check();
    } catch (const std::exception&) {
      fail(std::current_exception());
    }
  }

  std::string oldest_on_its_way(NcclRole role) {
    const std::scoped_lock lock(mutex_);
    for (const Watched& watched : watched_) {
      if (watched.role == role) return watched.what;
    }
    return "nothing on its way";
  }

  void abort_all() {
    const std::scoped_lock lock(nccl_mutex_);
    for (size_t i = comms_.size(); i-- > 0;) {
      if (comms_[i] != nullptr) (void)ncclCommAbort(std::exchange(comms_[i], nullptr));
    }
  }

  plan::Layout layout_;
  Rendezvous* rendezvous_;
  NcclOptions options_;
  int device_ = 0;

  std::mutex nccl_mutex_;  ///< held for every call to NCCL
  std::array<ncclComm_t, static_cast<size_t>(NcclRole::count)> comms_{};
  std::array<ncclComm_t, static_cast<size_t>(NcclRole::count)> children_{};

  std::mutex mutex_;  ///< guards what follows; taken after nccl_mutex_, never before
  std::condition_variable changed_;
  std::deque<Watched> watched_;
  std::exception_ptr failure_;
  bool is_ending_ = false;
  bool has_ended_ = false;
};

struct Shared {
  explicit Shared(const plan::Layout& layout, Rendezvous& rendezvous, NcclOptions options)
      : state(layout, rendezvous, std::move(options)) {}
  NcclState state;
  Transit transit{state.options().allocate, state.options().release,
                  [this](const std::shared_ptr<Mark>& mark) { state.wait(mark); }};
};

/// One rank's view of a group.
class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::shared_ptr<Shared> shared, plan::Group group, NcclRole role)
      : state_(shared->state), shared_(std::move(shared)), role_(role) {
    const std::vector<int> ranks = state_.layout().group_ranks(group, state_.rank());
    size_ = static_cast<int>(ranks.size());
    while (ranks[static_cast<size_t>(rank_)] != state_.rank()) ++rank_;
  }

  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] int rank() const override { return rank_; }

  CommTiming all_gather(const void* send, void* recv, int64_t bytes_per_rank,
                        const CommStart& /*start*/) override {
    HostValues values(shared_->transit, state_.stream());
    const void* from = values.in(send, bytes_per_rank);
    void* to = values.out(recv, bytes_per_rank * size_);
    return run("all_gather", values, bytes_per_rank * (size_ - 1), [&](ncclComm_t comm) {
      return ncclAllGather(from, to, static_cast<size_t>(bytes_per_rank), ncclInt8, comm,
                           state_.stream());
    });
  }

  CommTiming reduce_scatter(const void* send, void* recv, int64_t numel_per_rank, base::DType dtype,
                            const CommStart& /*start*/) override {
    HostValues values(shared_->transit, state_.stream());
    const int64_t bytes = numel_per_rank * base::size_of(dtype);
    const void* from = values.in(send, bytes * size_);
    void* to = values.out(recv, bytes);
    return run("reduce_scatter", values, bytes * (size_ - 1), [&](ncclComm_t comm) {
      return ncclReduceScatter(from, to, static_cast<size_t>(numel_per_rank), type_of(dtype),
                               ncclSum, comm, state_.stream());
    });
  }

  CommTiming all_reduce(void* data, int64_t numel, base::DType dtype,
                        const CommStart& /*start*/) override {
    HostValues values(shared_->transit, state_.stream());
    const int64_t bytes = numel * base::size_of(dtype);
    void* place = values.in_out(data, bytes);
    return run("all_reduce", values, 2 * bytes * (size_ - 1) / size_, [&](ncclComm_t comm) {
      return ncclAllReduce(place, place, static_cast<size_t>(numel), type_of(dtype), ncclSum, comm,
                           state_.stream());
    });
  }

  CommTiming all_to_all(std::span<const AllToAllLane> lanes, std::span<const int64_t> send_rows,
                        std::span<const int64_t> recv_rows, const CommStart& /*start*/) override {
    const auto n = static_cast<size_t>(size_);
    MOETUNE_CHECK(send_rows.size() == n && recv_rows.size() == n,
                  "an all-to-all of {} ranks with counts for {} and {}", n, send_rows.size(),
                  recv_rows.size());
    const auto own = static_cast<size_t>(rank_);
    MOETUNE_CHECK(send_rows[own] == recv_rows[own], "rank {} sends itself {} rows and expects {}",
                  rank_, send_rows[own], recv_rows[own]);
    const auto sum = [](std::span<const int64_t> rows) {
      int64_t total = 0;
      for (const int64_t count : rows) {
        MOETUNE_CHECK(count >= 0, "{} rows in an all-to-all", count);
        total += count;
      }
      return total;
    };
    const int64_t num_sent = sum(send_rows);
    const int64_t num_received = sum(recv_rows);
    HostValues values(shared_->transit, state_.stream());
    std::vector<AllToAllLane> places;
    int64_t sent_bytes = 0;
    for (const AllToAllLane& lane : lanes) {
      places.push_back({values.in(lane.send, num_sent * lane.row_bytes),
                        values.out(lane.recv, num_received * lane.row_bytes), lane.row_bytes});
      sent_bytes += (num_sent - send_rows[own]) * lane.row_bytes;
    }
    return run("all_to_all", values, sent_bytes, [&](ncclComm_t comm) {
      return in_group([&](auto&& add) {
        for (const AllToAllLane& lane : places) {
          const char* from = static_cast<const char*>(lane.send);
          char* to = static_cast<char*>(lane.recv);
          for (size_t peer = 0; peer < n; ++peer) {
            const auto send_bytes = static_cast<size_t>(send_rows[peer] * lane.row_bytes);
            const auto recv_bytes = static_cast<size_t>(recv_rows[peer] * lane.row_bytes);
            const auto other = static_cast<int>(peer);
            if (send_bytes > 0) {
              add(ncclSend(from, send_bytes, ncclInt8, other, comm, state_.stream()));
            }
            if (recv_bytes > 0) {
              add(ncclRecv(to, recv_bytes, ncclInt8, other, comm, state_.stream()));
            }
            from += send_bytes;
            to += recv_bytes;
          }
        }
      });
    });
  }

  // The message leaves from a copy and on a stream of its own, so that neither the sender's buffer
  // nor its stream waits for the receiver.
  CommTiming send(int peer, int64_t /*tag*/, const void* data, int64_t bytes,
                  const MessageSlots& /*slots*/, const CommStart& /*start*/) override {
    check_peer(peer);
    CommTiming timing;
    timing.sequence = num_sent_[peer]++;
    timing.sent_bytes = bytes;
    if (bytes > 0) {
      const NcclRole role = role_towards(peer > rank_);
      const std::string what = fmt::format("send {} to {}", timing.sequence, peer);
      const cudaStream_t stream = shared_->transit.stream(static_cast<int>(role));
      Transit::Slot& slot = shared_->transit.slot(bytes);
      copy_and_order(slot.data, data, bytes, state_.stream(), stream);
      slot.sent = launch(role, what, stream, [&](ncclComm_t comm) {
        return ncclSend(slot.data, static_cast<size_t>(bytes), ncclInt8, peer, comm, stream);
      });
    }
    timing.end_ns = profiler::wall_ns();
    return timing;
  }

  CommTiming recv(int peer, int64_t /*tag*/, void* data, int64_t bytes,
                  const CommStart& /*start*/) override {
    check_peer(peer);
    CommTiming timing;
    timing.sequence = num_received_[peer]++;
    if (bytes > 0) {
      const std::string what = fmt::format("receive {} from {}", timing.sequence, peer);
      const auto mark =
          launch(role_towards(peer < rank_), what, state_.stream(), [&](ncclComm_t comm) {
            return ncclRecv(data, static_cast<size_t>(bytes), ncclInt8, peer, comm,
                            state_.stream());
          });
      if (state_.options().waits && mark) state_.wait(mark);
    }
    timing.end_ns = profiler::wall_ns();
    return timing;
  }

 private:
  /// Calls body(add) between the start and the end of an NCCL group; `add` takes the results. The
  /// group ends also when one of them is bad.
  template <typename Body>
  static ncclResult_t in_group(Body&& body) {
    ncclResult_t first_bad = ncclGroupStart();
    if (!is_accepted(first_bad)) return first_bad;
    body([&](ncclResult_t result) {
      if (is_accepted(first_bad) && !is_accepted(result)) first_bad = result;
    });
    const ncclResult_t end = ncclGroupEnd();
    return is_accepted(first_bad) ? end : first_bad;
  }

  template <typename Body>
  std::shared_ptr<Mark> launch(NcclRole role, const std::string& what, cudaStream_t stream,
                               Body&& body) {
    state_.call(role, what, body);
    state_.settle(role, what, TimeLimit(state_.options().op_timeout));
    return state_.watch(role, what, stream);
  }

  template <typename Body>
  CommTiming run(const char* op, HostValues& values, int64_t sent_bytes, Body&& body) {
    CommTiming timing;
    timing.sequence = num_calls_++;
    timing.sent_bytes = sent_bytes;
    const std::string what = fmt::format("{} {}", op, timing.sequence);
    state_.call(role_, what, body);
    state_.settle(role_, what, TimeLimit(state_.options().op_timeout));
    values.start_return();
    const auto mark = state_.watch(role_, what, state_.stream());
    MOETUNE_CHECK(mark || !values.has_any(), "{} of host values in a graph", op);
    if (mark && (state_.options().waits || values.has_any())) {
      state_.wait(mark);
      values.finish_return();
    }
    timing.end_ns = profiler::wall_ns();
    return timing;
  }

  void check_peer(int peer) const {
    MOETUNE_CHECK(peer >= 0 && peer < size_ && peer != rank_, "rank {} of {} has no peer {}", rank_,
                  size_, peer);
  }

  [[nodiscard]] NcclRole role_towards(bool is_up) const {
    if (role_ != NcclRole::pp_up) return role_;
    return is_up ? NcclRole::pp_up : NcclRole::pp_down;
  }

  NcclState& state_;
  std::shared_ptr<Shared> shared_;
  NcclRole role_;
  int size_ = 1;
  int rank_ = 0;
  int64_t num_calls_ = 0;
  std::map<int, int64_t> num_sent_;
  std::map<int, int64_t> num_received_;
};

class Nccl final : public NcclWorld {
 public:
  Nccl(const plan::Layout& layout, Rendezvous& rendezvous, NcclOptions options)
      : shared_(std::make_shared<Shared>(layout, rendezvous, std::move(options))),
        thread_([shared = shared_] { shared->state.run_watch(); }) {}

  ~Nccl() override {
    NcclState& state = shared_->state;
    if (std::uncaught_exceptions() > 0) abort("it is ending after an error");
    try {
      if (!state.has_failed()) state.say_farewell();
    } catch (const std::exception&) {
      // Somebody else did not end as planned: aborted by now, and no news any more.
    }
    if (state.end_watch()) {
      thread_.join();
    } else {
      thread_.detach();  // hangs in an abort, with what it needs
    }
  }

  void connect(const ncclUniqueId& id) { shared_->state.connect(id); }

  std::unique_ptr<Communicator> communicator(plan::Group group) override {
    const NcclState& state = shared_->state;
    const std::optional<NcclRole> role = nccl_role(state.layout(), group, state.rank());
    if (!role) return nullptr;
    return std::make_unique<NcclCommunicator>(shared_, group, *role);
  }

  void watch(const std::string& what) override {
    shared_->state.watch(NcclRole::world, what, shared_->state.stream());
  }
  void check() override { shared_->state.check(); }
  void abort(const std::string& reason) noexcept override {
    shared_->state.fail(std::make_exception_ptr(base::PeerFailed("aborted: " + reason)));
  }

 private:
  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

// NCCL's own word for two ranks on one GPU is "invalid usage"; this says which ones.
void check_devices(Rendezvous& rendezvous) {
  int device = 0;
  std::array<char, 32> bus_id{};
  check_cuda(cudaGetDevice(&device), "the current device");
  check_cuda(cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), device),
             "the place of the device");
  std::array<char, 256> host{};
  (void)gethostname(host.data(), host.size() - 1);
  const char* host_id = std::getenv("NCCL_HOSTID");  // what NCCL itself takes for the host
  const std::string own =
      fmt::format("GPU {} of host {}", bus_id.data(), host_id != nullptr ? host_id : host.data());
  std::map<std::string, size_t> owners;
  const std::vector<std::string> all = rendezvous.gather(own);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const auto [at, is_new] = owners.try_emplace(all[rank], rank);
    if (!is_new) {
      throw base::UsageError(
          fmt::format("ranks {} and {} are both on {}; NCCL needs a GPU for "
                      "each rank",
                      at->second, rank, all[rank]));
    }
  }
}

ncclUniqueId exchange_id(Rendezvous& rendezvous) {
  ncclUniqueId id{};
  if (rendezvous.rank() == 0) {
    const ncclResult_t result = ncclGetUniqueId(&id);
    if (result != ncclSuccess) {
      throw base::Error(fmt::format("NCCL: no id for this run: {} ({})", ncclGetErrorString(result),
                                    ncclGetLastError(nullptr)));
    }
  }
  const std::string blob = rendezvous.broadcast({id.internal, sizeof(id.internal)});
  MOETUNE_CHECK(blob.size() == sizeof(id.internal), "an id of {} bytes", blob.size());
  std::memcpy(id.internal, blob.data(), blob.size());
  return id;
}

// NCCL connects two ranks at the first message between them, and the sender waits for that. Done
// now, it never has to.
void connect_pipeline(NcclWorld& world) {
  const std::unique_ptr<Communicator> pipeline = world.communicator(plan::Group::pp);
  const int rank = pipeline->rank();
  char* word = nullptr;
  check_cuda(cudaMalloc(reinterpret_cast<void**>(&word), 4), "memory for a message");
  const std::unique_ptr<char, cudaError_t (*)(void*)> owner(word,
                                                            [](void* p) { return cudaFree(p); });
  check_cuda(cudaMemset(word, 0, 4), "clearing a message");
  if (rank > 0) pipeline->recv(rank - 1, 0, word, 4, 0);
  if (rank + 1 < pipeline->size()) {
    pipeline->send(rank + 1, 0, word, 4, {}, 0);
    pipeline->recv(rank + 1, 0, word, 4, 0);
  }
  if (rank > 0) pipeline->send(rank - 1, 0, word, 4, {}, 0);
}

}  // namespace

bool has_nccl() { return true; }

std::unique_ptr<NcclWorld> make_nccl_world(const plan::Layout& layout, Rendezvous& rendezvous,
                                           NcclOptions options) {
  MOETUNE_CHECK(rendezvous.size() == layout.world_size(), "{} processes for {} ranks",
                rendezvous.size(), layout.world_size());
  try {
    check_devices(rendezvous);
    const ncclUniqueId id = exchange_id(rendezvous);
    auto world = std::make_unique<Nccl>(layout, rendezvous, std::move(options));
    world->connect(id);
    connect_pipeline(*world);
    return world;
  } catch (const std::exception& error) {
    rendezvous.fail(error.what());  // nobody needs to wait for this rank
    throw;
  }
}

}  // namespace moetune::engine

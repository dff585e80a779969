// The scheduler of the fake device: threads of a block take turns on fibers, which are kept from
// block to block and from launch to launch. See simt.h.
#include "tests/fakes/simt/simt.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <deque>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/base/error.h"
#include "tests/fakes/simt/sanitizers.h"
#include "tests/fakes/simt/simt_fibers.h"

uint3 threadIdx;
uint3 blockIdx;
dim3 blockDim;
dim3 gridDim;

namespace moetune::kernels::cuda {
// What kernels/cuda/device.cuh declares: on a device the block's shared memory, here the longest
// there is, of which a launch gets the beginning.
alignas(1024) unsigned char dynamic_shared[simt::kMaxSharedBytes + 4096];
}  // namespace moetune::kernels::cuda

namespace moetune::simt {
namespace {

constexpr unsigned char kGuard = 0xA5;
constexpr size_t kGuardBytes = 4096;

/// Thrown through a waiting thread when another one has failed: its locals are destroyed and the
/// fiber is ready for the next block.
struct Abandoned {};

enum class State : uint8_t { ready, waits_for_block, waits_for_warp, done };

struct Thread {
  uint3 index{};
  Collective kind{};
  unsigned mask = 0;
  Site site;
  Fiber* fiber = nullptr;  ///< what it waits on; null before the thread starts and after its end
};

/// Lanes that came to a collective of a warp with one mask. Values are kept twice: a lane may be
/// one collective ahead of a lane that has not read yet, never two.
struct Meeting {
  unsigned mask = 0;
  unsigned arrived = 0;
  unsigned num_unread = 0;  ///< lanes of the last round that have not looked at the values yet
  Collective kind{};
  Site site;
  std::array<LaneValues, 2> values{};
  unsigned round = 0;
};

std::string_view name_of(Collective kind) {
  constexpr std::array<std::string_view, 6> kNames{"barrier", "warp barrier", "shuffle",
                                                   "vote",    "match",        "warp reduction"};
  return kNames[static_cast<size_t>(kind)];
}

std::string_view file_of(const Site& site) {
  const std::string_view path(site.file_name());
  return path.substr(path.rfind('/') + 1);
}

bool is_same(const Site& a, const Site& b) {
  if (a.line() != b.line() || a.column() != b.column()) return false;
  return a.file_name() == b.file_name() || file_of(a) == file_of(b);  // looking at names is slow
}

class Scheduler {
 public:
  Failure run(const dim3& grid, const dim3& block, size_t shared_bytes,
              const std::function<void()>& body) {
    body_ = &body;
    failure_.clear();
    gridDim = grid;
    make_threads(block);
    guard(shared_bytes);
    size_t number = num_launches_++;
    for (unsigned z = 0; z < grid.z; ++z) {
      for (unsigned y = 0; y < grid.y; ++y) {
        for (unsigned x = 0; x < grid.x; ++x, ++number) {
          blockIdx = {x, y, z};
          run_block(shared_bytes, number % 2 == 0);
          if (!failure_.empty()) return failure_;
        }
      }
    }
    return {};
  }

  int block_barrier(bool predicate, const Site& site) {
    if (num_at_barrier_ > 0 && !is_same(site, barrier_site_)) {
      fail(fmt::format("barriers of two lines meet: other threads wait at {}:{}",
                       file_of(barrier_site_), barrier_site_.line()),
           site);
    }
    const unsigned round = barrier_round_;
    barrier_site_ = site;
    barrier_counts_[round % 2] += predicate ? 1 : 0;
    if (++num_at_barrier_ < num_threads_) {
      wait(State::waits_for_block, Collective::barrier, 0, site);
    } else {
      ++barrier_round_;
      num_at_barrier_ = 0;
      barrier_counts_[barrier_round_ % 2] = 0;
      std::fill_n(states_.begin(), num_threads_, State::ready);
    }
    return barrier_counts_[round % 2];
  }

  const LaneValues& warp_exchange(unsigned mask, uint64_t value, Collective kind, const Site& site,
                                  const Finish& finish) {
    const auto own_lane = static_cast<unsigned>(lane());
    if ((mask >> own_lane & 1U) == 0) {
      fail(fmt::format("{} with mask {:#010x} by lane {}, which is not in it", name_of(kind), mask,
                       own_lane),
           site);
    }
    const unsigned first = current_ / kWarpLanes * kWarpLanes;
    Meeting& meeting = meeting_of(current_ / kWarpLanes, mask);
    if (meeting.arrived == 0) {
      meeting.kind = kind;
      meeting.site = site;
    } else if (meeting.kind != kind || !is_same(meeting.site, site)) {
      fail(fmt::format("{} meets a {} at {}:{}, both with mask {:#010x}", name_of(kind),
                       name_of(meeting.kind), file_of(meeting.site), meeting.site.line(), mask),
           site);
    }
    auto& values = meeting.values[meeting.round % 2];
    values[own_lane] = value;
    meeting.arrived |= 1U << own_lane;
    if (meeting.arrived != mask) {
      wait(State::waits_for_warp, kind, mask, site);
      --meeting.num_unread;
      return values;
    }
    if (finish.call != nullptr) finish.call(values, finish.context);
    meeting.arrived = 0;
    meeting.num_unread = static_cast<unsigned>(std::popcount(mask)) - 1;
    ++meeting.round;
    for (unsigned i = 0; i < kWarpLanes; ++i) {
      if ((mask >> i & 1U) != 0) states_[first + i] = State::ready;
    }
    return values;
  }

  [[nodiscard]] int lane() const { return static_cast<int>(current_ % kWarpLanes); }

  [[noreturn]] void fail(const std::string& text, const Site& site) {
    note_failure(fmt::format("{} at {}:{}", text, file_of(site), site.line()));
    throw Abandoned{};
  }

 private:
  void make_threads(const dim3& block) {
    blockDim = block;
    if (block.x == shape_.x && block.y == shape_.y && block.z == shape_.z) return;
    shape_ = block;
    num_threads_ = block.x * block.y * block.z;
    threads_.resize(std::max<size_t>(threads_.size(), num_threads_));
    states_.resize(threads_.size());
    meetings_.resize(std::max<size_t>(meetings_.size(), (num_threads_ - 1) / kWarpLanes + 1));
    for (unsigned i = 0; i < num_threads_; ++i) {
      threads_[i].index = {i % block.x, i / block.x % block.y, i / block.x / block.y};
    }
  }

  /// Where lanes of this warp meet under this mask. Parts of a warp may be at different places.
  Meeting& meeting_of(unsigned warp, unsigned mask) {
    Meeting* free = nullptr;
    for (Meeting& meeting : meetings_[warp]) {
      if (meeting.mask == mask) return meeting;
      if (meeting.arrived == 0 && meeting.num_unread == 0) free = &meeting;
    }
    if (free == nullptr) free = &meetings_[warp].emplace_back();
    free->mask = mask;
    return *free;
  }

  /// The life of a fiber: one thread of one block after the other.
  void live(Fiber& fiber) {
    while (!fibers_.is_closing()) {
      try {
        (*body_)();
      } catch (const Abandoned&) {
        // The failure is noted.
      } catch (const std::exception& error) {
        note_failure(error.what());
      }
      states_[current_] = State::done;
      ++num_done_;
      Fiber& next = next_fiber(&fiber);
      if (&next == &fiber) continue;
      fibers_.put_back(fiber);
      fibers_.switch_to(next);
    }
  }

  void run_block(size_t shared_bytes, bool is_rising) {
    std::fill_n(kernels::cuda::dynamic_shared, shared_bytes, uint8_t{0xFF});
    num_at_barrier_ = 0;
    barrier_counts_ = {};
    for (unsigned warp = 0; warp <= (num_threads_ - 1) / kWarpLanes; ++warp) {
      for (Meeting& meeting : meetings_[warp]) meeting.arrived = meeting.num_unread = 0;
    }
    std::fill_n(states_.begin(), num_threads_, State::ready);
    is_rising_ = is_rising;
    position_ = 0;
    num_done_ = 0;
    has_run_ = false;
    fibers_.switch_to(next_fiber(nullptr));
    if (failure_.empty()) check_all_done();
    if (!failure_.empty()) abandon_waiting();
    check_guard(shared_bytes);
  }

  /// Behind the launch's shared memory. It stays as it is until a launch needs another length.
  static void guard(size_t shared_bytes) {
    if (shared_bytes == guarded_bytes) return;
    unsigned char* const shared = kernels::cuda::dynamic_shared;
    constexpr size_t kAll = sizeof(kernels::cuda::dynamic_shared);
    unpoison(shared, kAll);
    std::fill_n(shared + shared_bytes, kGuardBytes, kGuard);
    poison(shared + shared_bytes, kAll - shared_bytes);
    guarded_bytes = shared_bytes;
  }

  void check_guard(size_t shared_bytes) {
    if (has_address_sanitizer()) return;  // which sees it itself
    static const std::vector<unsigned char> untouched(kGuardBytes, kGuard);
    const unsigned char* const begin = kernels::cuda::dynamic_shared + shared_bytes;
    if (std::memcmp(begin, untouched.data(), kGuardBytes) == 0) return;
    guarded_bytes = kNotGuarded;
    if (!failure_.empty()) return;
    const auto touched =
        std::mismatch(untouched.begin(), untouched.end(), begin).first - untouched.begin();
    failure_ = fmt::format("block ({},{},{}) wrote byte {} of {} bytes of shared memory",
                           blockIdx.x, blockIdx.y, blockIdx.z,
                           static_cast<size_t>(touched) + shared_bytes, shared_bytes);
  }

  /// Makes the next thread current that can run, in passes over the block; false when none can or
  /// one failed.
  bool pick() {
    if (!failure_.empty() || num_done_ == num_threads_) return false;
    while (true) {
      while (position_ < num_threads_) {
        const unsigned number = is_rising_ ? position_ : num_threads_ - 1 - position_;
        ++position_;
        if (states_[number] != State::ready) continue;
        has_run_ = true;
        current_ = number;
        threadIdx = threads_[number].index;
        return true;
      }
      if (!has_run_) return false;
      has_run_ = false;
      position_ = 0;
    }
  }

  /// Where the thread that is next goes on, or starts: on `own` if there is one. The host's own
  /// stack when the block cannot go on.
  Fiber& next_fiber(Fiber* own) {
    if (!pick()) return fibers_.host();
    Fiber* waiting = std::exchange(threads_[current_].fiber, nullptr);
    if (waiting != nullptr) return *waiting;
    return own != nullptr ? *own : fibers_.idle();
  }

  /// No thread can run: either all have returned, or somebody waits for one who will not come.
  void check_all_done() {
    for (unsigned i = 0; i < num_threads_; ++i) {
      const Thread& waiting = threads_[i];
      if (states_[i] == State::done) continue;
      current_ = i;
      unsigned begin = 0;
      unsigned mask = 0;
      if (states_[i] == State::waits_for_warp) {
        begin = i / kWarpLanes * kWarpLanes;
        mask = waiting.mask;
      }
      const unsigned end = mask == 0 ? num_threads_ : begin + kWarpLanes;
      for (unsigned j = begin; j < end; ++j) {
        if (mask != 0 && (mask >> (j - begin) & 1U) == 0) continue;
        if (is_there(j, i)) continue;
        note_failure(fmt::format("{} at {}:{} waits for {} {}, which {}", name_of(waiting.kind),
                                 file_of(waiting.site), waiting.site.line(),
                                 mask == 0 ? "thread" : "lane", j - begin, whereabouts(j)));
        return;
      }
    }
  }

  [[nodiscard]] bool is_there(unsigned number, unsigned waiting) const {
    return number < num_threads_ && states_[number] == states_[waiting] &&
           threads_[number].mask == threads_[waiting].mask &&
           is_same(threads_[number].site, threads_[waiting].site);
  }

  [[nodiscard]] std::string whereabouts(unsigned number) const {
    if (number >= num_threads_) return "the block does not have";
    const Thread& thread = threads_[number];
    if (states_[number] == State::done) return "has returned";
    return fmt::format("waits in a {} at {}:{}", name_of(thread.kind), file_of(thread.site),
                       thread.site.line());
  }

  void abandon_waiting() {
    is_abandoning_ = true;
    for (unsigned i = 0; i < num_threads_; ++i) {
      Fiber* waiting = std::exchange(threads_[i].fiber, nullptr);
      if (waiting == nullptr) continue;
      current_ = i;
      fibers_.switch_to(*waiting);
    }
    is_abandoning_ = false;
  }

  void note_failure(const std::string& text) {
    if (!failure_.empty()) return;
    const uint3 index = threads_[current_].index;
    failure_ = fmt::format("block ({},{},{}) thread ({},{},{}): {}", blockIdx.x, blockIdx.y,
                           blockIdx.z, index.x, index.y, index.z, text);
  }

  void wait(State state, Collective kind, unsigned mask, const Site& site) {
    Thread& thread = threads_[current_];
    states_[current_] = state;
    thread.kind = kind;
    thread.mask = mask;
    thread.site = site;
    thread.fiber = &fibers_.running();
    fibers_.switch_to(next_fiber(nullptr));
    if (is_abandoning_) throw Abandoned{};
  }

  static constexpr size_t kNotGuarded = ~size_t{0};
  inline static size_t guarded_bytes = kNotGuarded;  ///< of everybody, as the memory is

  Fibers fibers_{[this](Fiber& fiber) { live(fiber); }};
  std::vector<Thread> threads_;
  std::vector<State> states_;                  ///< by thread, apart because they are looked through
  std::vector<std::deque<Meeting>> meetings_;  ///< by warp; their places in memory stay
  const std::function<void()>* body_ = nullptr;
  dim3 shape_{0, 0, 0};
  unsigned num_threads_ = 0;
  unsigned num_done_ = 0;
  unsigned current_ = 0;
  unsigned position_ = 0;  ///< in the pass over the block's threads
  bool is_rising_ = true;
  bool has_run_ = false;
  unsigned num_at_barrier_ = 0;
  unsigned barrier_round_ = 0;
  std::array<int, 2> barrier_counts_{};
  Site barrier_site_;
  size_t num_launches_ = 0;
  bool is_abandoning_ = false;
  Failure failure_;
};

// Fibers must not move between host threads (what a compiler keeps of thread-local addresses would
// be another thread's), so each has its own; the built-in variables are everybody's, hence the
// lock.
thread_local Scheduler scheduler;
thread_local Scheduler* running = nullptr;
std::mutex one_launch;

Scheduler& running_scheduler() {
  MOETUNE_CHECK(running != nullptr, "device code was called outside of a kernel");
  return *running;
}

}  // namespace

Failure run(const dim3& grid, const dim3& block, size_t shared_bytes,
            const std::function<void()>& body) {
  const std::lock_guard lock(one_launch);
  running = &scheduler;
  Failure failure = scheduler.run(grid, block, shared_bytes, body);
  running = nullptr;
  return failure;
}

int block_barrier(bool predicate, const Site& site) {
  return running_scheduler().block_barrier(predicate, site);
}

const LaneValues& warp_exchange(unsigned mask, uint64_t value, Collective kind, const Site& site,
                                const Finish& finish) {
  return running_scheduler().warp_exchange(mask, value, kind, site, finish);
}

int lane() { return running_scheduler().lane(); }

void fail(const std::string& text, const Site& site) { running_scheduler().fail(text, site); }

bool has_address_sanitizer() { return __asan_address_is_poisoned != nullptr; }

bool is_poisoned(const void* address) {
  return has_address_sanitizer() && __asan_address_is_poisoned(address) != 0;
}

}  // namespace moetune::simt

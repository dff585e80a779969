// The scheduler of the fake device: one fiber per thread of a block, kept from block to block and
// from launch to launch. See simt.h.
#include "tests/fakes/simt/simt.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <boost/context/fiber.hpp>
#include <boost/context/preallocated.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <deque>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/base/error.h"
#include "tests/fakes/simt/sanitizers.h"

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

constexpr size_t kStackBytes = 128 * 1024;
constexpr unsigned char kGuard = 0xA5;
constexpr size_t kGuardBytes = 4096;

namespace context = boost::context;

/// Thrown through a waiting thread when another one has failed: its locals are destroyed and the
/// fiber is ready for the next block.
struct Abandoned {};

/// Stacks belong to their thread slot, not to the fiber that runs on them.
struct KeepStack {
  static context::stack_context allocate() { return {}; }
  static void deallocate(context::stack_context&) {}
};

struct Thread {
  enum class State : uint8_t { ready, waits_for_block, waits_for_warp, done };

  State state = State::done;
  uint3 index{};
  Collective kind{};
  unsigned mask = 0;
  Site site;
  bool is_inside_kernel = false;
  context::fiber fiber;
  context::stack_context stack;
  StackTag tag;
};

/// Lanes that came to a collective of a warp with one mask. Values are kept twice: a lane may be
/// one collective ahead of a lane that has not read yet, never two.
struct Meeting {
  unsigned mask = 0;
  unsigned arrived = 0;
  unsigned num_unread = 0;  ///< lanes of the last round that have not looked at the values yet
  Collective kind{};
  Site site;
  std::array<std::array<uint64_t, kWarpLanes>, 2> values{};
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
  return a.line() == b.line() && a.column() == b.column() && file_of(a) == file_of(b);
}

class Scheduler {
 public:
  ~Scheduler() {
    is_closing_ = true;
    for (const auto& thread : threads_) {
      resume(*thread);
      forget_stack(thread->tag);
      context::protected_fixedsize_stack(kStackBytes).deallocate(thread->stack);
    }
  }

  Failure run(const dim3& grid, const dim3& block, size_t shared_bytes,
              const std::function<void()>& body) {
    body_ = &body;
    failure_.clear();
    blockDim = block;
    gridDim = grid;
    num_threads_ = block.x * block.y * block.z;
    make_threads();
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
      wait(Thread::State::waits_for_block, Collective::barrier, 0, site);
    } else {
      ++barrier_round_;
      num_at_barrier_ = 0;
      barrier_counts_[barrier_round_ % 2] = 0;
      for (unsigned i = 0; i < num_threads_; ++i) threads_[i]->state = Thread::State::ready;
    }
    return barrier_counts_[round % 2];
  }

  const std::array<uint64_t, kWarpLanes>& warp_exchange(unsigned mask, uint64_t value,
                                                        Collective kind, const Site& site) {
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
      wait(Thread::State::waits_for_warp, kind, mask, site);
      --meeting.num_unread;
      return values;
    }
    meeting.arrived = 0;
    meeting.num_unread = static_cast<unsigned>(std::popcount(mask)) - 1;
    ++meeting.round;
    for (unsigned i = 0; i < kWarpLanes; ++i) {
      if ((mask >> i & 1U) != 0) threads_[first + i]->state = Thread::State::ready;
    }
    return values;
  }

  [[nodiscard]] int lane() const { return static_cast<int>(current_ % kWarpLanes); }

  [[noreturn]] void fail(const std::string& text, const Site& site) {
    note_failure(fmt::format("{} at {}:{}", text, file_of(site), site.line()));
    throw Abandoned{};
  }

 private:
  void make_threads() {
    for (auto i = static_cast<unsigned>(threads_.size()); i < num_threads_; ++i) {
      auto& thread = *threads_.emplace_back(std::make_unique<Thread>());
      thread.stack = context::protected_fixedsize_stack(kStackBytes).allocate();
      thread.tag.bottom = static_cast<const char*>(thread.stack.sp) - thread.stack.size;
      thread.tag.size = thread.stack.size;
      thread.fiber = context::fiber(
          std::allocator_arg,
          context::preallocated(thread.stack.sp, thread.stack.size, thread.stack), KeepStack{},
          [this, &thread](context::fiber&& host) { return live(thread, std::move(host)); });
    }
    for (unsigned i = 0; i < num_threads_; ++i) {
      threads_[i]->index = {i % blockDim.x, i / blockDim.x % blockDim.y,
                            i / blockDim.x / blockDim.y};
    }
    meetings_.resize(std::max<size_t>(meetings_.size(), (num_threads_ - 1) / kWarpLanes + 1));
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
  context::fiber live(Thread& thread, context::fiber&& host) {
    host_ = std::move(host);
    arrive_on_stack(thread.tag, host_tag_);
    while (!is_closing_) {
      thread.is_inside_kernel = true;
      try {
        (*body_)();
      } catch (const Abandoned&) {
        // The failure is noted.
      } catch (const std::exception& error) {
        note_failure(error.what());
      }
      thread.is_inside_kernel = false;
      thread.state = Thread::State::done;
      yield(thread);
    }
    leave_stack(thread.tag, host_tag_, true);
    return std::move(host_);
  }

  void run_block(size_t shared_bytes, bool is_rising) {
    unsigned char* const shared = kernels::cuda::dynamic_shared;
    std::fill_n(shared, shared_bytes, uint8_t{0xFF});
    std::fill_n(shared + shared_bytes, kGuardBytes, kGuard);
    poison(shared + shared_bytes, sizeof(kernels::cuda::dynamic_shared) - shared_bytes);
    num_at_barrier_ = 0;
    barrier_counts_ = {};
    for (auto& of_warp : meetings_) {
      for (Meeting& meeting : of_warp) meeting.arrived = meeting.num_unread = 0;
    }
    for (unsigned i = 0; i < num_threads_; ++i) threads_[i]->state = Thread::State::ready;
    while (pass(is_rising)) {
    }
    if (failure_.empty()) check_all_done();
    if (!failure_.empty()) abandon_waiting();
    unpoison(shared + shared_bytes, sizeof(kernels::cuda::dynamic_shared) - shared_bytes);
    unsigned char* const guard_end = shared + shared_bytes + kGuardBytes;
    unsigned char* const touched = std::find_if(shared + shared_bytes, guard_end,
                                                [](unsigned char byte) { return byte != kGuard; });
    if (failure_.empty() && touched != guard_end) {
      failure_ = fmt::format("block ({},{},{}) wrote byte {} of {} bytes of shared memory",
                             blockIdx.x, blockIdx.y, blockIdx.z, touched - shared, shared_bytes);
    }
  }

  /// Lets every thread run that can; false when none could or one failed.
  bool pass(bool is_rising) {
    bool has_run = false;
    for (unsigned i = 0; i < num_threads_; ++i) {
      const unsigned number = is_rising ? i : num_threads_ - 1 - i;
      Thread& thread = *threads_[number];
      if (thread.state != Thread::State::ready) continue;
      has_run = true;
      current_ = number;
      resume(thread);
      if (!failure_.empty()) return false;
    }
    return has_run;
  }

  /// No thread can run: either all have returned, or somebody waits for one who will not come.
  void check_all_done() {
    for (unsigned i = 0; i < num_threads_; ++i) {
      const Thread& waiting = *threads_[i];
      if (waiting.state == Thread::State::done) continue;
      current_ = i;
      unsigned begin = 0;
      unsigned mask = 0;
      if (waiting.state == Thread::State::waits_for_warp) {
        begin = i / kWarpLanes * kWarpLanes;
        mask = waiting.mask;
      }
      const unsigned end = mask == 0 ? num_threads_ : begin + kWarpLanes;
      for (unsigned j = begin; j < end; ++j) {
        if (mask != 0 && (mask >> (j - begin) & 1U) == 0) continue;
        if (is_there(j, waiting)) continue;
        note_failure(fmt::format("{} at {}:{} waits for {} {}, which {}", name_of(waiting.kind),
                                 file_of(waiting.site), waiting.site.line(),
                                 mask == 0 ? "thread" : "lane", j - begin, whereabouts(j)));
        return;
      }
    }
  }

  [[nodiscard]] bool is_there(unsigned number, const Thread& waiting) const {
    if (number >= num_threads_) return false;
    const Thread& thread = *threads_[number];
    return thread.state == waiting.state && thread.mask == waiting.mask &&
           is_same(thread.site, waiting.site);
  }

  [[nodiscard]] std::string whereabouts(unsigned number) const {
    if (number >= num_threads_) return "the block does not have";
    const Thread& thread = *threads_[number];
    if (thread.state == Thread::State::done) return "has returned";
    return fmt::format("waits in a {} at {}:{}", name_of(thread.kind), file_of(thread.site),
                       thread.site.line());
  }

  void abandon_waiting() {
    is_abandoning_ = true;
    for (unsigned i = 0; i < num_threads_; ++i) {
      if (!threads_[i]->is_inside_kernel) continue;
      current_ = i;
      resume(*threads_[i]);
    }
    is_abandoning_ = false;
  }

  void note_failure(const std::string& text) {
    if (!failure_.empty()) return;
    const uint3 index = threads_[current_]->index;
    failure_ = fmt::format("block ({},{},{}) thread ({},{},{}): {}", blockIdx.x, blockIdx.y,
                           blockIdx.z, index.x, index.y, index.z, text);
  }

  void wait(Thread::State state, Collective kind, unsigned mask, const Site& site) {
    Thread& thread = *threads_[current_];
    thread.state = state;
    thread.kind = kind;
    thread.mask = mask;
    thread.site = site;
    yield(thread);
    if (is_abandoning_) throw Abandoned{};
  }

  void resume(Thread& thread) {
    threadIdx = thread.index;
    leave_stack(host_tag_, thread.tag);
    thread.fiber = std::move(thread.fiber).resume();
    arrive_on_stack(host_tag_, thread.tag);
  }

  void yield(Thread& thread) {
    leave_stack(thread.tag, host_tag_);
    host_ = std::move(host_).resume();
    arrive_on_stack(thread.tag, host_tag_);
  }

  std::vector<std::unique_ptr<Thread>> threads_;
  std::vector<std::deque<Meeting>> meetings_;  ///< by warp; their places in memory stay
  context::fiber host_;
  StackTag host_tag_;
  const std::function<void()>* body_ = nullptr;
  unsigned num_threads_ = 0;
  unsigned current_ = 0;
  unsigned num_at_barrier_ = 0;
  unsigned barrier_round_ = 0;
  std::array<int, 2> barrier_counts_{};
  Site barrier_site_;
  size_t num_launches_ = 0;
  bool is_abandoning_ = false;
  bool is_closing_ = false;
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

const std::array<uint64_t, kWarpLanes>& warp_exchange(unsigned mask, uint64_t value,
                                                      Collective kind, const Site& site) {
  return running_scheduler().warp_exchange(mask, value, kind, site);
}

int lane() { return running_scheduler().lane(); }

void fail(const std::string& text, const Site& site) { running_scheduler().fail(text, site); }

bool has_address_sanitizer() { return __asan_address_is_poisoned != nullptr; }

bool is_poisoned(const void* address) {
  return has_address_sanitizer() && __asan_address_is_poisoned(address) != 0;
}

}  // namespace moetune::simt

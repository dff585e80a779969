// Ranks as threads of one process: collectives are memory copies between the ranks' device buffers,
// timed by the links of the emulated cluster. On the CPU a copy has happened when the call returns;
// on a GPU, which the ranks share, it is enqueued between the ranks' streams, which wait for each
// other by events.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/comm/world.h"
#include "engine/spec/hardware_spec.h"
#include "profiler/timeline.h"

namespace moetune::engine {

/// Lets only so many rank threads compute at once, so that the processor's caches and cores are not
/// fought over and measured durations stay those of a rank that has a core to itself.
class ComputeSlots {
 public:
  explicit ComputeSlots(int num_slots) : num_free_(num_slots) {}
  void acquire();
  void release();

 private:
  std::mutex mutex_;
  std::condition_variable freed_;
  int num_free_;
};

class ThreadGroup;

/// All ranks of one process. One instance is shared by the rank threads. The ranks' backends must
/// outlive it: buffers of messages come from them.
class ThreadWorld final : public World {
 public:
  ThreadWorld(const spec::HardwareSpec& hardware, const plan::Layout& layout,
              profiler::ClockMode mode, int num_slots);
  ~ThreadWorld() override;

  std::unique_ptr<Communicator> communicator(plan::Group group, int rank,
                                             kernels::Backend& backend) override;
  int64_t join_max(int64_t value) override;
  void join_local() override { static_cast<void>(join_max(0)); }
  void check() override {}
  [[nodiscard]] int64_t message_bytes() override;

  /// A rank has failed: everybody who waits, or will wait, throws base::PeerFailed.
  void abort();

  [[nodiscard]] ComputeSlots& slots() { return slots_; }
  [[nodiscard]] const spec::HardwareSpec& hardware() const { return hardware_; }
  [[nodiscard]] profiler::ClockMode mode() const { return mode_; }

 private:
  friend class ThreadGroup;
  friend class ThreadCommunicator;

  /// Memory that a message lies in on its way.
  struct Slot {
    kernels::Backend* owner = nullptr;
    void* data = nullptr;
    int64_t bytes = 0;
    kernels::DeviceEvent free_after;  ///< the last reader's end
  };
  struct Message {
    Slot slot;
    int64_t bytes = 0;
    kernels::DeviceEvent sent;
    int64_t ready_ns = 0;
    int64_t sequence = 0;
  };

  /// A slot of at least `bytes` that nobody uses; to be given back.
  Slot take_slot(kernels::Backend& backend, int64_t bytes);

  spec::HardwareSpec hardware_;
  plan::Layout layout_;
  profiler::ClockMode mode_;
  ComputeSlots slots_;
  std::mutex mutex_;  ///< guards everything below
  std::condition_variable changed_;
  bool is_aborted_ = false;
  std::map<std::pair<plan::Group, int>, std::shared_ptr<ThreadGroup>> groups_;
  std::map<std::tuple<int, int, int64_t>, std::deque<Message>> mailboxes_;  ///< from, to, tag
  std::map<std::pair<int, int>, int64_t> message_counts_;
  std::multimap<int64_t, Slot> free_slots_;  ///< by size
  std::vector<Slot> message_slots_;          ///< all that were made
  std::vector<int64_t> join_values_;
};

}  // namespace moetune::engine

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
#include <string>
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

/// All ranks of one process. One instance is shared by the rank threads.
class ThreadWorld final : public World {
 public:
  ThreadWorld(const spec::HardwareSpec& hardware, const plan::Layout& layout,
              profiler::ClockMode mode, int num_slots);

  std::unique_ptr<Communicator> communicator(plan::Group group, int rank,
                                             kernels::Backend& backend) override;
  int64_t join_max(int64_t value) override;
  void join_local() override { static_cast<void>(join_max(0)); }
  void check() override {}
  [[nodiscard]] int64_t message_bytes() override { return 0; }  // they lie in the ranks' slots
  void begin_computing() override { slots_.acquire(); }
  void end_computing() override { slots_.release(); }
  void abort(const std::string& reason) noexcept override;

  [[nodiscard]] ComputeSlots& slots() { return slots_; }
  [[nodiscard]] const spec::HardwareSpec& hardware() const { return hardware_; }
  [[nodiscard]] profiler::ClockMode mode() const { return mode_; }

 private:
  friend class ThreadGroup;
  friend class ThreadCommunicator;

  /// Messages that use the same slots.
  struct Channel {
    /// The last message that lay in a slot has been read.
    struct Read {
      int64_t end_ns = 0;
      kernels::DeviceEvent end;
    };
    int from = 0;
    int64_t num_sent = 0;
    int64_t num_read = 0;
    bool is_being_read = false;
    std::vector<Read> reads;  ///< by slot
  };
  struct Message {
    Channel* channel = nullptr;
    const void* data = nullptr;
    int64_t number = 0;  ///< of the channel's messages
    int64_t bytes = 0;
    kernels::DeviceEvent sent;
    int64_t start_ns = 0;
    int64_t transfer_ns = 0;
    int64_t sequence = 0;
  };

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
  std::map<const void*, Channel> channels_;  ///< by the memory of their slots
  std::vector<int64_t> join_values_;
};

}  // namespace moetune::engine

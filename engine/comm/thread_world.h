// Ranks as threads of one process: collectives are memory copies between the ranks' device buffers,
// timed by the links of the emulated cluster.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/spec/hardware_spec.h"
#include "engine/spec/layout.h"
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

/// All ranks of one process. Thread-safe; one instance is shared by the rank threads.
class ThreadWorld {
 public:
  ThreadWorld(const spec::HardwareSpec& hardware, const spec::Layout& layout,
              profiler::ClockMode mode, int num_slots);
  ~ThreadWorld();

  /// This rank's view of a group.
  std::unique_ptr<Communicator> communicator(spec::Group group, int rank);

  /// Joins all ranks outside the trace and returns the largest value passed in.
  int64_t join_max(int64_t value);

  /// A rank has failed: everybody who waits, or will wait, throws base::PeerFailed.
  void abort();

  [[nodiscard]] ComputeSlots& slots() { return slots_; }
  [[nodiscard]] const spec::HardwareSpec& hardware() const { return hardware_; }
  [[nodiscard]] profiler::ClockMode mode() const { return mode_; }

 private:
  friend class ThreadGroup;
  friend class ThreadCommunicator;

  struct Message {
    std::vector<char> data;
    int64_t ready_ns = 0;
    int64_t sequence = 0;
  };

  spec::HardwareSpec hardware_;
  spec::Layout layout_;
  profiler::ClockMode mode_;
  ComputeSlots slots_;
  std::mutex mutex_;  ///< guards everything below
  std::condition_variable changed_;
  bool is_aborted_ = false;
  std::map<std::pair<spec::Group, int>, std::shared_ptr<ThreadGroup>> groups_;
  std::map<std::pair<int, int>, std::deque<Message>> mailboxes_;
  std::map<std::pair<int, int>, int64_t> message_counts_;
  std::vector<int64_t> join_values_;
};

}  // namespace moetune::engine

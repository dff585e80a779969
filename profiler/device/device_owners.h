// Whose work it is: the call that enqueued a piece of device work, the op in which that call was
// made, the rank, and the engine's number of its stream.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "profiler/device/device_activity.h"
#include "profiler/device/device_order.h"

namespace moetune::profiler {

/// One run of an op: its id, and for the nodes of a graph the call that replayed it (else 0).
using RunKey = std::pair<OpId, uint32_t>;

struct Owner {
  bool is_labelled = false;
  DeviceOp op;  ///< of meaning when labelled, like the next
  RunKey run;
};

/// Calls and ops by correlation id. Refers to what it was made from.
class CallIndex {
 public:
  CallIndex(const DeviceActivities& raw, const OpTable& ops, const GraphLabels& labels);

  /// Null when the call was not recorded.
  [[nodiscard]] const ApiCall* call_of(const DeviceActivity& activity) const;
  [[nodiscard]] const ApiCall* call_of(const Synchronization& sync) const;
  [[nodiscard]] Owner owner_of(const DeviceActivity& activity) const;
  [[nodiscard]] Owner owner_of(const Synchronization& sync) const;
  /// The recorder's own doing.
  [[nodiscard]] bool is_own(const DeviceActivity& activity) const;
  [[nodiscard]] bool is_own(const Synchronization& sync) const;

 private:
  [[nodiscard]] OpId op_of(uint32_t correlation, uint32_t other) const;
  [[nodiscard]] const ApiCall* find_call(uint32_t correlation, uint32_t other) const;

  const OpTable& ops_;
  const GraphLabels& labels_;
  std::unordered_map<uint32_t, OpId> op_of_call_;
  std::unordered_map<uint32_t, ApiCall> calls_;
};

/// Ranks and numbers of streams, learned from the labelled work on them. Ranks are indices in the
/// given list, -1 for one that is not in it.
class StreamMap {
 public:
  using StreamKey = std::pair<uint32_t, uint32_t>;  ///< context, stream

  StreamMap(const DeviceActivities& raw, const DeviceOrder& order, const CallIndex& calls,
            std::vector<int32_t> ranks);

  [[nodiscard]] int rank_of(const Owner& owner, const DeviceActivity& activity,
                            const ApiCall* call) const;
  [[nodiscard]] int rank_of(const Owner& owner, const Synchronization& sync,
                            const ApiCall* call) const;
  /// Work on different streams of the device never gets the same number.
  int32_t number_of(const DeviceActivity& activity, int rank);

 private:
  [[nodiscard]] int index_of(int32_t rank) const;
  [[nodiscard]] int guess(const StreamKey* stream, const ApiCall* call) const;

  std::vector<int32_t> ranks_;
  std::map<StreamKey, int> rank_of_stream_;
  std::unordered_map<uint32_t, int> rank_of_thread_;
  std::map<std::pair<StreamKey, int>, int32_t> numbers_;
  int32_t next_number_ = 0;
};

}  // namespace moetune::profiler

// The order in which the host enqueued device work, and what each piece of it had to wait for
// beyond the order of its own stream.
#pragma once

#include <cstdint>
#include <vector>

#include "profiler/device/device_activity.h"

namespace moetune::profiler {

/// No activity, in positions.
constexpr int64_t kNoActivity = -1;

/// Positions refer to the vectors of the DeviceActivities it was made from.
struct DeviceOrder {
  std::vector<int64_t> activities;  ///< those with times, in program order
  std::vector<int64_t> place_of;    ///< by activity: its place in `activities`, or kNoActivity
  /// Activities that are waited for, perhaps several times: by activity, of its stream; by
  /// synchronisation, of the host.
  std::vector<std::vector<int64_t>> producers;
  std::vector<std::vector<int64_t>> sync_producers;
  int64_t num_untimed = 0;           ///< activities without usable times
  int64_t num_waits = 0;             ///< waits of a stream or of the host for an event
  int64_t num_unresolved_waits = 0;  ///< of those, with an event nobody recorded in this step
};

/// Calls are in the order of their correlation ids, wherever the counter wraps; nodes of one graph
/// replay are in the order of their start. Rules: a stream that waits for an event waits for the
/// last work enqueued on the event's stream before the event was recorded; within a replay, of two
/// neighbours the one that ended before the other began came first.
DeviceOrder order_activities(const DeviceActivities& raw, const GraphLabels& labels);

/// Correlation ids as a line: negative when `a` was handed out before `b`. Ids wrap at 32 bits;
/// those of one step lie close together.
constexpr int64_t correlation_distance(uint32_t a, uint32_t b) {
  return static_cast<int32_t>(a - b);
}

}  // namespace moetune::profiler

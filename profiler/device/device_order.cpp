// Replays the host's calls in order and keeps what each stream and event stands for; see
// device_order.h.
#include "profiler/device/device_order.h"

#include <algorithm>
#include <map>
#include <span>
#include <tuple>
#include <utility>

namespace moetune::profiler {
namespace {

using StreamKey = std::pair<uint32_t, uint32_t>;  // context, stream

/// What happens at one call. In this order where several share a call: a blocking copy is what its
/// own synchronisation waits for.
enum class StepKind : uint8_t { activity, event, sync };

struct CallStep {
  int64_t call;  ///< distance of its correlation id from the first one seen
  StepKind kind;
  int64_t start_ns;
  int64_t end_ns;
  int64_t position;
};

class Replayer {
 public:
  Replayer(const DeviceActivities& raw, const GraphLabels& labels) : raw_(raw), labels_(labels) {
    order_.place_of.assign(raw.activities.size(), kNoActivity);
    order_.producers.resize(raw.activities.size());
    order_.sync_producers.resize(raw.syncs.size());
  }

  DeviceOrder run() {
    const std::vector<CallStep> steps = sorted_steps();
    for (size_t i = 0; i < steps.size();) {
      size_t next = i + 1;
      switch (steps[i].kind) {
        case StepKind::activity:
          while (next < steps.size() && steps[next].call == steps[i].call &&
                 steps[next].kind == StepKind::activity) {
            ++next;
          }
          launch(std::span(steps).subspan(i, next - i));
          break;
        case StepKind::event: {
          const EventRecord& event = raw_.events[static_cast<size_t>(steps[i].position)];
          event_tails_[event.sync_id] = tail_of({event.context, event.stream});
          break;
        }
        case StepKind::sync:
          synchronize(steps[i].position);
          break;
      }
      i = next;
    }
    return std::move(order_);
  }

 private:
  [[nodiscard]] const DeviceActivity& activity(int64_t position) const {
    return raw_.activities[static_cast<size_t>(position)];
  }

  std::vector<CallStep> sorted_steps() {
    std::vector<CallStep> steps;
    steps.reserve(raw_.activities.size() + raw_.events.size() + raw_.syncs.size());
    bool has_base = false;
    uint32_t base = 0;
    const auto add = [&](uint32_t correlation, StepKind kind, int64_t start_ns, int64_t end_ns,
                         size_t position) {
      if (!has_base) base = correlation;
      has_base = true;
      steps.push_back({correlation_distance(correlation, base), kind, start_ns, end_ns,
                       static_cast<int64_t>(position)});
    };
    for (size_t i = 0; i < raw_.activities.size(); ++i) {
      const DeviceActivity& a = raw_.activities[i];
      if (a.start_ns <= 0 || a.end_ns < a.start_ns) {
        ++order_.num_untimed;
      } else {
        add(a.correlation, StepKind::activity, a.start_ns, a.end_ns, i);
      }
    }
    for (size_t i = 0; i < raw_.events.size(); ++i) {
      add(raw_.events[i].correlation, StepKind::event, 0, 0, i);
    }
    for (size_t i = 0; i < raw_.syncs.size(); ++i) {
      add(raw_.syncs[i].correlation, StepKind::sync, raw_.syncs[i].start_ns, raw_.syncs[i].end_ns,
          i);
    }
    std::sort(steps.begin(), steps.end(), [](const CallStep& a, const CallStep& b) {
      return std::tie(a.call, a.kind, a.start_ns, a.end_ns, a.position) <
             std::tie(b.call, b.kind, b.start_ns, b.end_ns, b.position);
    });
    return steps;
  }

  [[nodiscard]] int64_t tail_of(const StreamKey& stream) const {
    const auto found = tails_.find(stream);
    return found == tails_.end() ? kNoActivity : found->second;
  }

  /// `producer` if it ends later than `known`.
  [[nodiscard]] int64_t later(int64_t known, int64_t producer) const {
    if (known == kNoActivity || producer == kNoActivity) return std::max(known, producer);
    return activity(producer).end_ns > activity(known).end_ns ? producer : known;
  }

  /// All device work of one call: one piece, or the nodes of a replay.
  void launch(std::span<const CallStep> run) {
    int64_t last = kNoActivity;
    for (const CallStep& step : run) {
      const DeviceActivity& a = activity(step.position);
      order_.place_of[static_cast<size_t>(step.position)] =
          static_cast<int64_t>(order_.activities.size());
      order_.activities.push_back(step.position);
      const auto pending = pending_.find({a.context, a.stream});
      if (pending != pending_.end()) {
        order_.producers[static_cast<size_t>(step.position)] = std::move(pending->second);
        pending_.erase(pending);
      }
      last = later(last, step.position);
    }
    if (run.size() > 1) link_nodes(run);
    // What is enqueued after a replay starts when all of it is done.
    for (const CallStep& step : run) {
      const DeviceActivity& a = activity(step.position);
      tails_[{a.context, a.stream}] = last;
    }
  }

  void link_nodes(std::span<const CallStep> run) {
    std::unordered_map<uint64_t, int64_t> by_origin;
    const auto origin_of = [this](int64_t position) {
      const auto node = labels_.nodes.find(activity(position).graph_node);
      return node == labels_.nodes.end() ? uint64_t{0} : node->second.origin;
    };
    for (const CallStep& step : run) {
      const uint64_t origin = origin_of(step.position);
      if (origin != 0) by_origin.try_emplace(origin, step.position);
    }
    for (const auto& [origin, position] : by_origin) {
      const auto neighbours = labels_.neighbours.find(origin);
      if (neighbours == labels_.neighbours.end()) continue;
      for (const uint64_t neighbour : neighbours->second) {
        const auto other = by_origin.find(neighbour);
        if (other == by_origin.end()) continue;
        if (activity(position).end_ns <= activity(other->second).start_ns) {
          add_producer(other->second, position);
        } else if (activity(other->second).end_ns <= activity(position).start_ns) {
          add_producer(position, other->second);
        }
      }
    }
  }

  void add_producer(int64_t position, int64_t producer) {
    order_.producers[static_cast<size_t>(position)].push_back(producer);
  }

  void synchronize(int64_t position) {
    const Synchronization& sync = raw_.syncs[static_cast<size_t>(position)];
    std::vector<int64_t> producers;
    const auto add = [&](int64_t producer) {
      if (producer != kNoActivity) producers.push_back(producer);
    };
    if (sync.kind == SyncKind::event || sync.kind == SyncKind::stream_wait) {
      ++order_.num_waits;
      const auto event = event_tails_.find(sync.sync_id);
      if (sync.sync_id == kNoSyncId || event == event_tails_.end()) {
        ++order_.num_unresolved_waits;
      } else {
        add(event->second);
      }
    } else if (sync.kind == SyncKind::stream) {
      add(tail_of({sync.context, sync.stream}));
    } else if (sync.kind == SyncKind::device) {
      for (const auto& [stream, tail] : tails_) {
        if (stream.first == sync.context) add(tail);
      }
    }
    if (sync.kind == SyncKind::stream_wait) {
      if (producers.empty()) return;
      std::vector<int64_t>& pending = pending_[{sync.context, sync.stream}];
      pending.insert(pending.end(), producers.begin(), producers.end());
    } else {
      order_.sync_producers[static_cast<size_t>(position)] = std::move(producers);
    }
  }

  const DeviceActivities& raw_;
  const GraphLabels& labels_;
  DeviceOrder order_;
  std::map<StreamKey, int64_t> tails_;  ///< what the next work on the stream comes after
  std::map<StreamKey, std::vector<int64_t>> pending_;  ///< what the stream was told to wait for
  std::unordered_map<uint64_t, int64_t> event_tails_;
};

}  // namespace

DeviceOrder order_activities(const DeviceActivities& raw, const GraphLabels& labels) {
  return Replayer(raw, labels).run();
}

}  // namespace moetune::profiler

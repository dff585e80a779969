// Drafts one record for each piece of work, then orders and links them.
#include "profiler/device/device_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <unordered_map>

#include "profiler/device/device_order.h"
#include "profiler/device/device_owners.h"
#include "profiler/device/kernel_name.h"

namespace moetune::profiler {
namespace {

/// Replays repeat the sequence numbers of the capture. All members of a group replay in the same
/// order, so that this keeps the instances of a step apart and matched.
constexpr int64_t kReplayStride = int64_t{1} << 32;

/// A record that has no id yet.
struct Draft {
  TraceRecord record;
  std::string detail;
  int64_t longest_ns = 0;                       // of the work that `detail` names
  int64_t call = 0;                             // place of its call among the calls
  int64_t place = 0;                            // place among the work of one call
  std::vector<std::vector<int64_t>> producers;  // activities, those of each wait together
};

/// The records of one run of an op on one rank.
struct Run {
  DeviceOp op;
  std::vector<size_t> drafts;
};

const char* text_of(CopyPath path) {
  switch (path) {
    case CopyPath::other:
      return "copy";
    case CopyPath::to_device:
      return "copy to_device";
    case CopyPath::to_host:
      return "copy to_host";
    case CopyPath::on_device:
      return "copy on_device";
    case CopyPath::peer:
      return "copy peer";
    case CopyPath::on_host:
      return "copy on_host";
  }
  return "?";
}

const char* text_of(SyncKind kind) {
  switch (kind) {
    case SyncKind::event:
      return "event_synchronize";
    case SyncKind::stream_wait:
      return "stream_wait_event";
    case SyncKind::stream:
      return "stream_synchronize";
    case SyncKind::device:
      return "device_synchronize";
    case SyncKind::other:
      return "synchronize";
  }
  return "?";
}

bool is_communication(RecordKind kind) {
  return kind == RecordKind::collective || kind == RecordKind::p2p;
}

RecordKind kind_of(const DeviceActivity& activity, const Owner& owner, const std::string& detail) {
  if (owner.is_labelled && is_communication(owner.op.kind)) return owner.op.kind;
  switch (activity.kind) {
    case ActivityKind::kernel:
      // Without a label the name is all there is; as compute it would hide what it costs.
      return !owner.is_labelled && detail.starts_with("nccl") ? RecordKind::collective
                                                              : RecordKind::kernel;
    case ActivityKind::graph:
      return RecordKind::kernel;
    case ActivityKind::copy:
    case ActivityKind::fill:
      break;
  }
  const bool stays_on_device =
      activity.kind == ActivityKind::fill || activity.path == CopyPath::on_device;
  const bool is_of_kernel_op = owner.is_labelled && owner.op.kind == RecordKind::kernel;
  return is_of_kernel_op && stays_on_device ? RecordKind::kernel : RecordKind::memcpy;
}

class Converter {
 public:
  Converter(const DeviceActivities& raw, const OpTable& ops, const GraphLabels& labels,
            const StepWindow& window)
      : raw_(raw),
        window_(window),
        order_(order_activities(raw, labels)),
        calls_(raw, ops, labels),
        streams_(raw, order_, calls_, window.ranks),
        short_names_(raw.names.size()),
        kernels_(raw.names.size()),
        drafts_(window.ranks.size()),
        draft_of_(raw.activities.size(), {-1, 0}),
        last_launch_ns_(window.ranks.size(), window.start_ns) {}

  DeviceStep convert() {
    for (const int64_t position : order_.activities) add_activity(position);
    for (size_t i = 0; i < raw_.syncs.size(); ++i) add_sync(i);
    book_work();
    DeviceStep step;
    for (size_t r = 0; r < window_.ranks.size(); ++r) {
      step.ranks.push_back(finish_rank(static_cast<int>(r)));
    }
    set_facts();
    step.facts = std::move(facts_);
    return step;
  }

 private:
  [[nodiscard]] const DeviceActivity& activity_at(int64_t position) const {
    return raw_.activities[static_cast<size_t>(position)];
  }

  /// Calls count from any one of them.
  int64_t place_of_call(uint32_t correlation) {
    if (!has_base_) base_ = correlation;
    has_base_ = true;
    return correlation_distance(correlation, base_);
  }

  /// Threads count in the order in which their work comes: the system's ids say nothing.
  int32_t thread_number_of(uint32_t thread) {
    return thread_numbers_.try_emplace(thread, static_cast<int32_t>(thread_numbers_.size()))
        .first->second;
  }

  std::string detail_of(const DeviceActivity& activity) {
    switch (activity.kind) {
      case ActivityKind::copy:
        return text_of(activity.path);
      case ActivityKind::fill:
        return "fill";
      case ActivityKind::graph:
        return "graph";
      case ActivityKind::kernel:
        break;
    }
    if (activity.name >= short_names_.size()) return "kernel";
    std::string& name = short_names_[activity.name];
    if (name.empty()) name = short_kernel_name(raw_.names[activity.name]);
    return name.empty() ? "kernel" : name;
  }

  /// What ran as the record.
  void describe(const DeviceActivity& activity, Draft& draft) {
    draft.detail = detail_of(activity);
    draft.record.kernel = {};
    if (activity.kind == ActivityKind::kernel && activity.name < kernels_.size()) {
      base::InternedString& kernel = kernels_[activity.name];
      if (kernel.empty()) kernel = kernel_name_of(full_kernel_name(raw_.names[activity.name]), {});
      draft.record.kernel = kernel;
    }
    draft.record.grid = activity.grid;
    draft.record.block = activity.block;
  }

  void add_activity(int64_t position) {
    const DeviceActivity& activity = activity_at(position);
    if (calls_.is_own(activity)) return;
    const Owner owner = calls_.owner_of(activity);
    const ApiCall* call = calls_.call_of(activity);
    const int rank = streams_.rank_of(owner, activity, call);
    if (rank < 0 || activity.end_ns < window_.start_ns || activity.start_ns > window_.end_ns) {
      ++facts_.num_outside;
      return;
    }
    std::vector<Draft>& drafts = drafts_[static_cast<size_t>(rank)];
    std::pair<int, size_t>& draft_of = draft_of_[static_cast<size_t>(position)];
    if (!owner.is_labelled) {
      ++facts_.num_unlabelled;
    } else {
      Run& run = runs_[{rank, owner.run}];
      if (!run.drafts.empty() && is_communication(owner.op.kind)) {
        draft_of = {rank, run.drafts.front()};
        merge(activity, position, drafts[run.drafts.front()]);
        return;
      }
      run.op = owner.op;
      run.drafts.push_back(drafts.size());
    }
    draft_of = {rank, drafts.size()};
    drafts.push_back(draft_work(activity, position, owner, rank, call));
    if (activity.is_blocking && call != nullptr) {
      draft_blocking_copy(drafts.back(), position, rank, *call);
    }
  }

  Draft draft_work(const DeviceActivity& activity, int64_t position, const Owner& owner, int rank,
                   const ApiCall* call) {
    Draft draft;
    draft.longest_ns = activity.end_ns - activity.start_ns;
    draft.call = place_of_call(activity.correlation);
    draft.place = order_.place_of[static_cast<size_t>(position)];
    draft.producers.push_back(order_.producers[static_cast<size_t>(position)]);
    TraceRecord& record = draft.record;
    describe(activity, draft);
    record.kind = kind_of(activity, owner, draft.detail);
    record.device = activity.device;
    record.stream = streams_.number_of(activity, rank);
    record.start_ns = activity.start_ns;
    record.end_ns = activity.end_ns;
    if (record.kind == RecordKind::memcpy) record.bytes = activity.bytes;
    label(owner, draft);
    if (record.kernel == record.name) record.kernel = {};
    if (record.kind == RecordKind::collective && !owner.is_labelled) record.group = "nccl";
    set_launch(activity, rank, call, record);
    if (activity.kind == ActivityKind::graph || activity.graph_node != 0) {
      const auto [graph, is_new] = graph_ids_.try_emplace({rank, activity.correlation}, 0);
      if (is_new) graph->second = ++num_graphs_[rank];
      record.graph_id = graph->second;
      if (record.sequence >= 0) record.sequence += record.graph_id * kReplayStride;
    }
    return draft;
  }

  static void label(const Owner& owner, Draft& draft) {
    TraceRecord& record = draft.record;
    record.name = owner.is_labelled ? owner.op.tag.name : draft.detail;
    if (!owner.is_labelled) return;
    record.layer = owner.op.tag.layer;
    record.micro_batch = owner.op.tag.micro_batch;
    record.is_recompute = owner.op.tag.is_recompute;
    if (!is_communication(record.kind)) return;
    record.group = owner.op.group;
    record.sequence = owner.op.sequence;
    record.communicator = owner.op.partners.communicator;
    record.peer = owner.op.partners.peer;
  }

  void set_launch(const DeviceActivity& activity, int rank, const ApiCall* call,
                  TraceRecord& record) {
    int64_t& last_ns = last_launch_ns_[static_cast<size_t>(rank)];
    if (call == nullptr) {
      // All that is known: not before the call that went before it.
      ++facts_.num_without_launch;
      record.launch_start_ns = record.launch_end_ns = std::min(last_ns, activity.start_ns);
      return;
    }
    record.thread = thread_number_of(call->thread);
    const int64_t enqueued_ns = activity.is_blocking ? call->start_ns : call->end_ns;
    record.launch_end_ns = std::min(enqueued_ns, activity.start_ns);
    record.launch_start_ns = std::min(call->start_ns, record.launch_end_ns);
    last_ns = std::max(last_ns, record.launch_end_ns);
  }

  /// Further work of a communication op.
  void merge(const DeviceActivity& activity, int64_t position, Draft& draft) {
    TraceRecord& record = draft.record;
    record.start_ns = std::min(record.start_ns, activity.start_ns);
    record.end_ns = std::max(record.end_ns, activity.end_ns);
    record.launch_end_ns = std::min(record.launch_end_ns, record.start_ns);
    record.launch_start_ns = std::min(record.launch_start_ns, record.launch_end_ns);
    const int64_t duration_ns = activity.end_ns - activity.start_ns;
    if (duration_ns > draft.longest_ns) {
      draft.longest_ns = duration_ns;
      describe(activity, draft);
    }
    draft.producers.push_back(order_.producers[static_cast<size_t>(position)]);
  }

  void draft_blocking_copy(const Draft& copy, int64_t position, int rank, const ApiCall& call) {
    Draft draft;
    draft.detail = copy.detail;
    draft.call = copy.call;
    draft.place = copy.place + 1;
    draft.producers.push_back({position});
    draft.record.name = copy.record.name;
    draft.record.layer = copy.record.layer;
    draft.record.micro_batch = copy.record.micro_batch;
    draft.record.thread = copy.record.thread;
    set_host_times(call.start_ns, call.end_ns, draft.record);
    host_drafts_.emplace_back(rank, std::move(draft));
  }

  static void set_host_times(int64_t start_ns, int64_t end_ns, TraceRecord& record) {
    record.kind = RecordKind::host_sync;
    record.stream = kHostStream;
    record.launch_start_ns = record.launch_end_ns = record.start_ns = start_ns;
    record.end_ns = end_ns;
  }

  void add_sync(size_t i) {
    const Synchronization& sync = raw_.syncs[i];
    if (sync.kind == SyncKind::stream_wait || calls_.is_own(sync)) return;
    const ApiCall* call = calls_.call_of(sync);
    int64_t start_ns = sync.start_ns;
    int64_t end_ns = sync.end_ns;
    if (start_ns <= 0 && call != nullptr) {
      start_ns = call->start_ns;
      end_ns = call->end_ns;
    }
    if (start_ns <= 0 || end_ns < start_ns) {
      ++facts_.num_untimed;
      return;
    }
    const Owner owner = calls_.owner_of(sync);
    const int rank = streams_.rank_of(owner, sync, call);
    if (rank < 0 || end_ns < window_.start_ns || start_ns > window_.end_ns) {
      ++facts_.num_outside;
      return;
    }
    Draft draft;
    draft.detail = text_of(sync.kind);
    draft.call = place_of_call(sync.correlation);
    draft.place = static_cast<int64_t>(raw_.activities.size() + i);  // after the work of its call
    draft.producers.push_back(order_.sync_producers[i]);
    if (call != nullptr) draft.record.thread = thread_number_of(call->thread);
    set_host_times(start_ns, end_ns, draft.record);
    label(owner, draft);
    host_drafts_.emplace_back(rank, std::move(draft));
  }

  void book_work() {
    for (const auto& [key, run] : runs_) {
      std::vector<Draft>& drafts = drafts_[static_cast<size_t>(key.first)];
      Draft* longest = nullptr;
      for (const size_t i : run.drafts) {
        if (drafts[i].record.kind == RecordKind::memcpy) continue;  // has its own bytes
        if (longest == nullptr || drafts[i].longest_ns > longest->longest_ns) longest = &drafts[i];
      }
      if (longest == nullptr) continue;
      longest->record.flops = run.op.tag.flops;
      longest->record.bytes = run.op.tag.bytes;
    }
  }

  RankStep finish_rank(int rank) {
    std::vector<Draft>& drafts = drafts_[static_cast<size_t>(rank)];
    for (auto& [host_rank, draft] : host_drafts_) {
      if (host_rank == rank) drafts.push_back(std::move(draft));
    }
    std::vector<size_t> order(drafts.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(), [&drafts](size_t a, size_t b) {
      return std::tie(drafts[a].call, drafts[a].place, a) <
             std::tie(drafts[b].call, drafts[b].place, b);
    });
    std::vector<int64_t> ids(drafts.size());
    for (size_t i = 0; i < order.size(); ++i) ids[order[i]] = static_cast<int64_t>(i);

    RankStep step;
    StepTrace& trace = step.trace;
    trace.rank = window_.ranks[static_cast<size_t>(rank)];
    trace.step = window_.step;
    trace.start_ns = window_.start_ns;
    trace.end_ns = window_.end_ns;
    trace.records.reserve(drafts.size());
    step.details.reserve(drafts.size());
    for (const size_t i : order) {
      TraceRecord& record = drafts[i].record;
      record.id = ids[i];
      record.rank = trace.rank;
      record.step = trace.step;
      if (is_communication(record.kind)) record.transfer_ns = record.end_ns - record.start_ns;
      set_producers(drafts[i], rank, ids, trace);
      if (record.kind != RecordKind::host_sync) {
        trace.end_ns = std::max(trace.end_ns, record.end_ns);
      }
      trace.records.push_back(std::move(record));
      step.details.push_back(std::move(drafts[i].detail));
    }
    sort_further_waits(trace);
    return step;
  }

  /// Ids by draft of the same rank. What waits for another rank's work at last has no producer
  /// here: why that was late shows on that rank.
  void set_producers(Draft& draft, int rank, const std::vector<int64_t>& ids, StepTrace& trace) {
    TraceRecord& record = draft.record;
    const auto id_of = [&](int64_t position) {
      const auto& [producer_rank, producer] = draft_of_[static_cast<size_t>(position)];
      return producer_rank == rank && ids[producer] < record.id ? ids[producer] : kNoRecord;
    };
    int64_t latest_ns = 0;
    for (const std::vector<int64_t>& producers : draft.producers) {
      if (producers.empty()) continue;
      // Of those that end at once the first.
      const int64_t last = *std::ranges::max_element(
          producers, {}, [&](int64_t position) { return activity_at(position).end_ns; });
      const int64_t end_ns = activity_at(last).end_ns;
      if (id_of(last) == kNoRecord) continue;
      if (record.producer_id != kNoRecord && end_ns <= latest_ns) continue;
      record.producer_id = id_of(last);
      latest_ns = end_ns;
    }
    for (const std::vector<int64_t>& producers : draft.producers) {
      for (const int64_t position : producers) {
        const int64_t id = id_of(position);
        if (id == kNoRecord || id == record.producer_id) continue;
        trace.further_waits.push_back({record.id, id});
      }
    }
  }

  void set_facts() {
    facts_.num_records = raw_.num_records;
    facts_.num_dropped = raw_.num_dropped;
    facts_.num_unknown = raw_.num_unknown;
    facts_.num_broken_buffers = raw_.num_broken_buffers;
    facts_.num_untimed += order_.num_untimed;
    facts_.num_waits = order_.num_waits;
    facts_.num_unresolved_waits = order_.num_unresolved_waits;
    std::map<std::string, OverheadSum> sums;
    for (const OverheadSpan& span : raw_.overheads) {
      const int64_t start_ns = std::max(span.start_ns, window_.start_ns);
      const int64_t end_ns = std::min(span.end_ns, window_.end_ns);
      if (start_ns > end_ns) continue;
      OverheadSum& sum = sums[span.name];
      sum.name = span.name;
      ++sum.count;
      sum.ns += end_ns - start_ns;
    }
    for (auto& [name, sum] : sums) facts_.overheads.push_back(std::move(sum));
    std::stable_sort(facts_.overheads.begin(), facts_.overheads.end(),
                     [](const OverheadSum& a, const OverheadSum& b) { return a.ns > b.ns; });
  }

  const DeviceActivities& raw_;
  const StepWindow& window_;
  DeviceOrder order_;
  CallIndex calls_;
  StreamMap streams_;
  RecordingFacts facts_;
  std::vector<std::string> short_names_;
  std::vector<base::InternedString> kernels_;  // full names
  // By rank: the index in the window's list.
  std::vector<std::vector<Draft>> drafts_;
  std::vector<std::pair<int, Draft>> host_drafts_;
  std::vector<std::pair<int, size_t>> draft_of_;  // by activity: rank and draft
  std::vector<int64_t> last_launch_ns_;
  std::unordered_map<uint32_t, int32_t> thread_numbers_;
  std::map<std::pair<int, RunKey>, Run> runs_;
  std::map<std::pair<int, uint32_t>, int32_t> graph_ids_;
  std::map<int, int32_t> num_graphs_;
  bool has_base_ = false;
  uint32_t base_ = 0;
};

}  // namespace

DeviceStep convert_step(const DeviceActivities& raw, const OpTable& ops, const GraphLabels& labels,
                        const StepWindow& window) {
  return Converter(raw, ops, labels, window).convert();
}

void RecordingCounts::operator+=(const RecordingCounts& other) {
  using Counts = RecordingCounts;
  for (int64_t Counts::*count :
       {&Counts::num_records, &Counts::num_dropped, &Counts::num_unknown,
        &Counts::num_broken_buffers, &Counts::num_untimed, &Counts::num_outside,
        &Counts::num_unlabelled, &Counts::num_without_launch, &Counts::num_waits}) {
    this->*count += other.*count;
  }
  if (other.lacks_records()) num_unresolved_waits += other.num_unresolved_waits;
}

std::string missing_text(const RecordingCounts& counts) {
  std::vector<std::string> parts;
  const auto add = [&parts](int64_t count, const char* what) {
    if (count > 0) parts.push_back(fmt::format("{}: {}", what, count));
  };
  add(counts.num_dropped, "records dropped for lack of buffers");
  add(counts.num_broken_buffers, "buffers with an unreadable end");
  add(counts.num_untimed, "records without times");
  add(counts.num_without_launch, "device work without its launch");
  add(counts.num_unlabelled, "device work of no op");
  if (counts.lacks_records()) add(counts.num_unresolved_waits, "waits for unknown events");
  if (parts.empty()) return {};
  return fmt::format("the device trace is incomplete: {}", fmt::join(parts, "; "));
}

}  // namespace moetune::profiler

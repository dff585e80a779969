#include "profiler/analysis/imported_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "kernels/base/cxx_names.h"
#include "kernels/base/large_memory.h"
#include "kernels/base/utf8.h"
#include "profiler/analysis/counted_steps.h"
#include "profiler/analysis/expert_exchanges.h"
#include "profiler/analysis/expert_kernels.h"
#include "profiler/analysis/launch_order.h"
#include "profiler/analysis/recurring_steps.h"
#include "profiler/analysis/work_traits.h"

namespace moetune::profiler {
namespace {

bool is_stop(const HostCall& call) {
  return call.kind == CallKind::sync || call.kind == CallKind::allocation;
}

/// Of names, for people: a name in a file may have megabytes.
constexpr size_t kMostShownBytes = 120;
/// Group of all messages between stages.
constexpr const char* kStages = "pipeline";

/// What the file calls the group that an operation communicates in; empty: it does not.
std::string purpose_of(const ImportedTrace& trace, const ImportedOp& op) {
  if (op.comm == kNoRow) return {};
  const CommCall& comm = trace.comms[op.comm];
  for (const uint32_t name : {comm.description, comm.group}) {
    if (name != kNoRow && !trace.names[name].empty()) {
      return std::string(base::cut_text(trace.names[name], kMostShownBytes));
    }
  }
  return {};
}

/// Whether waits between streams would be in the trace, had there been any: it has waits of some
/// kind, or the calls for events.
bool shows_waits(const ImportedTrace& trace) {
  return !trace.syncs.empty() || std::ranges::any_of(trace.calls, [](const HostCall& call) {
    return call.kind == CallKind::event_record || call.kind == CallKind::stream_wait;
  });
}

int64_t threads_of(const ImportedTrace& trace, const ImportedOp& op) {
  if (op.kind != ActivityKind::kernel || op.detail == kNoRow) return 0;
  const LaunchShape& shape = trace.shapes[op.detail];
  double threads = 1;  // of absurd shapes, too
  for (const uint32_t extent : shape.grid) threads *= std::max(extent, 1U);
  for (const uint32_t extent : shape.block) threads *= std::max(extent, 1U);
  return static_cast<int64_t>(std::min(threads, 1e15));
}

}  // namespace

TraceExtent extent_of(const ImportedTrace& trace) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  TraceExtent extent = {kInfinity, -kInfinity};
  const auto see = [&](const auto& rows) {
    for (const auto& row : rows) {
      extent.first_ns = std::min(extent.first_ns, static_cast<double>(row.start_ns));
      extent.last_ns = std::max(extent.last_ns, static_cast<double>(row.end_ns));
    }
  };
  see(trace.ops);
  see(trace.calls);
  see(trace.steps);
  return extent;
}

ImportedSteps::ImportedSteps(std::span<const ImportedTrace> traces,
                             const CollectiveMatching& matching, RecordNames names,
                             const PartSizes& sizes)
    : traces_(traces), names_(names), clock_offsets_ns_(matching.clock_offsets_ns) {
  clock_offsets_ns_.resize(traces.size());
  std::vector<std::vector<bool>> is_message = stage_messages_of(traces, matching);
  for (uint32_t trace = 0; trace < traces.size(); ++trace) {
    if (traces[trace].ops.empty()) continue;
    add_rank(trace);
    ranks_.back().is_message = std::move(is_message[trace]);
  }
  find_slices(matching, sizes);
  find_matched_ops(matching);
  for (Rank& rank : ranks_) find_communicators(rank);
  for (Rank& rank : ranks_) {
    if (!shows_waits(traces_[rank.trace])) infer_message_waits(rank);
  }
}

void ImportedSteps::add_rank(uint32_t index) {
  const ImportedTrace& trace = traces_[index];
  Rank& rank = ranks_.emplace_back(index, trace);
  for (size_t name = 0; name < trace.names.size(); ++name) {
    const std::string& text = trace.names[static_cast<uint32_t>(name)];
    rank.name_ids.push_back(ids_.try_emplace(text, ids_.size()).first->second);
    if (names_ == RecordNames::texts) {
      rank.labels.emplace_back(base::cut_text(base::unscoped_name(text), kMostShownBytes));
    }
  }
  rank.is_of_experts = expert_kernels_of(trace);
  rank.is_launching.resize(trace.threads.size());
  std::vector<Launch> launches;
  for (const ImportedOp& op : trace.ops) {
    const HostCall* call = trace.launch_of(op);
    if (call == nullptr) continue;
    // A thread that only fetches data takes no turns with the one that trains.
    if (op.kind == ActivityKind::kernel || op.kind == ActivityKind::graph) {
      launches.push_back({call->start_ns, call->thread});
    }
    rank.is_launching[call->thread] = true;
  }
  if (!std::ranges::is_sorted(launches, {}, &Launch::start_ns)) {
    std::ranges::sort(launches, {}, &Launch::start_ns);
  }
  if (!launches.empty()) rank.first_launch_ns = launches.front().start_ns;
  for (uint32_t row = 0; row < trace.calls.size(); ++row) {
    const HostCall& call = trace.calls[row];
    if (is_stop(call) && holds_up(rank, launches, call)) rank.stops.push_back(row);
  }
  rank.idle_launches_ns = idle_launches_of(trace);
  rank.loading = loading_of(trace);
  rank.program = program_of(trace);
  rank.offloading = offloading_of(trace);
  find_stream_waits(rank);
}

bool ImportedSteps::holds_up(const Rank& rank, const std::vector<Launch>& launches,
                             const HostCall& call) {
  if (!rank.is_launching[call.thread]) return false;
  if (call.kind != CallKind::sync) return true;
  const auto first = std::ranges::upper_bound(launches, call.start_ns, {}, &Launch::start_ns);
  return first == launches.end() || first->start_ns >= call.end_ns || first->thread == call.thread;
}

void ImportedSteps::find_slices(const CollectiveMatching& matching, const PartSizes& sizes) {
  if (ranks_.empty()) return;
  std::vector<TraceWindows> windows;
  for (const Rank& rank : ranks_) windows.emplace_back(traces_[rank.trace], DeviceOps::all);
  if (take_slices(steps_of_ranks(traces_, matching), windows)) return;
  are_parts_ = take_slices(parts_of_ranks(traces_, matching, sizes), windows);
  if (are_parts_) return;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    ranks_[i].slices.push_back(whole_trace_of(ranks_[i], windows[i]));
  }
}

bool ImportedSteps::take_slices(const std::vector<std::vector<ImportedStep>>& marked,
                                const std::vector<TraceWindows>& windows) {
  std::vector<std::map<int64_t, StepSlice>> steps;  // by rank and number
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const uint32_t trace = ranks_[i].trace;
    steps.push_back(steps_of(traces_[trace], marked[trace], windows[i]));
  }
  std::vector<int64_t> common;  // numbers of the steps that all ranks have
  for (const auto& step : steps[0]) {
    const auto has_step = [&](const auto& of_rank) { return of_rank.contains(step.first); };
    if (std::ranges::all_of(steps, has_step)) common.push_back(step.first);
  }
  for (size_t i = 0; i < ranks_.size(); ++i) {
    for (const int64_t number : common) {
      ranks_[i].slices.push_back(std::move(steps[i].at(number)));
    }
  }
  return !common.empty();
}

/// Steps of one rank that launch work, by their number.
std::map<int64_t, ImportedSteps::StepSlice> ImportedSteps::steps_of(
    const ImportedTrace& trace, const std::vector<ImportedStep>& marked,
    const TraceWindows& windows) {
  std::map<int64_t, StepSlice> steps;
  if (marked.empty()) return steps;
  const std::vector<LaunchedWork> work = launched_work_of(trace);
  for (const ImportedStep& step : steps_with_work(marked, work)) {
    auto window = windows.make(WindowKind::step_by_launch, &step);
    if (!window) continue;
    const auto later = std::ranges::lower_bound(work, step.start_ns, {}, &LaunchedWork::launch_ns);
    const int64_t start_ns = later == work.begin()
                                 ? step.start_ns
                                 : std::max(step.start_ns, std::prev(later)->latest_end_ns);
    steps[step.number] = {std::move(window->ops),
                          {step.start_ns, step.end_ns},
                          {start_ns, std::max({start_ns, window->time.end_ns, step.end_ns})}};
  }
  return steps;
}

/// All launched work of one rank as one step; all work where no launch is known.
ImportedSteps::StepSlice ImportedSteps::whole_trace_of(const Rank& rank,
                                                       const TraceWindows& windows) {
  auto window = windows.make(WindowKind::launched);
  if (!window) window = windows.make(WindowKind::whole);
  Interval host = window->time;
  if (rank.first_launch_ns) host.start_ns = std::min(host.start_ns, *rank.first_launch_ns);
  return {std::move(window->ops), host, window->time};
}

void ImportedSteps::find_matched_ops(const CollectiveMatching& matching) {
  MatchedOps ops(traces_.size());
  add_collectives(matching, ops);
  add_messages(matching, ops);
  matched_ops_ = sorted_by_op<MatchedOp>(std::move(ops));
}

void ImportedSteps::add_collectives(const CollectiveMatching& matching, MatchedOps& ops) {
  std::map<int64_t, std::string> groups;  // by communicator
  std::map<std::string, size_t> purposes;
  std::vector<std::vector<ByOp<int64_t>::Entry>> received(traces_.size());
  for (const MatchedCollective& one : matching.matched) {
    const ImportedTrace& first = traces_[one.parts[0].trace];
    const ImportedOp& op = first.ops[one.parts[0].op];
    const CommCall comm = op.comm == kNoRow ? CommCall() : first.comms[op.comm];
    const int64_t id = id_of(identity_of(first, comm));
    const auto [at, is_new] = groups.try_emplace(id);
    std::string& group = at->second;
    if (is_new) {
      // Communicators of one purpose are compared, unless a rank is in two of them.
      const std::string purpose = purpose_of(first, op);
      const size_t number = purposes.try_emplace(purpose, purposes.size()).first->second;
      group =
          names_ == RecordNames::texts && !purpose.empty() ? purpose : fmt::format("g{}", number);
      const bool is_taken = std::ranges::any_of(one.parts, [&](const CollectivePart& part) {
        return communicators_.contains({static_cast<int32_t>(part.trace), group});
      });
      if (is_taken) group += fmt::format("#{}", id);
    }
    const std::optional<ExpertExchange> exchange = expert_exchange_of(traces_, one);
    const MatchedOp matched = {static_cast<uint32_t>(matches_.size())};
    for (size_t number = 0; number < one.parts.size(); ++number) {
      const CollectivePart& part = one.parts[number];
      communicators_.emplace(std::pair(static_cast<int32_t>(part.trace), group), id);
      ops[part.trace].push_back({part.op, matched});
      if (exchange) received[part.trace].push_back({part.op, exchange->received[number]});
    }
    Match& match = matches_.emplace_back(Match{group, one.transfer_ns, id});
    if (exchange) match.opens = exchange->opens;
    if (exchange) match.closes = exchange->closes;
  }
  received_nelems_ = sorted_by_op<int64_t>(std::move(received));
}

int32_t ImportedSteps::peer_of(const MatchedCollective& message, size_t part) const {
  const CollectivePart& own = message.parts[part];
  const ImportedTrace& trace = traces_[own.trace];
  const int32_t named = trace.comms[trace.ops[own.op].comm].peer;
  if (named >= 0 || message.parts.size() != 2) return named;
  const std::optional<int64_t>& rank = traces_[message.parts[1 - part].trace].facts.rank;
  const bool is_known = rank && *rank >= 0 && *rank <= std::numeric_limits<int32_t>::max();
  return is_known ? static_cast<int32_t>(*rank) : -1;
}

/// Numbered one by one behind the collectives: a message has two ends, whatever the files count.
/// Ranks that messages connect are one pipeline.
void ImportedSteps::add_messages(const CollectiveMatching& matching, MatchedOps& ops) {
  const size_t num_before = matches_.size();
  std::vector<uint32_t> pipelines(traces_.size());  // by trace
  std::iota(pipelines.begin(), pipelines.end(), 0U);
  for (const MatchedCollective& one : matching.messages) {
    const auto number = static_cast<uint32_t>(matches_.size());
    matches_.push_back({kStages, one.transfer_ns});
    for (size_t part = 0; part < one.parts.size(); ++part) {
      const ImportedTrace& trace = traces_[one.parts[part].trace];
      const bool does_both =
          sends_and_receives(trace, trace.comms[trace.ops[one.parts[part].op].comm]);
      ops[one.parts[part].trace].push_back(
          {one.parts[part].op, {number, peer_of(one, part), part > 0 || does_both}});
      const uint32_t own = pipelines[one.parts[part].trace];
      const uint32_t first = pipelines[one.parts[0].trace];
      if (own != first) std::ranges::replace(pipelines, own, first);
    }
  }
  for (size_t i = 0; i < matching.messages.size(); ++i) {
    matches_[num_before + i].communicator = pipelines[matching.messages[i].parts[0].trace];
  }
  for (uint32_t trace = 0; trace < pipelines.size(); ++trace) {
    communicators_.emplace(std::pair(static_cast<int32_t>(trace), kStages), pipelines[trace]);
  }
}

base::InternedString ImportedSteps::name_of_kernel(const Rank& rank, const ImportedOp& op) const {
  if (names_ == RecordNames::texts) return rank.labels[op.name];
  return fmt::format("{}", rank.name_ids[op.name]);
}

base::InternedString ImportedSteps::name_of_work(const Rank& rank, const ImportedOp& op,
                                                 WorkNames& names) const {
  if (names_ == RecordNames::texts) return name_of_kernel(rank, op);
  const uint32_t shape = op.kind == ActivityKind::kernel ? op.detail : kNoRow;
  const auto [at, is_new] = names.try_emplace((uint64_t{op.name} << 32) | shape);
  if (is_new) {
    at->second = fmt::format("{}/{}", rank.name_ids[op.name], threads_of(traces_[rank.trace], op));
  }
  return at->second;
}

TraceRecord ImportedSteps::record_of(const Rank& rank, uint32_t row, WorkNames& names) const {
  const ImportedTrace& trace = traces_[rank.trace];
  const ImportedOp& op = trace.ops[row];
  TraceRecord record;
  record.rank = static_cast<int32_t>(rank.trace);
  record.stream = op.stream;
  record.start_ns = op.start_ns;
  record.end_ns = op.end_ns;
  record.is_recompute = std::ranges::binary_search(trace.recomputed, row);
  const bool is_host_copy = op.kind == ActivityKind::copy &&
                            (op.path == CopyPath::to_device || op.path == CopyPath::to_host);
  if (is_host_copy) {
    record.kind = RecordKind::memcpy;
    record.name = is_offload(op, rank.offloading)  ? "offload"
                  : op.path == CopyPath::to_device ? "input"
                                                   : kReadValue;
    record.bytes = op.bytes;
  } else if (rank.work.of(op) != WorkClass::communication) {
    record.name = name_of_work(rank, op, names);
    record.is_of_experts = rank.is_of_experts[row];
  } else if (op.comm != kNoRow && rank.is_message[op.comm]) {
    record.kind = RecordKind::p2p;
    record.name = "send";
    record.bytes = op.bytes;
    record.group = kStages;
    if (const MatchedOp* matched = matched_ops_[rank.trace].find(row)) {
      if (matched->is_receive) record.name = "recv";
      if (sends_and_receives(trace, trace.comms[op.comm])) record.name = "send+recv";
      record.sequence = matched->match;
      record.transfer_ns = std::min(op.duration_ns(), matches_[matched->match].transfer_ns);
    }
  } else {
    record.kind = RecordKind::collective;
    record.name = name_of_kernel(rank, op);
    record.bytes = op.bytes;
    const MatchedOp* matched = matched_ops_[rank.trace].find(row);
    if (matched == nullptr) {
      record.group = names_ == RecordNames::texts ? purpose_of(trace, op) : std::string();
      if (record.group.empty()) record.group = "alone";
      record.transfer_ns = op.duration_ns();
    } else {
      const Match& match = matches_[matched->match];
      record.group = match.group;
      record.sequence = matched->match;
      record.transfer_ns = std::min(op.duration_ns(), match.transfer_ns);
      const bool is_exchange = match.opens || match.closes;
      if (is_exchange && names_ == RecordNames::numbers) record.name = kExpertExchange;
    }
  }
  set_launch(rank, op, names, record);
  set_partners(rank, row, record);
  return record;
}

/// Writes the records of one rank's step, in the order in which the host launched them.
class ImportedSteps::Writer {
 public:
  Writer(const ImportedSteps& steps, const Rank& rank, const StepSlice& slice)
      : steps_(steps), rank_(rank), slice_(slice), trace_(steps.traces_[rank.trace]) {
    step_.rank = static_cast<int32_t>(rank.trace);
    step_.start_ns = slice.time.start_ns;
    step_.end_ns = slice.time.end_ns;
    host_ns_ = device_end_ns_ = step_.start_ns;
    next_wait_ =
        std::ranges::lower_bound(rank.stream_waits, slice.host.start_ns, {}, &StreamWait::wait_ns);
  }

  StepTrace write() {
    struct Item {
      int64_t start_ns = 0;
      uint32_t row = 0;
      bool is_op = true;
    };
    std::vector<Item> items;
    base::reserve_large(items, slice_.ops.size());
    int64_t launched_ns = step_.start_ns;
    for (const uint32_t row : slice_.ops) {
      const HostCall* call = trace_.launch_of(trace_.ops[row]);
      if (call != nullptr) launched_ns = call->start_ns;
      items.push_back({launched_ns, row, true});
    }
    auto stop = std::ranges::lower_bound(rank_.stops, slice_.host.start_ns, {},
                                         [&](uint32_t row) { return trace_.calls[row].start_ns; });
    for (; stop != rank_.stops.end(); ++stop) {
      const HostCall& call = trace_.calls[*stop];
      if (call.start_ns >= slice_.host.end_ns) break;
      if (call.end_ns > step_.start_ns) items.push_back({call.start_ns, *stop, false});
    }
    if (!std::ranges::is_sorted(items, {}, &Item::start_ns)) {
      std::ranges::stable_sort(items, {}, &Item::start_ns);
    }
    base::reserve_large(step_.records, items.size());
    for (const Item& item : items) {
      if (item.is_op) {
        add_op(item.row);
      } else {
        add_stop(trace_.calls[item.row]);
      }
    }
    finish_host();
    sort_further_waits(step_);
    return std::move(step_);
  }

 private:
  struct Producer {
    int64_t id = kNoRecord;
    bool is_inferred = false;
  };

  int64_t add(TraceRecord record) {
    record.id = static_cast<int64_t>(step_.records.size());
    step_.records.push_back(std::move(record));
    return step_.records.back().id;
  }

  /// `call`: in which the host waits or works; null: none.
  void add_host(RecordKind kind, const char* name, int64_t start_ns, int64_t end_ns,
                const HostCall* call = nullptr, int64_t producer = kNoRecord) {
    TraceRecord record;
    record.rank = step_.rank;
    record.kind = kind;
    record.stream = kHostStream;
    record.name = name;
    record.launch_start_ns = record.launch_end_ns = record.start_ns = start_ns;
    record.end_ns = std::max(start_ns, end_ns);
    record.producer_id = producer;
    if (call != nullptr) record.thread = call->thread;
    host_ns_ = std::max(host_ns_, record.end_ns);
    add(std::move(record));
  }

  /// Of the host's time up to there, what went to loading. A long rest is a stall, unless the host
  /// was seen in its program.
  void load_until(int64_t moment_ns) {
    const Interval gap = {host_ns_, moment_ns};
    const int64_t loading_ns = covered_ns(rank_.loading, gap);
    if (gap.length_ns() - loading_ns > kStallNs && is_in_program(rank_.program, gap)) {
      add_host(RecordKind::host_work, "program", host_ns_, moment_ns - loading_ns);
    }
    if (loading_ns > 0) {
      add_host(RecordKind::host_work, "load", moment_ns - loading_ns, moment_ns);
    }
  }

  void add_op(uint32_t row) {
    const ImportedOp& op = trace_.ops[row];
    const HostCall* call = trace_.launch_of(op);
    TraceRecord record = steps_.record_of(rank_, row, work_names_);
    // What ran beside earlier work, as copies of the next input do, is of no step's time.
    record.start_ns = std::max(record.start_ns, step_.start_ns);
    record.end_ns = std::max(record.end_ns, step_.start_ns);
    record.transfer_ns = std::min(record.transfer_ns, record.end_ns - record.start_ns);
    record.launch_start_ns = record.launch_end_ns = host_ns_;
    const bool is_waited_for = call != nullptr && returns_with(*call, op);
    if (call != nullptr) {
      load_until(call->start_ns);
      const Producer producer = producer_of(op, call->start_ns);
      record.producer_id = producer.id;
      record.is_producer_inferred = producer.is_inferred;
      // A device may start before the call has returned. Of a call that returns with its copy the
      // time before the copy is no launching where the device was busy: the host waits for that.
      const bool is_kept = is_waited_for && is_kept_busy(op, *call, producer);
      const int64_t begun_ns = is_kept ? call->start_ns + kUsualLaunchNs : op.start_ns;
      record.launch_end_ns =
          std::clamp(call->end_ns, step_.start_ns, std::max(step_.start_ns, begun_ns));
      record.launch_start_ns = std::clamp(call->start_ns, step_.start_ns, record.launch_end_ns);
      host_ns_ = std::max(host_ns_, record.launch_end_ns);
    }
    const int64_t id = add(std::move(record));
    for (const int64_t producer : further_) step_.further_waits.push_back({id, producer});
    further_.clear();
    follow_exchanges(row, id);
    device_end_ns_ = std::max(device_end_ns_, op.end_ns);
    // Programs have some dozens of streams; of each copy all are looked through.
    constexpr size_t kMostStreams = 256;
    if (last_ends_ns_.size() < kMostStreams || last_ends_ns_.contains(op.stream)) {
      last_ends_ns_[op.stream] = op.end_ns;
    }
    if (!rank_.stream_waits.empty()) {
      launched_[op.stream].push_back({call == nullptr ? host_ns_ : call->start_ns, id});
    }
    last_copy_ = call != nullptr && op.kind == ActivityKind::copy ? &op : nullptr;
    if (is_waited_for && call->end_ns > host_ns_) {
      const char* why = why_waiting({host_ns_, call->end_ns});
      add_host(RecordKind::host_sync, why == nullptr ? "copy" : why, host_ns_, call->end_ns, call,
               id);
    }
  }

  /// Whether a call enqueues a copy and waits for it. From memory that is not pinned a call of any
  /// name returns when its copy is nearly done.
  static bool returns_with(const HostCall& call, const ImportedOp& op) {
    if (op.kind != ActivityKind::copy) return false;
    return call.kind == CallKind::blocking_copy ||
           (call.kind == CallKind::copy && call.end_ns >= op.end_ns - op.duration_ns() / 20);
  }

  /// Whether a copy started when work that was enqueued before it had ended, on its stream or
  /// another one, and that work ended after a launch would have returned.
  [[nodiscard]] bool is_kept_busy(const ImportedOp& op, const HostCall& call,
                                  const Producer& producer) const {
    const Interval just_before = {
        std::max(op.start_ns - kDeviceLatencyNs, call.start_ns + kUsualLaunchNs),
        op.start_ns + kRoundingNs};
    const auto is_within = [&](int64_t end_ns) {
      return end_ns >= just_before.start_ns && end_ns <= just_before.end_ns;
    };
    if (producer.id != kNoRecord && is_within(end_of(producer.id))) return true;
    return std::ranges::any_of(last_ends_ns_,
                               [&](const auto& end) { return is_within(end.second); });
  }

  /// Why the host waits behind the copy that it enqueued last, where it would not do so without
  /// offloading, or with input that is there in time. Null: the copy says nothing of the wait.
  [[nodiscard]] const char* why_waiting(const Interval& wait) const {
    if (last_copy_ == nullptr || is_value(*last_copy_)) return nullptr;
    if (last_copy_->path != CopyPath::to_device && last_copy_->path != CopyPath::to_host) {
      return nullptr;
    }
    // Whatever was enqueued before it is waited for, too, but only as the copy is.
    if (rank_.offloading.is_both_ways) return "wait for offload";
    const int64_t copying_ns = overlap_ns(wait, {last_copy_->start_ns, last_copy_->end_ns});
    if (2 * copying_ns <= wait.length_ns()) return nullptr;
    if (last_copy_->path == CopyPath::to_device) return "wait for input";
    return is_offload(*last_copy_, rank_.offloading) ? "wait for offload" : nullptr;
  }

  /// Kernels between an exchange that brings rows of experts and the one that takes them back are
  /// of one layer, which has the exchange's number. Of chunks, several exchanges are open at once.
  void follow_exchanges(uint32_t row, int64_t id) {
    TraceRecord& record = step_.records[static_cast<size_t>(id)];
    if (record.kind == RecordKind::kernel) {
      if (num_open_ > 0) {
        expert_kernels_.push_back({id, row, layer_, received_});
      } else if (received_ > 0 && rank_.is_of_experts[row]) {
        // Gradients of weights may be left until the rows have gone back.
        take_for_expert({id, row, layer_, received_});
      }
      return;
    }
    if (record.kind != RecordKind::collective || !(record.name == kExpertExchange)) return;
    const MatchedOp& matched = *steps_.matched_ops_[rank_.trace].find(row);
    const Match& match = steps_.matches_[matched.match];
    if (match.opens && !(match.closes && num_open_ > 0)) {
      ++num_open_;
      layer_ = static_cast<int32_t>(matched.match);
      received_ = *steps_.received_nelems_[rank_.trace].find(row);
      record.layer = layer_;
    } else if (num_open_ > 0) {
      --num_open_;
      record.layer = layer_;
      for (const ExpertKernel& kernel : expert_kernels_) take_for_expert(kernel);
      expert_kernels_.clear();
    }
  }

  struct ExpertKernel {
    int64_t id = 0;
    uint32_t row = 0;
    int32_t layer = 0;
    int64_t received = 0;
  };
  void take_for_expert(const ExpertKernel& kernel) {
    TraceRecord& own = step_.records[static_cast<size_t>(kernel.id)];
    own.layer = kernel.layer;
    // Only in proportion. Its number of threads may follow from the rows.
    own.flops = kernel.received;
    own.name = steps_.name_of_kernel(rank_, trace_.ops[kernel.row]);
  }

  void add_stop(const HostCall& call) {
    load_until(call.start_ns);
    const bool is_sync = call.kind == CallKind::sync;
    const int64_t start_ns = std::max(call.start_ns, host_ns_);
    const char* why = is_sync ? why_waiting({start_ns, call.end_ns}) : nullptr;
    add_host(is_sync ? RecordKind::host_sync : RecordKind::host_work,
             why != nullptr ? why
             : is_sync      ? "sync"
                            : "alloc",
             start_ns, call.end_ns, &call);
    last_copy_ = nullptr;
  }

  /// What the stream has been told to wait for since its last work: what ends last of it. The rest
  /// of what the file states of it goes to further_.
  Producer producer_of(const ImportedOp& op, int64_t moment_ns) {
    for (; next_wait_ != rank_.stream_waits.end() && next_wait_->wait_ns <= moment_ns;
         ++next_wait_) {
      const auto launched = launched_.find(next_wait_->producer_stream);
      if (launched == launched_.end()) continue;
      const auto behind = std::ranges::upper_bound(launched->second, next_wait_->record_ns, {},
                                                   &std::pair<int64_t, int64_t>::first);
      if (behind == launched->second.begin()) continue;
      waiting_[next_wait_->stream].push_back({std::prev(behind)->second, next_wait_->is_inferred});
    }
    Producer last;
    const auto own = waiting_.find(op.stream);
    if (own == waiting_.end()) return last;
    for (const Producer& one : own->second) {
      // An event that was inferred may be the wrong one.
      if (one.is_inferred && end_of(one.id) > op.start_ns + kRoundingNs) continue;
      if (last.id == kNoRecord || end_of(last.id) < end_of(one.id)) last = one;
    }
    for (const Producer& one : own->second) {
      if (!one.is_inferred && one.id != last.id) further_.push_back(one.id);
    }
    waiting_.erase(own);
    return last;
  }
  [[nodiscard]] int64_t end_of(int64_t id) const {
    return step_.records[static_cast<size_t>(id)].end_ns;
  }

  /// What the host's step goes on for behind its last call, when the device has nothing to do.
  void finish_host() {
    const int64_t end_ns = slice_.host.end_ns;
    if (end_ns <= device_end_ns_ || end_ns <= host_ns_) return;
    load_until(end_ns);
    add_host(RecordKind::host_work, "end", end_ns, end_ns);
  }

  const ImportedSteps& steps_;
  const Rank& rank_;
  const StepSlice& slice_;
  const ImportedTrace& trace_;
  StepTrace step_;
  int64_t host_ns_ = 0;
  int64_t device_end_ns_ = 0;
  /// By stream, not all of very many: of what was enqueued last on it.
  std::map<uint32_t, int64_t> last_ends_ns_;
  const ImportedOp* last_copy_ =
      nullptr;  ///< what was enqueued last, if it is a copy, until the host waits
  std::vector<ExpertKernel> expert_kernels_;  ///< since an exchange brought rows
  int num_open_ = 0;                          ///< exchanges whose rows have not been taken back
  int32_t layer_ = -1;                        ///< number of the last one that brought rows
  int64_t received_ = 0;                      ///< elements that it brought
  std::vector<StreamWait>::const_iterator next_wait_;
  std::map<uint32_t, std::vector<Producer>> waiting_;  ///< by stream: records that it waits for
  std::vector<int64_t> further_;  ///< that the next operation waits for beside its producer
  WorkNames work_names_;
  /// By stream: when each record of it was launched. Empty where no stream waits.
  std::map<uint32_t, std::vector<std::pair<int64_t, int64_t>>> launched_;
};

size_t ImportedSteps::num_steps() const { return ranks_.empty() ? 0 : ranks_[0].slices.size(); }

size_t ImportedSteps::num_ops(size_t step) const {
  size_t sum = 0;
  for (const Rank& rank : ranks_) sum += rank.slices[step].ops.size();
  return sum;
}

int64_t ImportedSteps::num_lost(size_t step) const {
  int64_t sum = 0;
  for (const Rank& rank : ranks_) {
    const Interval& time = rank.slices[step].host;
    const auto first = std::ranges::lower_bound(rank.idle_launches_ns, time.start_ns);
    sum += std::ranges::lower_bound(first, rank.idle_launches_ns.end(), time.end_ns) - first;
    const std::vector<uint32_t>& ops = rank.slices[step].ops;
    const auto num_without_call = std::ranges::count_if(
        ops, [&](uint32_t row) { return traces_[rank.trace].ops[row].call == kNoRow; });
    // Where none has a call, none was recorded.
    if (num_without_call < std::ssize(ops)) sum += num_without_call;
  }
  return sum;
}

std::vector<StepTrace> ImportedSteps::make(size_t step) const {
  std::vector<StepTrace> traces;
  for (const Rank& rank : ranks_) {
    StepTrace trace = Writer(*this, rank, rank.slices[step]).write();
    trace.step = static_cast<int32_t>(step);
    // Who has no collective in common with the others is taken to have begun with them.
    const auto offset_ns = clock_offsets_ns_[rank.trace];
    const int64_t first_ns = traces.empty() ? trace.start_ns : traces.front().start_ns;
    shift(trace, offset_ns.value_or(first_ns - trace.start_ns));
    traces.push_back(std::move(trace));
  }
  return traces;
}

}  // namespace moetune::profiler

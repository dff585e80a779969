// The rules of virtual time: an op starts at the latest of its launch's end, its stream's last end
// and the events its stream waits for.
#include "profiler/timeline.h"

#include <algorithm>
#include <ctime>
#include <utility>

namespace moetune::profiler {
namespace {

int64_t read_clock(clockid_t id) {
  timespec now{};
  clock_gettime(id, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

int64_t thread_cpu_ns() { return read_clock(CLOCK_THREAD_CPUTIME_ID); }
int64_t wall_ns() { return read_clock(CLOCK_MONOTONIC); }

Timeline::Timeline(ClockMode mode, int rank, int num_streams, const HostCosts& costs, int device)
    : mode_(mode),
      rank_(rank),
      device_(device),
      costs_(costs),
      streams_(static_cast<size_t>(num_streams)),
      last_starts_(static_cast<size_t>(costs.launch_queue)) {}

int64_t Timeline::host_ns() const { return mode_ == ClockMode::wall ? wall_ns() : host_ns_; }

int64_t Timeline::launch(int stream, bool is_captured) {
  Stream& s = streams_[static_cast<size_t>(stream)];
  if (mode_ == ClockMode::wall) {
    launch_start_ns_ = launch_end_ns_ = wall_ns();
    ++num_launches_;
    return launch_end_ns_;
  }
  launch_start_ns_ = host_ns_;
  if (!in_graph_ || !is_captured) {
    host_ns_ += costs_.launch_ns;
    wait_for_queue();
    ++num_launches_;
  } else if (!graph_launched_) {
    host_ns_ += costs_.graph_launch_ns;
    wait_for_queue();
    graph_launched_ = true;
    ++num_launches_;
  }
  launch_end_ns_ = host_ns_;
  return std::max({launch_end_ns_, s.end_ns, s.producer_end_ns});
}

void Timeline::wait_for_queue() {
  const size_t depth = last_starts_.size();
  if (depth == 0 || num_started_ < depth) return;
  host_ns_ = std::max(host_ns_, last_starts_[num_started_ % depth]);
}

TraceRecord& Timeline::add_record(int stream, RecordKind kind, const OpTag& tag) {
  TraceRecord* record = &scratch_record_;
  if (level_ != TraceLevel::none) {
    filter_last();
    record = &trace_.records.emplace_back();
    is_last_new_ = true;
  }
  record->id = next_id_++;
  if (level_ == TraceLevel::none) return *record;
  record->rank = rank_;
  record->step = trace_.step;
  record->kind = kind;
  record->stream = stream;
  record->thread = 0;  // virtual hosts have one
  record->device = stream == kHostStream ? -1 : device_;
  record->name = tag.name;
  record->layer = tag.layer;
  record->micro_batch = tag.micro_batch;
  record->flops = tag.flops;
  record->bytes = tag.bytes;
  record->launch_start_ns = launch_start_ns_;
  record->launch_end_ns = launch_end_ns_;
  record->graph_id = in_graph_ && graph_launched_ ? graph_id_ : 0;
  record->is_recompute = tag.is_recompute;
  return *record;
}

void Timeline::filter_last() {
  if (is_last_new_ && keeps_ && !keeps_(trace_.records.back())) {
    std::vector<FurtherWait>& waits = trace_.further_waits;
    const int64_t id = trace_.records.back().id;
    while (!waits.empty() && waits.back().record_id == id) waits.pop_back();
    trace_.records.pop_back();
  }
  is_last_new_ = false;
}

void Timeline::add_further_waits(const TraceRecord& record, std::vector<int64_t>& awaited) {
  if (level_ != TraceLevel::none) {
    std::ranges::sort(awaited);
    awaited.erase(std::unique(awaited.begin(), awaited.end()), awaited.end());
    for (const int64_t id : awaited) {
      if (id != record.producer_id) trace_.further_waits.push_back({record.id, id});
    }
  }
  awaited.clear();
}

std::vector<int64_t> Timeline::further_of(const Event& event) const {
  const size_t set = event.further_set;
  return set == 0 || set > further_sets_.size() ? std::vector<int64_t>() : further_sets_[set - 1];
}

Event Timeline::finish(int stream, RecordKind kind, const OpTag& tag, int64_t start_ns,
                       int64_t duration_ns) {
  if (durations_ != nullptr) durations_->push_back(duration_ns);
  return finish_communication(stream, kind, tag, std::string(), -1, start_ns,
                              start_ns + duration_ns, 0);
}

Event Timeline::finish_communication(int stream, RecordKind kind, const OpTag& tag,
                                     const std::string& group, int64_t sequence, int64_t start_ns,
                                     int64_t end_ns, int64_t transfer_ns,
                                     const Partners& partners) {
  Stream& s = streams_[static_cast<size_t>(stream)];
  TraceRecord& record = add_record(stream, kind, tag);
  record.start_ns = start_ns;
  record.end_ns = end_ns;
  record.transfer_ns = transfer_ns;
  record.sequence = sequence;
  record.communicator = partners.communicator;
  record.peer = partners.peer;
  record.producer_id = s.producer_id;
  add_further_waits(record, s.awaited);
  if (level_ != TraceLevel::none) record.group = group;
  s.end_ns = end_ns;
  if (!last_starts_.empty()) last_starts_[num_started_++ % last_starts_.size()] = start_ns;
  const bool has_waited = kind == RecordKind::p2p && end_ns - transfer_ns > start_ns;
  s.slot_ns = has_waited ? end_ns - transfer_ns : 0;
  s.last_record = record.id;
  s.producer_id = kNoRecord;
  s.producer_end_ns = 0;
  return {end_ns, record.id};
}

Event Timeline::record_event(int stream) {
  const Stream& s = streams_[static_cast<size_t>(stream)];
  // What the stream has been told to wait for comes before the point, as on a device.
  const bool is_waiting = s.producer_end_ns > s.end_ns;
  Event event = {is_waiting ? s.producer_end_ns : s.end_ns,
                 is_waiting ? s.producer_id : s.last_record};
  if (s.awaited.empty()) return event;
  std::vector<int64_t> all = s.awaited;
  if (s.last_record != kNoRecord) all.push_back(s.last_record);
  further_sets_.push_back(std::move(all));
  event.further_set = static_cast<uint32_t>(further_sets_.size());
  return event;
}

Event Timeline::record_slot(int stream) const {
  const Stream& s = streams_[static_cast<size_t>(stream)];
  if (mode_ == ClockMode::wall || s.slot_ns == 0) return {};
  return {s.slot_ns, s.last_record};
}

void Timeline::wait_event(int stream, const Event& event) {
  Stream& s = streams_[static_cast<size_t>(stream)];
  if (level_ != TraceLevel::none && event.record_id != kNoRecord) {
    s.awaited.push_back(event.record_id);
    for (const int64_t id : further_of(event)) s.awaited.push_back(id);
  }
  if (event.record_id != kNoRecord && event.time_ns > s.producer_end_ns) {
    s.producer_end_ns = event.time_ns;
    s.producer_id = event.record_id;
  }
}

void Timeline::synchronize(const Event& event, const OpTag& tag) {
  launch_start_ns_ = launch_end_ns_ = host_ns();
  TraceRecord& record = add_record(kHostStream, RecordKind::host_sync, tag);
  record.start_ns = launch_start_ns_;
  record.producer_id = event.record_id;
  std::vector<int64_t> awaited = further_of(event);
  add_further_waits(record, awaited);
  record.sequence = -1;
  record.transfer_ns = 0;
  if (mode_ != ClockMode::wall) host_ns_ = std::max(host_ns_, event.time_ns) + costs_.sync_ns;
  record.end_ns = host_ns();
}

int64_t Timeline::begin_host_work() { return launch_start_ns_ = launch_end_ns_ = host_ns(); }

void Timeline::finish_host_work(const OpTag& tag, int64_t start_ns, int64_t duration_ns) {
  if (durations_ != nullptr) durations_->push_back(duration_ns);
  TraceRecord& record = add_record(kHostStream, RecordKind::host_work, tag);
  record.start_ns = start_ns;
  record.producer_id = kNoRecord;
  record.sequence = -1;
  record.transfer_ns = 0;
  if (mode_ != ClockMode::wall) host_ns_ += duration_ns;
  record.end_ns = start_ns + duration_ns;
}

void Timeline::begin_graph() {
  in_graph_ = true;
  graph_launched_ = false;
  graph_id_ = ++num_graphs_;
}

void Timeline::cut_graph() {
  if (!in_graph_ || !graph_launched_) return;
  graph_launched_ = false;
  graph_id_ = ++num_graphs_;
}

void Timeline::end_graph() { in_graph_ = false; }

void Timeline::begin_step(int step, TraceLevel level) {
  level_ = level;
  next_id_ = 0;
  num_graphs_ = 0;
  num_launches_ = 0;
  trace_ = StepTrace{rank_, step, host_ns(), 0, {}};
  further_sets_.clear();
  is_last_new_ = false;
  num_started_ = 0;
  for (Stream& s : streams_) s = Stream{host_ns(), kNoRecord, kNoRecord, 0, 0};
}

StepTrace Timeline::end_step(int64_t end_ns) {
  filter_last();
  host_ns_ = end_ns;
  for (Stream& s : streams_) s.end_ns = end_ns;
  trace_.end_ns = end_ns;
  return std::move(trace_);
}

int64_t Timeline::latest_ns() const {
  int64_t latest = host_ns();
  for (const Stream& s : streams_) latest = std::max(latest, s.end_ns);
  return latest;
}

}  // namespace moetune::profiler

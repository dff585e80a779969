// Walks backwards from the last piece of work, each time to what it waited for.
#include "profiler/analysis/critical_path.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "profiler/analysis/replayed_run.h"
#include "profiler/analysis/trace_index.h"

namespace moetune::profiler {
namespace {

constexpr size_t kNumPathClasses = static_cast<size_t>(PathClass::count);

const base::InternedString kHost = "host";
const base::InternedString kLaunch = "launch";
const base::InternedString kStepEnd = "step_end";

/// What communication waits for on other ranks, where these are traced.
class OtherRanks {
 public:
  struct Place {
    size_t rank = 0;  ///< index of the trace
    int64_t position = kNoPosition;
  };

  OtherRanks() = default;
  OtherRanks(const ReplayedRun& run, std::span<const TraceIndex> ranks) : ranks_(ranks) {
    places_.resize(ranks.size());
    awaited_.resize(ranks.size());
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      places_[rank].resize(ranks[rank].trace().records.size(), kNoPosition);
      awaited_[rank].resize(static_cast<size_t>(ranks[rank].size()));
      for (int64_t i = 0; i < ranks[rank].size(); ++i) {
        const std::vector<TraceRecord>& records = ranks[rank].trace().records;
        places_[rank][static_cast<size_t>(&ranks[rank].record(i) - records.data())] = i;
      }
    }
    const std::vector<uint32_t> awaited = run.awaited_elsewhere();
    for (size_t op = 0; op < awaited.size(); ++op) {
      if (awaited[op] == ReplayedRun::kNoPlace) continue;
      const Place own = place_of(run.ops()[op]);
      awaited_[own.rank][static_cast<size_t>(own.position)] = place_of(run.ops()[awaited[op]]);
    }
  }

  /// What the record waited for; position kNoPosition: nothing that is known.
  [[nodiscard]] Place awaited(size_t rank, int64_t position) const {
    if (awaited_.empty()) return {};
    const Place other = awaited_[rank][static_cast<size_t>(position)];
    if (other.position == kNoPosition) return {};
    const TraceRecord& own = ranks_[rank].record(position);
    const TraceRecord& late = ranks_[other.rank].record(other.position);
    const int64_t free_ns = own.kind == RecordKind::p2p ? late.end_ns : late.start_ns;
    return free_ns > own.start_ns ? other : Place();
  }

 private:
  [[nodiscard]] Place place_of(const ReplayOp& op) const {
    return {op.trace, places_[op.trace][op.row]};
  }

  std::span<const TraceIndex> ranks_;
  std::vector<std::vector<int64_t>> places_;  ///< by rank and row of its records
  std::vector<std::vector<Place>> awaited_;   ///< by rank and position
};

/// Walks from the end of the window to its start. The cursor only moves back and every move emits
/// the segment it passed, so the segments tile the window whatever the trace says.
class PathWalker {
 public:
  PathWalker(std::span<const TraceIndex> ranks, OtherRanks others)
      : ranks_(ranks), others_(std::move(others)) {
    for (size_t i = 1; i < ranks.size(); ++i) {
      if (end_of_work(ranks[i]) > end_of_work(ranks[rank_])) rank_ = i;
    }
    for (const TraceIndex& index : ranks) left_ += 2 * index.size() + 2;
    cursor_ = index().window().end_ns;
    path_.segments.reserve(static_cast<size_t>(index().size()) + 1);
  }

  CriticalPath walk() {
    begin();
    // Traces that contradict each other may lead round in a circle.
    while (cursor_ > index().window().start_ns && position_ != kNoPosition && left_-- > 0) {
      if (is_on_host_) {
        step_host();
      } else {
        step_device();
      }
    }
    emit(index().window().start_ns, kNoPosition, kHost, PathClass::host);
    std::reverse(path_.segments.begin(), path_.segments.end());
    std::array<int64_t, kNumPathClasses> sums = {};
    for (const PathSegment& segment : path_.segments) {
      sums[static_cast<size_t>(segment.path_class)] += segment.end_ns - segment.start_ns;
      path_.ns_by_rank[segment.rank] += segment.end_ns - segment.start_ns;
    }
    for (size_t i = 0; i < sums.size(); ++i) {
      if (sums[i] > 0) path_.ns_by_class[static_cast<PathClass>(i)] = sums[i];
    }
    return std::move(path_);
  }

 private:
  void emit(int64_t to_ns, int64_t position, base::InternedString name, PathClass path_class) {
    const int64_t start = std::max(to_ns, index().window().start_ns);
    if (start >= cursor_) return;
    PathSegment segment{kNoRecord, name, {}, path_class, index().trace().rank, start, cursor_};
    if (position != kNoPosition) {
      segment.record_id = index().record(position).id;
      if (path_class == PathClass::transfer || path_class == PathClass::wait) {
        segment.group = index().record(position).group;
      }
    }
    path_.segments.push_back(std::move(segment));
    cursor_ = start;
  }

  void go_to(int64_t position, bool is_on_host) {
    position_ = position;
    is_on_host_ = is_on_host;
  }

  void begin() {
    const int64_t last = index().last_device_record();
    const int64_t host_end = index().last_host_ns();
    if (last != kNoPosition && index().record(last).end_ns >= host_end) {
      emit(index().record(last).end_ns, kNoPosition, kStepEnd, PathClass::wait);
      go_to(last, false);
    } else if (index().size() > 0) {
      emit(host_end, kNoPosition, kStepEnd, PathClass::wait);
      go_before_on_host(index().size());
    }
  }

  /// The record ran until the cursor: emit it and go to what it waited for.
  void step_device() {
    const int64_t position = position_;
    const TraceRecord& record = index().record(position);
    switch (index().op_class(position)) {
      case OpClass::communication: {
        const int64_t transfer_ns =
            std::clamp<int64_t>(record.transfer_ns, 0, record.end_ns - record.start_ns);
        emit(record.end_ns - transfer_ns, position, record.name, PathClass::transfer);
        const OtherRanks::Place late = others_.awaited(rank_, position);
        if (late.position != kNoPosition && cursor_ > record.start_ns) {
          rank_ = late.rank;
          go_to(late.position, false);
          return;
        }
        emit(record.start_ns, position, record.name, PathClass::wait);
        break;
      }
      case OpClass::dispatcher:
        emit(record.start_ns, position, record.name, PathClass::dispatcher);
        break;
      case OpClass::memcpy:
        emit(record.start_ns, position, record.name, PathClass::memcpy);
        break;
      case OpClass::compute:
        emit(record.start_ns, position, record.name, PathClass::compute);
        break;
      case OpClass::host:  // an event is never recorded by the host; a broken trace may say so
        emit(record.start_ns, position, record.name, PathClass::host);
        break;
    }
    const int64_t predecessor = index().binding_predecessor(position);
    const int64_t waited_until_ns = predecessor == kNoPosition
                                        ? record.launch_end_ns
                                        : index().waited_until_ns(position, predecessor);
    if (predecessor == kNoPosition || waited_until_ns < record.launch_end_ns) {
      emit(record.launch_end_ns, position, record.name, PathClass::stalled);
      go_to(position, true);
    } else {
      emit(waited_until_ns, position, record.name, PathClass::stalled);
      go_to(predecessor, false);
    }
  }

  /// The host was enqueueing the record until the cursor, or returning from it when it is a
  /// synchronisation.
  void step_host() {
    const int64_t position = position_;
    const TraceRecord& record = index().record(position);
    if (index().op_class(position) != OpClass::host) {
      emit(record.launch_start_ns, position, kLaunch, PathClass::host);
      go_before_on_host(position);
      return;
    }
    const int64_t producer = index().producer(position);
    if (producer != kNoPosition && index().record(producer).end_ns > record.start_ns) {
      emit(index().record(producer).end_ns, position, record.name, PathClass::host);
      go_to(producer, false);
      return;
    }
    emit(record.start_ns, position, record.name, PathClass::host);
    go_before_on_host(position);
  }

  /// What the host did before it turned to `position`.
  void go_before_on_host(int64_t position) {
    const int64_t before = position - 1;
    if (before < 0) {
      position_ = kNoPosition;
      return;
    }
    const TraceRecord& record = index().record(before);
    const bool is_sync = index().op_class(before) == OpClass::host;
    emit(is_sync ? record.end_ns : record.launch_end_ns, kNoPosition, kHost, PathClass::host);
    go_to(before, true);
  }

  [[nodiscard]] const TraceIndex& index() const { return ranks_[rank_]; }
  static int64_t end_of_work(const TraceIndex& index) {
    const int64_t last = index.last_device_record();
    return std::max(last == kNoPosition ? index.window().start_ns : index.record(last).end_ns,
                    index.last_host_ns());
  }

  std::span<const TraceIndex> ranks_;
  OtherRanks others_;
  size_t rank_ = 0;
  int64_t left_ = 0;  ///< moves
  int64_t cursor_ = 0;
  int64_t position_ = kNoPosition;
  bool is_on_host_ = false;
  CriticalPath path_;
};

}  // namespace

const char* name_of(PathClass path_class) {
  switch (path_class) {
    case PathClass::compute:
      return "compute";
    case PathClass::dispatcher:
      return "dispatcher";
    case PathClass::transfer:
      return "transfer";
    case PathClass::wait:
      return "wait";
    case PathClass::memcpy:
      return "memcpy";
    case PathClass::host:
      return "host";
    case PathClass::stalled:
      return "stalled";
    case PathClass::count:
      break;
  }
  return "?";
}

CriticalPath critical_path(const StepTrace& trace, const ClassificationRules& rules) {
  return critical_path(TraceIndex(trace, rules));
}

CriticalPath critical_path(const TraceIndex& index) {
  return PathWalker(std::span(&index, 1), {}).walk();
}

CriticalPath critical_path(const ReplayedRun& run, const ClassificationRules& rules) {
  std::vector<TraceIndex> ranks;
  ranks.reserve(run.traces().size());
  for (const StepTrace& trace : run.traces()) ranks.emplace_back(trace, rules);
  if (ranks.empty()) return {};
  return PathWalker(ranks, OtherRanks(run, ranks)).walk();
}

}  // namespace moetune::profiler

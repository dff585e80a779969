// Walks backwards from the last piece of work, each time to what it waited for.
#include "profiler/analysis/critical_path.h"

#include <algorithm>
#include <array>
#include <utility>

#include "profiler/analysis/trace_index.h"

namespace moetune::profiler {
namespace {

constexpr size_t kNumPathClasses = static_cast<size_t>(PathClass::count);

const base::InternedString kHost = "host";
const base::InternedString kLaunch = "launch";
const base::InternedString kStepEnd = "step_end";

/// Walks from the end of the window to its start. The cursor only moves back and every move emits
/// the segment it passed, so the segments tile the window whatever the trace says.
class PathWalker {
 public:
  explicit PathWalker(const TraceIndex& index) : index_(index), cursor_(index.window().end_ns) {
    path_.segments.reserve(static_cast<size_t>(index.size()) + 1);
  }

  CriticalPath walk() {
    begin();
    while (cursor_ > index_.window().start_ns && position_ != kNoPosition) {
      if (is_on_host_) {
        step_host();
      } else {
        step_device();
      }
    }
    emit(index_.window().start_ns, kNoPosition, kHost, PathClass::host);
    std::reverse(path_.segments.begin(), path_.segments.end());
    std::array<int64_t, kNumPathClasses> sums = {};
    for (const PathSegment& segment : path_.segments) {
      sums[static_cast<size_t>(segment.path_class)] += segment.end_ns - segment.start_ns;
    }
    for (size_t i = 0; i < sums.size(); ++i) {
      if (sums[i] > 0) path_.ns_by_class[static_cast<PathClass>(i)] = sums[i];
    }
    return std::move(path_);
  }

 private:
  void emit(int64_t to_ns, int64_t position, base::InternedString name, PathClass path_class) {
    const int64_t start = std::max(to_ns, index_.window().start_ns);
    if (start >= cursor_) return;
    PathSegment segment{kNoRecord, name, {}, path_class, start, cursor_};
    if (position != kNoPosition) {
      segment.record_id = index_.record(position).id;
      if (path_class == PathClass::transfer || path_class == PathClass::wait) {
        segment.group = index_.record(position).group;
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
    const int64_t last = index_.last_device_record();
    const int64_t host_end = index_.last_host_ns();
    if (last != kNoPosition && index_.record(last).end_ns >= host_end) {
      emit(index_.record(last).end_ns, kNoPosition, kStepEnd, PathClass::wait);
      go_to(last, false);
    } else if (index_.size() > 0) {
      emit(host_end, kNoPosition, kStepEnd, PathClass::wait);
      go_before_on_host(index_.size());
    }
  }

  /// The record ran until the cursor: emit it and go to what it waited for.
  void step_device() {
    const int64_t position = position_;
    const TraceRecord& record = index_.record(position);
    switch (index_.op_class(position)) {
      case OpClass::communication: {
        const int64_t transfer_ns =
            std::clamp<int64_t>(record.transfer_ns, 0, record.end_ns - record.start_ns);
        emit(record.end_ns - transfer_ns, position, record.name, PathClass::transfer);
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
    const int64_t predecessor = index_.binding_predecessor(position);
    const int64_t waited_until_ns = predecessor == kNoPosition
                                        ? record.launch_end_ns
                                        : index_.waited_until_ns(position, predecessor);
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
    const TraceRecord& record = index_.record(position);
    if (index_.op_class(position) != OpClass::host) {
      emit(record.launch_start_ns, position, kLaunch, PathClass::host);
      go_before_on_host(position);
      return;
    }
    const int64_t producer = index_.producer(position);
    if (producer != kNoPosition && index_.record(producer).end_ns > record.start_ns) {
      emit(index_.record(producer).end_ns, position, record.name, PathClass::host);
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
    const TraceRecord& record = index_.record(before);
    const bool is_sync = index_.op_class(before) == OpClass::host;
    emit(is_sync ? record.end_ns : record.launch_end_ns, kNoPosition, kHost, PathClass::host);
    go_to(before, true);
  }

  const TraceIndex& index_;
  int64_t cursor_;
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

CriticalPath critical_path(const TraceIndex& index) { return PathWalker(index).walk(); }

}  // namespace moetune::profiler

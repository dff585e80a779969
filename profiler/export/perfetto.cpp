// Field numbers are those of https://perfetto.dev, protos/perfetto/trace: trace.proto,
// trace_packet.proto, interned_data/interned_data.proto and track_event/{track_event,
// track_descriptor, process_descriptor, counter_descriptor, debug_annotation}.proto.
#include "profiler/export/perfetto.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "profiler/export/imported_events.h"
#include "profiler/export/protobuf_writer.h"
#include "profiler/export/track_finder.h"

namespace moetune::profiler {
namespace {

enum TraceField : uint32_t { kPacket = 1 };
enum PacketField : uint32_t {
  kTimestamp = 8,
  kSequenceId = 10,
  kTrackEvent = 11,
  kInternedData = 12,
  kSequenceFlags = 13,
  kTrackDescriptor = 60,
};
enum SequenceFlag : uint32_t { kStateCleared = 1, kNeedsState = 2 };
enum DescriptorField : uint32_t {
  kUuid = 1,
  kTrackName = 2,
  kProcess = 3,
  kParentUuid = 5,
  kCounter = 8,
  kChildOrdering = 11,
  kSiblingRank = 12,
};
constexpr uint32_t kExplicitOrdering = 3;
enum ProcessField : uint32_t { kPid = 1, kProcessName = 6 };
enum CounterField : uint32_t { kUnitName = 6 };
enum EventField : uint32_t {
  kCategoryIid = 3,
  kAnnotation = 4,
  kType = 9,
  kNameIid = 10,
  kTrackUuid = 11,
  kDoubleValue = 44,
  kFlowId = 47,
  kTerminatingFlowId = 48,
};
/// Behind all rows.
constexpr int64_t kPlaceOfCounters = 1 << 30;
enum EventType : uint32_t { kSliceBegin = 1, kSliceEnd = 2, kCounterValue = 4 };
enum AnnotationField : uint32_t {
  kNameIidOfArg = 1,
  kBool = 2,
  kUint = 3,
  kInt = 4,
  kString = 6,
  kElement = 12,
};

/// Texts that events name by number; each is explained once, before it is used.
class Interned {
 public:
  /// `field` is that of InternedData.
  explicit Interned(uint32_t field) : field_(field) {}
  uint64_t iid(const std::string& text, ProtobufMessage& explained) {
    const auto [at, is_new] = iids_.try_emplace(text, iids_.size() + 1);
    if (is_new) {
      explained.message(field_, ProtobufMessage().number(1, at->second).text(2, text));
    }
    return at->second;
  }

 private:
  uint32_t field_;
  std::map<std::string, uint64_t> iids_;
};

class PerfettoWriter : public TimelineSink {
 public:
  PerfettoWriter(std::ostream& out, int64_t origin_ns) : out_(out), origin_ns_(origin_ns) {}

  void rank(int32_t rank, const std::string& name) override {
    const uint64_t uuid = new_track();
    processes_[rank] = uuid;
    descriptor(
        ProtobufMessage()
            .number(kUuid, uuid)
            .message(kProcess,
                     ProtobufMessage().integer(kPid, int64_t{rank} + 1).text(kProcessName, name))
            .number(kChildOrdering, kExplicitOrdering));
  }

  void row(int32_t rank, int64_t row, const std::string& name) override {
    rows_[{rank, row}].name = name;
  }

  void slice(const TimelineSlice& slice) override {
    // Names of kernels are long and few: each is kept once.
    const std::string* name = &*slice_names_.insert(slice.name).first;
    slices_.push_back(
        {{slice.rank, slice.row, {}, slice.category, slice.start_ns, slice.end_ns, slice.args},
         name,
         {},
         {}});
  }

  void flow(const TimelineFlow& flow) override {
    ++num_flows_;
    slices_[flow.from.slice].flows.push_back(num_flows_);
    slices_[flow.to.slice].ended_flows.push_back(num_flows_);
  }

  void counter(int32_t rank, const char* name, int64_t ns, double value) override {
    uint64_t& uuid = counters_[{rank, name}];
    if (uuid == 0) {
      uuid = new_track();
      descriptor(child_of(rank, uuid, name, kPlaceOfCounters)
                     .message(kCounter, ProtobufMessage().text(kUnitName, name)));
    }
    add(ns, ProtobufMessage()
                .number(kType, kCounterValue)
                .number(kTrackUuid, uuid)
                .real(kDoubleValue, value));
  }

  /// Slices wait until all arrows are known, and until rows know how many tracks they need.
  void finish() {
    for (size_t i = 0; i < slices_.size(); ++i) {
      const TimelineSlice& slice = slices_[i].slice;
      rows_[{slice.rank, slice.row}].slices.push_back(i);
    }
    for (auto& [place, row] : rows_) write_row(place.first, place.second, row);
    // Whoever reads it keeps less in mind where times go forward; what has the same time stays in
    // its order, as a slice ends before the next one begins.
    std::ranges::stable_sort(events_, {}, &Event::ns);
    for (const Event& event : events_) packet(event.message);
  }

 private:
  struct Slice {
    TimelineSlice slice;  ///< without its name
    const std::string* name = nullptr;
    std::vector<uint64_t> flows;
    std::vector<uint64_t> ended_flows;
  };
  struct Row {
    std::string name;
    std::vector<size_t> slices;
  };
  struct Event {
    int64_t ns;
    ProtobufMessage message;
  };

  uint64_t new_track() { return ++num_tracks_; }

  void packet(const ProtobufMessage& message) {
    const ProtobufMessage whole = ProtobufMessage().message(kPacket, message);
    out_.write(whole.bytes().data(), static_cast<std::streamsize>(whole.bytes().size()));
  }

  ProtobufMessage new_packet() {
    ProtobufMessage message;
    message.number(kSequenceId, 1).number(kSequenceFlags, is_first_ ? kStateCleared : kNeedsState);
    is_first_ = false;
    return message;
  }

  void descriptor(const ProtobufMessage& track) {
    packet(new_packet().message(kTrackDescriptor, track));
  }

  /// Below what of the same rank has a smaller `place`.
  ProtobufMessage child_of(int32_t rank, uint64_t uuid, const std::string& name, int64_t place) {
    ProtobufMessage track;
    track.number(kUuid, uuid).text(kTrackName, name).number(kParentUuid, processes_[rank]);
    return track.integer(kSiblingRank, place);
  }

  void add(int64_t ns, const ProtobufMessage& event) {
    ProtobufMessage message = new_packet();
    message.number(kTimestamp, static_cast<uint64_t>(std::max<int64_t>(0, ns - origin_ns_)));
    events_.push_back({ns, std::move(message.message(kTrackEvent, event))});
  }

  /// By start, the longer first, so that what lies within another follows it.
  void write_row(int32_t rank, int64_t number_of_row, Row& row) {
    std::ranges::stable_sort(row.slices, [&](size_t a, size_t b) {
      const TimelineSlice& left = slices_[a].slice;
      const TimelineSlice& right = slices_[b].slice;
      return std::pair(left.start_ns, -left.end_ns) < std::pair(right.start_ns, -right.end_ns);
    });
    TrackFinder finder;
    std::vector<uint64_t> uuids;  // by track
    const auto end_until = [&](int64_t ns) {
      for (TrackFinder::End end; finder.end_until(ns, end);) {
        add(end.ns,
            ProtobufMessage().number(kType, kSliceEnd).number(kTrackUuid, uuids[end.track]));
      }
    };
    for (const size_t number : row.slices) {
      const TimelineSlice& slice = slices_[number].slice;
      end_until(slice.start_ns);
      const size_t track = finder.begin(slice.end_ns);
      if (track == uuids.size()) {
        uuids.push_back(new_track());
        descriptor(child_of(rank, uuids.back(), row.name, number_of_row));
      }
      begin(uuids[track], number);
    }
    end_until(std::numeric_limits<int64_t>::max());
  }

  void begin(uint64_t track, size_t number) {
    const auto& [slice, name, flows, ended_flows] = slices_[number];
    ProtobufMessage explained;
    ProtobufMessage event;
    event.number(kType, kSliceBegin).number(kTrackUuid, track);
    event.number(kNameIid, names_.iid(*name, explained));
    event.number(kCategoryIid, categories_.iid(slice.category, explained));
    for (const TimelineArg& arg : slice.args) {
      ProtobufMessage annotation;
      annotation.number(kNameIidOfArg, keys_.iid(arg.key, explained));
      if (const auto* integer = std::get_if<int64_t>(&arg.value)) {
        annotation.integer(kInt, *integer);
      } else if (const auto* flag = std::get_if<bool>(&arg.value)) {
        annotation.number(kBool, *flag ? 1 : 0);
      } else if (const auto* list = std::get_if<std::vector<int64_t>>(&arg.value)) {
        for (const int64_t one : *list) {
          annotation.message(kElement, ProtobufMessage().integer(kInt, one));
        }
      } else {
        annotation.text(kString, std::get<std::string>(arg.value));
      }
      event.message(kAnnotation, annotation);
    }
    event.message(kAnnotation, ProtobufMessage()
                                   .number(kNameIidOfArg, keys_.iid("slice", explained))
                                   .number(kUint, number + 1));
    for (const uint64_t flow : flows) event.fixed(kFlowId, flow);
    for (const uint64_t flow : ended_flows) event.fixed(kTerminatingFlowId, flow);
    // Not with the event: sorting could bring another one before it that needs it.
    if (!explained.bytes().empty()) packet(new_packet().message(kInternedData, explained));
    add(slice.start_ns, event);
  }

  std::ostream& out_;
  int64_t origin_ns_;
  bool is_first_ = true;
  uint64_t num_tracks_ = 0;
  uint64_t num_flows_ = 0;
  std::map<int32_t, uint64_t> processes_;
  std::map<std::pair<int32_t, int64_t>, Row> rows_;
  std::map<std::pair<int32_t, std::string>, uint64_t> counters_;
  std::set<std::string> slice_names_;
  std::vector<Slice> slices_;
  std::vector<Event> events_;
  Interned categories_{1};
  Interned names_{2};
  Interned keys_{3};
};

}  // namespace

void write_perfetto(std::ostream& out, const std::vector<StepTrace>& traces,
                    const TimelineOptions& options) {
  PerfettoWriter writer(out, origin_of(traces));
  tell_timeline(traces, options, writer);
  writer.finish();
}

void write_imported_perfetto(std::ostream& out, std::span<const ImportedTrace> traces) {
  PerfettoWriter writer(out, start_of_imported(traces));
  tell_imported(traces, writer);
  writer.finish();
}

}  // namespace moetune::profiler

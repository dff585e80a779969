// Perfetto's files, decoded here by the wire format: they hold every slice, arrow and counter that
// Chrome JSON has, and slices on one track lie within each other.
#include "profiler/export/perfetto.h"

#include <algorithm>
#include <bit>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <set>
#include <sstream>

#include "profiler/export/chrome_json.h"
#include "profiler/export/track_finder.h"
#include "tests/profiler/synthetic_trace.h"

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(perfetto_test)

namespace {

using nlohmann::json;

/// One field of a message; `bytes` of what has a length.
struct Field {
  uint32_t number = 0;
  uint64_t value = 0;
  std::string_view bytes;
};

uint64_t take_varint(std::string_view& in) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    BOOST_REQUIRE(!in.empty());
    const auto byte = static_cast<unsigned char>(in.front());
    in.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7fU) << shift;
    if (byte < 0x80) return value;
  }
}

std::vector<Field> fields_of(std::string_view in) {
  std::vector<Field> fields;
  while (!in.empty()) {
    const uint64_t tag = take_varint(in);
    Field field;
    field.number = static_cast<uint32_t>(tag >> 3U);
    size_t length = 0;
    switch (tag & 7U) {
      case 0:
        field.value = take_varint(in);
        break;
      case 1:
        length = 8;
        BOOST_REQUIRE(in.size() >= length);
        std::memcpy(&field.value, in.data(), length);
        break;
      default:
        BOOST_REQUIRE((tag & 7U) == 2);
        length = take_varint(in);
        BOOST_REQUIRE(in.size() >= length);
        field.bytes = in.substr(0, length);
    }
    in.remove_prefix(length);
    fields.push_back(field);
  }
  return fields;
}

std::optional<Field> field_of(const std::vector<Field>& fields, uint32_t number) {
  for (const Field& field : fields) {
    if (field.number == number) return field;
  }
  return std::nullopt;
}

struct Slice {
  std::string name;
  std::string category;
  int64_t pid = 0;
  std::string row;
  uint64_t track = 0;
  int64_t start_ns = 0;
  int64_t end_ns = -1;
  json args = json::object();
};

/// A file as whoever reads it sees it.
struct Decoded {
  struct Track {
    std::string name;
    uint64_t parent = 0;
    int64_t pid = 0;
  };
  std::map<uint64_t, Track> tracks;
  std::map<int64_t, std::string> processes;
  std::map<uint64_t, Slice> slices;         // by their annotation
  std::map<uint64_t, uint64_t> flows_from;  // flow to slice
  std::map<uint64_t, uint64_t> flows_to;
  std::map<std::pair<int64_t, std::string>, std::vector<std::pair<int64_t, double>>> counters;

  explicit Decoded(std::string_view bytes) {
    int64_t last_ns = 0;
    bool is_first = true;
    for (const Field& field : fields_of(bytes)) {
      BOOST_TEST_REQUIRE(field.number == 1U);
      const std::vector<Field> packet = fields_of(field.bytes);
      BOOST_TEST(field_of(packet, 10)->value == 1U);
      // Only the first one forgets what was interned before.
      BOOST_TEST(field_of(packet, 13)->value == (is_first ? 1U : 2U));
      is_first = false;
      if (const auto track = field_of(packet, 60)) add_track(fields_of(track->bytes));
      if (const auto interned = field_of(packet, 12)) intern(fields_of(interned->bytes));
      if (const auto event = field_of(packet, 11)) {
        const auto ns = static_cast<int64_t>(field_of(packet, 8)->value);
        BOOST_TEST(ns >= last_ns);
        last_ns = ns;
        add_event(ns, fields_of(event->bytes));
      }
    }
    for (const auto& [track, open] : open_) BOOST_TEST(open.empty(), "open slices on " << track);
  }

 private:
  void add_track(const std::vector<Field>& fields) {
    Track track;
    if (const auto process = field_of(fields, 3)) {
      const auto about = fields_of(process->bytes);
      track.pid = static_cast<int64_t>(field_of(about, 1)->value);
      processes[track.pid] = field_of(about, 6)->bytes;
    } else {
      track.name = field_of(fields, 2)->bytes;
      track.parent = field_of(fields, 5)->value;
      BOOST_TEST_REQUIRE(tracks.contains(track.parent));
      track.pid = tracks[track.parent].pid;
    }
    BOOST_TEST(tracks.emplace(field_of(fields, 1)->value, track).second);
  }

  void intern(const std::vector<Field>& fields) {
    for (const Field& field : fields) {
      const auto entry = fields_of(field.bytes);
      const std::string text(field_of(entry, 2)->bytes);
      // Neither given twice nor known already.
      BOOST_TEST(texts_[field.number].emplace(field_of(entry, 1)->value, text).second);
    }
  }

  void add_event(int64_t ns, const std::vector<Field>& fields) {
    const uint64_t track = field_of(fields, 11)->value;
    BOOST_TEST_REQUIRE(tracks.contains(track));
    const uint64_t type = field_of(fields, 9)->value;
    if (type == 4) {
      counters[{tracks[track].pid, tracks[track].name}].emplace_back(
          ns, std::bit_cast<double>(field_of(fields, 44)->value));
    } else if (type == 2) {
      BOOST_TEST_REQUIRE(!open_[track].empty());
      slices[open_[track].back()].end_ns = ns;
      open_[track].pop_back();
    } else {
      begin(ns, track, fields);
    }
  }

  void begin(int64_t ns, uint64_t track, const std::vector<Field>& fields) {
    Slice slice;
    slice.track = track;
    slice.pid = tracks[track].pid;
    slice.row = tracks[track].name;
    slice.start_ns = ns;
    slice.name = texts_[2].at(field_of(fields, 10)->value);
    slice.category = texts_[1].at(field_of(fields, 3)->value);
    uint64_t number = 0;
    std::vector<uint64_t> from;
    std::vector<uint64_t> to;
    for (const Field& field : fields) {
      if (field.number == 47) from.push_back(field.value);
      if (field.number == 48) to.push_back(field.value);
      if (field.number != 4) continue;
      const auto annotation = fields_of(field.bytes);
      const std::string key = texts_[3].at(field_of(annotation, 1)->value);
      if (const auto integer = field_of(annotation, 4)) {
        slice.args[key] = static_cast<int64_t>(integer->value);
      } else if (const auto flag = field_of(annotation, 2)) {
        slice.args[key] = flag->value == 1;
      } else if (const auto text = field_of(annotation, 6)) {
        slice.args[key] = std::string(text->bytes);
      } else if (field_of(annotation, 12)) {
        for (const Field& element : annotation) {
          if (element.number != 12) continue;
          const auto integer_of = field_of(fields_of(element.bytes), 4);
          slice.args[key].push_back(static_cast<int64_t>(integer_of->value));
        }
      } else {
        BOOST_TEST(key == "slice");
        number = field_of(annotation, 3)->value;
      }
    }
    for (const uint64_t flow : from) BOOST_TEST(flows_from.emplace(flow, number).second);
    for (const uint64_t flow : to) BOOST_TEST(flows_to.emplace(flow, number).second);
    BOOST_TEST(slices.emplace(number, slice).second);
    open_[track].push_back(number);
  }

  std::map<uint32_t, std::map<uint64_t, std::string>> texts_;
  std::map<uint64_t, std::vector<uint64_t>> open_;  // slices by track, the innermost last
};

Decoded decoded(const std::vector<StepTrace>& traces, const TimelineOptions& options = {}) {
  std::ostringstream out;
  write_perfetto(out, traces, options);
  return Decoded(out.str());
}

int64_t ns_of(const json& event, const char* key) {
  return std::llround(event[key].get<double>() * 1e3);
}

/// Every event of the Chrome JSON is in the file, and nothing else.
void check_same(const std::string& chrome, const Decoded& file) {
  const json events = json::parse(chrome)["traceEvents"];
  std::map<std::pair<int64_t, int64_t>, std::string> rows;
  std::map<std::pair<int64_t, std::string>, std::vector<std::pair<int64_t, double>>> counters;
  uint64_t num_slices = 0;
  size_t num_flows = 0;
  std::set<int64_t> ranks;
  for (const json& event : events) {
    const std::string phase = event["ph"];
    const int64_t pid = event["pid"].get<int64_t>() + 1;
    if (event["name"] == "thread_name") rows[{pid, event["tid"]}] = event["args"]["name"];
    if (event["name"] == "process_name") {
      BOOST_TEST(file.processes.at(pid) == event["args"]["name"].get<std::string>());
      ranks.insert(pid);
    }
    if (phase == "C") {
      counters[{pid, event["name"]}].emplace_back(ns_of(event, "ts"), event["args"]["value"]);
    } else if (phase == "X") {
      const Slice& slice = file.slices.at(++num_slices);
      BOOST_TEST(slice.name == event["name"].get<std::string>());
      BOOST_TEST(slice.category == event["cat"].get<std::string>());
      BOOST_TEST(slice.pid == pid);
      BOOST_TEST(slice.row == (rows[{pid, event["tid"]}]));
      BOOST_TEST(slice.start_ns == ns_of(event, "ts"));
      BOOST_TEST(slice.end_ns - slice.start_ns == ns_of(event, "dur"));
      BOOST_TEST(slice.args == event["args"]);
    } else if (phase == "s" || phase == "f") {
      num_flows += phase == "s" ? 1 : 0;
      const auto& ends = phase == "s" ? file.flows_from : file.flows_to;
      // The slice that a viewer of Chrome JSON finds at that moment.
      const Slice& slice = file.slices.at(ends.at(event["id"]));
      BOOST_TEST(slice.pid == pid);
      BOOST_TEST(slice.row == (rows[{pid, event["tid"]}]));
      BOOST_TEST(slice.start_ns <= ns_of(event, "ts"));
      BOOST_TEST(slice.end_ns >= ns_of(event, "ts"));
    }
  }
  BOOST_TEST(file.slices.size() == num_slices);
  BOOST_TEST(file.flows_from.size() == num_flows);
  BOOST_TEST(file.flows_to.size() == num_flows);
  BOOST_TEST((file.counters == counters));
  BOOST_TEST(file.processes.size() == ranks.size());
}

void check_same_as_chrome(const std::vector<StepTrace>& traces) {
  std::ostringstream out;
  write_chrome_json(out, traces);
  check_same(out.str(), decoded(traces));
}

/// A launch, a collective that runs beside what it launched, a range around all, on the clock of
/// 1970.
ImportedTrace imported(int64_t rank) {
  constexpr int64_t kBegin = 1'711'964'646'123'456'789;
  ImportedTrace trace;
  trace.facts.rank = rank;
  trace.facts.file = "folder/rank.json";
  const uint16_t thread = trace.thread_row({8, 1});
  const auto name = [&](const char* text) { return trace.names.intern(text); };
  trace.ranges.add({kBegin, kBegin + 1000, name("range"), thread});
  trace.calls.add(
      {kBegin + 10, kBegin + 20, name("cudaLaunchKernel"), 1, thread, CallKind::launch});
  ImportedOp op;
  op.start_ns = kBegin + 30;
  op.end_ns = kBegin + 230;
  op.correlation = 1;
  op.name = name("gemm");
  op.stream = trace.stream_row({0, 7});
  op.detail = trace.shapes.row_of({{4, 2, 1}, {128, 1, 1}, 0, 0});
  trace.ops.add(op);
  op.start_ns += 100;
  op.end_ns += 100;
  op.correlation = 0;
  op.bytes = 2000;
  op.comm = 0;
  trace.comms.push_back({.group = name("12"), .collective = name("allreduce"), .sequence = 3});
  trace.ops.add(op);
  trace.syncs.push_back({.start_ns = kBegin + 40, .end_ns = kBegin + 50, .event = 5});
  trace.finish();
  trace.works.push_back({4000, 100, 0, false});
  return trace;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_file_holds_what_chrome_json_holds) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 30; ++i) {
    StepTrace first = random_timeline_trace(random);
    StepTrace second = random_timeline_trace(random);
    second.rank = 5;
    for (TraceRecord& record : second.records) record.rank = 5;
    check_same_as_chrome({first, second});
  }
  check_same_as_chrome({});
}

// As who looks at all tracks for each slice.
BOOST_AUTO_TEST_CASE(a_slice_goes_to_the_first_track_with_room) {
  std::mt19937_64 random(9);
  size_t most_tracks = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<std::pair<int64_t, int64_t>> slices;  // start and the negative end
    for (uint64_t i = random() % 60; i > 0; --i) {
      const auto start_ns = static_cast<int64_t>(random() % 40);
      slices.emplace_back(start_ns, -start_ns - static_cast<int64_t>(random() % 20));
    }
    std::ranges::sort(slices);
    TrackFinder finder;
    std::vector<std::vector<int64_t>> tracks;  // what is open on each, the innermost last
    const auto end_until = [&](int64_t ns) {
      for (TrackFinder::End end; finder.end_until(ns, end);) {
        BOOST_TEST_REQUIRE(!tracks.at(end.track).empty());
        BOOST_TEST(tracks[end.track].back() == end.ns);
        BOOST_TEST(end.ns <= ns);
        tracks[end.track].pop_back();
      }
    };
    for (const auto& [start_ns, negative_end_ns] : slices) {
      const int64_t end_ns = -negative_end_ns;
      end_until(start_ns);
      size_t first = 0;
      while (first < tracks.size() && !tracks[first].empty() && tracks[first].back() < end_ns) {
        ++first;
      }
      BOOST_TEST_REQUIRE(finder.begin(end_ns) == first);
      tracks.resize(std::max(tracks.size(), first + 1));
      for (const auto& open : tracks) BOOST_TEST((open.empty() || open.back() > start_ns));
      tracks[first].push_back(end_ns);
    }
    end_until(100);
    for (const auto& open : tracks) BOOST_TEST(open.empty());
    most_tracks = std::max(most_tracks, tracks.size());
  }
  BOOST_TEST(most_tracks > 5U);
}

// Each overlaps all others. Who looked at all tracks for each slice would need minutes.
BOOST_AUTO_TEST_CASE(many_slices_that_overlap_are_placed_soon) {
  constexpr int64_t kCount = 200'000;
  TrackFinder finder;
  TrackFinder::End end;
  int64_t num_wrong = 0;
  for (int64_t i = 0; i < kCount; ++i) {
    num_wrong += finder.end_until(i, end) ? 1 : 0;
    num_wrong += finder.begin(kCount + i) == static_cast<size_t>(i) ? 0 : 1;
  }
  for (int64_t i = 0; i < kCount; ++i) {
    num_wrong += finder.end_until(kCount + i, end) && end.ns == kCount + i ? 0 : 1;
  }
  BOOST_TEST(num_wrong == 0);
  BOOST_TEST(!finder.end_until(3 * kCount, end));
}

BOOST_AUTO_TEST_CASE(a_file_of_another_tool_holds_what_chrome_json_holds) {
  std::vector<ImportedTrace> traces;
  traces.push_back(imported(2));
  traces.push_back(imported(6));
  std::ostringstream chrome;
  std::ostringstream perfetto;
  write_imported_chrome_json(chrome, traces, "viewer");
  write_imported_perfetto(perfetto, traces);
  const Decoded file(perfetto.str());
  check_same(chrome.str(), file);
  BOOST_TEST(file.slices.size() == 10U);
  BOOST_TEST(file.flows_from.size() == 2U);
  BOOST_TEST(file.processes.at(3) == "rank 2");
  std::map<std::string, const Slice*> slices;  // of the last rank
  for (const auto& [number, slice] : file.slices) slices[slice.name] = &slice;
  BOOST_TEST(slices["gemm"]->row == "stream 7");
  BOOST_TEST(slices["gemm"]->end_ns == 330);
  BOOST_TEST(slices["range"]->start_ns == 0);
  BOOST_TEST(slices["range"]->end_ns == 1000);
  // 4,000 FLOPs in 200 ns; 2,000 bytes in 200 ns.
  const std::vector<std::pair<int64_t, double>> flops = {{30, 2e10}, {230, 0}};
  const std::vector<std::pair<int64_t, double>> sent = {{130, 1e10}, {330, 0}};
  BOOST_TEST((file.counters.at({7, "FLOP/s"}) == flops));
  BOOST_TEST((file.counters.at({7, "communication B/s"}) == sent));
  write_imported_perfetto(perfetto, {});
}

BOOST_AUTO_TEST_CASE(slices_that_cross_get_tracks_of_their_own) {
  TraceBuilder builder(0, 100);
  builder.add(RecordKind::p2p, "first", 2, 0, 10, 50);
  builder.add(RecordKind::p2p, "crossing", 2, 0, 30, 70);
  builder.add(RecordKind::p2p, "within the first", 2, 0, 20, 25);
  builder.add(RecordKind::p2p, "without length", 2, 0, 50, 50);
  builder.add(RecordKind::p2p, "behind", 2, 0, 70, 80);
  check_same_as_chrome({builder.trace()});
  const Decoded file = decoded({builder.trace()}, {.stream_names = {{2, "pp"}}});
  std::map<std::string, uint64_t> tracks;
  for (const auto& [number, slice] : file.slices) {
    tracks[slice.name] = slice.track;
    if (slice.category != "step") BOOST_TEST(slice.row == "pp");
  }
  BOOST_TEST(tracks["first"] != tracks["crossing"]);
  BOOST_TEST(tracks["first"] == tracks["within the first"]);
  BOOST_TEST(tracks["first"] == tracks["without length"]);
  BOOST_TEST(tracks["first"] == tracks["behind"]);
}

BOOST_AUTO_TEST_CASE(garbage_is_written_whole) {
  std::mt19937_64 random(4);
  for (int i = 0; i < 30; ++i) {
    const StepTrace trace = random_garbage_trace(random);
    const Decoded file = decoded({trace});
    size_t num_records = 0;
    for (const auto& [number, slice] : file.slices) {
      num_records += slice.category != "step" && slice.category != "launch" ? 1U : 0U;
      BOOST_TEST(slice.end_ns >= slice.start_ns);
    }
    BOOST_TEST(num_records == trace.records.size());
  }
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler

// Files that are cut, damaged or made to do harm: one sentence that names the file, never a crash,
// and no more memory than the largest event needs.
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "kernels/base/error.h"
#include "profiler/analysis/imported_wall.h"
#include "profiler/analysis/trace_figures.h"
#include "profiler/analysis/trace_windows.h"
#include "profiler/import/byte_source.h"
#include "profiler/import/json_stream.h"
#include "profiler/import/trace_files.h"
#include "tests/import/reference_figures.h"
#include "tests/import/trace_texts.h"

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(bad_traces)

namespace {

using tests::EventText;
using tests::says;
using tests::TempFolder;
using tests::write_text;

std::string golden(const std::string& name) {
  return std::string(MOETUNE_SOURCE_DIR) + "/tests/golden/traces/" + name;
}

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string unpacked(const std::string& path) { return first_bytes(path, size_t{1} << 20); }

/// Everything that diagnose does with a file.
void read_and_judge(const std::string& path) {
  const std::vector<ImportedTrace> traces = read_trace_file(path);
  for (const ImportedTrace& trace : traces) {
    const TraceWindows windows(trace);
    windows.for_each([&](const TraceWindow& window) {
      const WindowFigures figures = windows.measure(window);
      BOOST_TEST(figures.wide.busy_ns + figures.wide.idle_ns == figures.wide.window_ns);
    });
    step_figures(trace);
  }
  classify_imported(traces);
}

/// What is said of a file with this content; empty: it was read.
std::string said_of(const TempFolder& folder, const std::string& content) {
  const std::string path = folder.file("damaged.json");
  write_text(path, content);
  try {
    read_and_judge(path);
  } catch (const base::UsageError& error) {
    const std::string text = error.what();
    BOOST_TEST(text.find(path) != std::string::npos, "'" << text << "' names the file");
    BOOST_TEST(text.find('\n') == std::string::npos, "'" << text << "' is one line");
    return text;
  }
  return {};
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_cut_file_is_refused_wherever_it_is_cut) {
  const TempFolder folder;
  const std::string packed = bytes_of(golden("cuda_event_sync.json.gz"));
  for (size_t length = 0; length < packed.size(); length += 7) {
    BOOST_TEST(!said_of(folder, packed.substr(0, length)).empty(), "cut to " << length);
  }
  BOOST_TEST(said_of(folder, packed).empty());
  const std::string text = unpacked(golden("cuda_event_sync.json.gz"));
  const size_t end = text.rfind('}');
  for (size_t length = 0; length < end; length += 11) {
    BOOST_TEST(!said_of(folder, text.substr(0, length)).empty(), "cut to " << length);
  }
  BOOST_TEST(said_of(folder, text).empty());
}

BOOST_AUTO_TEST_CASE(damaged_bytes_are_read_or_refused) {
  const TempFolder folder;
  tests::Random random(18);
  int num_refused = 0;
  for (const bool is_packed : {true, false}) {
    const std::string path = golden("cuda_event_sync_multi_stream.json.gz");
    const std::string good = is_packed ? bytes_of(path) : unpacked(path);
    for (int i = 0; i < 500; ++i) {
      std::string bad = good;
      const int num_changes = 1 + random.below(4);
      for (int change = 0; change < num_changes; ++change) {
        const auto at = static_cast<size_t>(random.below(static_cast<int>(bad.size())));
        switch (random.below(4)) {
          case 0:
            bad[at] = static_cast<char>(random.below(256));
            break;
          case 1:
            bad.erase(at, static_cast<size_t>(1 + random.below(40)));
            break;
          case 2:
            bad.insert(at, bad.substr(at / 2, static_cast<size_t>(random.below(60))));
            break;
          default:
            bad[at] = "{}[]\",:0-\\"[random.below(10)];
        }
      }
      num_refused += !said_of(folder, bad).empty();
    }
  }
  BOOST_TEST(num_refused > 500);
}

BOOST_AUTO_TEST_CASE(a_gzip_file_that_is_wrong_is_refused) {
  const TempFolder folder;
  const std::string text = EventText().kernel(1, 2, 3).json();
  std::string packed = tests::gzip_of(text);
  BOOST_TEST(said_of(folder, packed).empty());
  packed[packed.size() - 6] ^= 1;
  BOOST_TEST(said_of(folder, packed).find("checksum") != std::string::npos);
  packed[packed.size() - 6] ^= 1;
  BOOST_TEST(said_of(folder, packed + "more").find("behind its gzip data") != std::string::npos);
  BOOST_TEST(said_of(folder, packed + std::string(600, '\0')).empty());
  BOOST_TEST(!said_of(folder, std::string("\x1f\x8b")).empty());
}

// Members of every length, so that their ends fall on all places of a piece.
BOOST_AUTO_TEST_CASE(members_behind_one_another_are_one_file) {
  const TempFolder folder;
  EventText events;
  for (int i = 0; i < 4000; ++i) events.kernel(10 * i, 5, i + 1);
  const std::string text = events.json();
  std::string packed;
  size_t length = 1;
  for (size_t at = 0; at < text.size(); at += length, length = length * 7 % 3001 + 1) {
    packed += tests::gzip_of(std::string_view(text).substr(at, length));
  }
  write_text(folder.file("members.json.gz"), packed);
  const auto traces = read_trace_file(folder.file("members.json.gz"));
  BOOST_TEST(traces.at(0).ops.size() == 4000U);
}

BOOST_AUTO_TEST_CASE(a_bomb_of_gzip_is_refused) {
  const TempFolder folder;
  write_text(folder.file("blanks"), std::string(size_t{16} << 20, ' '));
  BOOST_TEST_REQUIRE(std::system(("gzip -9nf " + folder.file("blanks")).c_str()) == 0);
  const std::string member = bytes_of(folder.file("blanks.gz"));
  std::string bomb = tests::gzip_of("{\"traceEvents\": [");
  for (int i = 0; i < 100; ++i) bomb += member;
  BOOST_TEST(said_of(folder, bomb).find("which no trace does") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_text_without_end_is_refused_before_it_fills_the_memory) {
  const TempFolder folder;
  const std::string huge(JsonStream::kMaxValueBytes + 1000, 'a');
  BOOST_TEST(said_of(folder, EventText().kernel(1, 2, 3, huge).json()).find("more than 64 MB") !=
             std::string::npos);
  // Nobody wants this one: it is passed over.
  BOOST_TEST(said_of(folder, EventText().kernel(1, 2, 3).json(", \"x\": \"" + huge + "\"")) == "");
}

BOOST_AUTO_TEST_CASE(documents_that_are_no_traces_are_refused) {
  const TempFolder folder;
  const auto check = [&](const std::string& content, const char* part) {
    const std::string text = said_of(folder, content);
    BOOST_TEST(text.find(part) != std::string::npos, "'" << text << "' says '" << part << "'");
  };
  check("", "is empty");
  check("SQLite", "no trace of a known kind");
  check("{}", "has no traceEvents");
  check("{\"a\": {\"traceEvents\": []}}", "has no traceEvents");
  check("{\"traceEvents\": {}}", "is no list");
  check("{\"traceEvents\": [], \"traceEvents\": []}", "twice");
  check("{\"traceEvents\": []} x", "behind the end");
  check("{\"traceEvents\": [{} {}]}", "a comma is missing");
  check("{\"traceEvents\": [{},]}", "a value is missing");
  check("{\"traceEvents\" []}", "a colon is missing");
  check("{traceEvents: []}", "a key in quotes is missing");
  check(std::string("{\"traceEvents\": [\0]}", 19), "byte");
  check("[" + std::string(100, '['), "does not end");
  const std::string deep(10'000, '[');
  check(
      EventText().kernel(1, 2, 3, "gemm", 7, ", \"x\": " + deep + std::string(10'000, ']')).json(),
      "an event: it has more than 64");
  BOOST_CHECK_EXCEPTION(read_trace_file(folder.file("nowhere")), base::UsageError,
                        says("nowhere", "No such file"));
  BOOST_CHECK_EXCEPTION(read_trace_file(folder.file("")), base::UsageError, says("regular file"));
}

// What follows a value in the file must not look like more of it.
BOOST_AUTO_TEST_CASE(brackets_that_do_not_match_are_refused) {
  const TempFolder folder;
  for (const char* value : {"[{\"name\": 5]", "[5}", "[{}, }", "{\"a\": [}", "[[1}, {\"a\": 2]"}) {
    const std::string facts = "{\"deviceProperties\": " + std::string(value);
    BOOST_TEST(said_of(folder, facts + ", [{\"name\": 1}], \"traceEvents\": []}") != "", value);
    BOOST_TEST(said_of(folder, facts + "}, \"traceEvents\": [{}, {}]}") != "", value);
  }
}

BOOST_AUTO_TEST_CASE(numbers_that_are_none_are_refused) {
  const TempFolder folder;
  const auto event = [](const std::string& ts, const std::string& duration) {
    return "[{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"gemm\", \"ts\": " + ts +
           ", \"dur\": " + duration + "}]";
  };
  for (const char* bad : {"9223372036854775808", "1e300", "-9e18", "\"soon\"", "null", "[1]", "{}",
                          "12345678901234567890123", "0x10", "1.", "--1"}) {
    BOOST_TEST_CONTEXT(bad) {
      const bool is_missing = bad[0] == '[' || bad[0] == '{';
      BOOST_TEST(said_of(folder, event(bad, "1")).empty() == is_missing);
      BOOST_TEST(said_of(folder, event("1", bad)).empty() == is_missing);
    }
  }
  BOOST_TEST(said_of(folder, event("9223372036854775808", "1")).find("event 1 ('gemm'): ts") !=
             std::string::npos);
  BOOST_TEST(said_of(folder, event("-1.5", "\"2.25\"")).empty());
}

BOOST_AUTO_TEST_CASE(odd_events_do_not_change_the_others) {
  const TempFolder folder;
  EventText events;
  events.kernel(10, -5, 1).kernel(20, 5, 1).kernel(30, 0, 99).call(1, 2, 1).call(3, 4, 1);
  events.kernel(40, 1, 0).kernel(50, 1, -7);
  events.add(R"({"ph": "X", "cat": "kernel", "name": "no time"})");
  events.add("null").add("17").add("[]").add("{}").add(R"({"cat": 3, "ph": {}})");
  events.add(R"({"ph": "B", "cat": "kernel", "name": "half", "ts": 1})");
  events.add(R"({"ph": "X", "cat": "cpu_op", "args": {"kernel": {"ph": "X", "cat": "kernel"}}})");
  const ImportedTrace trace = events.read();
  BOOST_TEST_REQUIRE(trace.ops.size() == 5U);
  BOOST_TEST(trace.facts.num_clipped == 1);
  BOOST_TEST(trace.facts.num_incomplete == 1);
  BOOST_TEST(trace.facts.num_events == 15);
  BOOST_TEST(trace.ops[0].duration_ns() == 0);
  for (const size_t row : {0, 1}) {  // the first of two calls, for both
    BOOST_TEST_REQUIRE(trace.launch_of(trace.ops[row]) != nullptr);
    BOOST_TEST(trace.launch_of(trace.ops[row])->start_ns == 1000);
  }
  for (const size_t row : {2, 3, 4}) BOOST_TEST(trace.launch_of(trace.ops[row]) == nullptr);
}

BOOST_AUTO_TEST_CASE(names_are_only_text) {
  const TempFolder folder;
  const std::string markup = "<script>alert(1)</script>\\u001b[31m\\u0000\\\"&amp;";
  const ImportedTrace trace =
      EventText().kernel(1, 2, 1, markup).kernel(4, 2, 2, "\\ud800 half").read();
  BOOST_TEST(trace.names[trace.ops[0].name] ==
             std::string("<script>alert(1)</script>\x1b[31m\0\"&amp;", 37));
  BOOST_TEST(trace.names[trace.ops[1].name] == "\\ud800 half");
  BOOST_TEST(
      said_of(folder, EventText().kernel(1, 2, 1, "bad \xff\xfe").json()).find("it is not UTF-8") !=
      std::string::npos);
  const std::string longest(NameTable::kMaxNameBytes + 10, 'n');
  const ImportedTrace cut = EventText().kernel(1, 2, 1, longest).read();
  BOOST_TEST(cut.names[cut.ops[0].name].size() == NameTable::kMaxNameBytes);
  BOOST_TEST(cut.names.num_cut() == 1);
}

// Each of 20,000 would be a window over all of the work that lies in it.
BOOST_AUTO_TEST_CASE(steps_within_steps_without_end_are_left_out) {
  constexpr int kNumSteps = 20'000;
  EventText events;
  for (int step = 0; step < kNumSteps; ++step) {
    events.range(step, 2 * (kNumSteps - step), "ProfilerStep#" + std::to_string(step));
    events.call(step + 0.25, 0.5, step + 1).kernel(step + 0.5, 0.5, step + 1);
  }
  const TempFolder folder;
  BOOST_TEST(said_of(folder, events.json()).empty());
  const ImportedTrace trace = events.read();
  BOOST_TEST_REQUIRE(trace.steps.size() == 16U);
  BOOST_TEST(trace.steps.back().number == 15);
  BOOST_TEST(trace.facts.notes.back().starts_with("19984 of 20000 steps are left out"));
}

BOOST_AUTO_TEST_CASE(more_streams_than_there_are_are_refused) {
  const TempFolder folder;
  EventText events;
  for (int stream = 0; stream < 65'537; ++stream) events.kernel(stream, 1, 1, "k", stream);
  BOOST_TEST(said_of(folder, events.json()).find("65535") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler

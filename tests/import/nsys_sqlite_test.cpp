// Exports of Nsight Systems: what is read of them, what is told where they lack something, and that
// hostile or damaged ones end in one sentence.
#include "profiler/import/nsys_sqlite.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "kernels/base/error.h"
#include "profiler/import/trace_files.h"
#include "tests/import/nsys_export.h"
#include "tests/import/shared_traces.h"
#include "tests/profiler/temp_folder.h"

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(exports_of_nsight_systems)

namespace {

using tests::NsysExport;
using tests::says;
using tests::TempFolder;

enum Name : int64_t { kGemm = 10, kLaunch, kSync, kQuery, kWaitEvent, kRecord, kCopyCall, kSend };

void add_names(NsysExport& file) {
  file.text(kGemm, "void gemm<float>(int)")
      .text(kLaunch, "cudaLaunchKernel_v7000")
      .text(kSync, "cudaStreamSynchronize_v3020")
      .text(kQuery, "cudaEventQuery_v3020")
      .text(kWaitEvent, "cudaStreamWaitEvent_v3020")
      .text(kRecord, "cudaEventRecord_v3020")
      .text(kCopyCall, "cudaMemcpyAsync_v3020")
      .text(kSend, "ncclSend_v2");
}

std::string notes_of(const ImportedTrace& trace) {
  std::string text;
  for (const std::string& note : trace.facts.notes) text += note + "\n";
  return text;
}
bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// A kernel with its call, in process 7 on device 0.
void add_one_kernel(NsysExport& file) {
  file.kernel(7, 0, 100, 200, 13, 1, kGemm).call(7, 70, 10, 20, 1, kLaunch);
}

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> files_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename());
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace

BOOST_AUTO_TEST_CASE(device_work_and_calls_are_joined_within_a_process) {
  const TempFolder folder;
  {
    NsysExport file(folder.file("a.sqlite"));
    add_names(file);
    // The same ids in both processes. The second comes first in the file.
    file.kernel(8, 1, 300, 400, 13, 5, kGemm, 12).kernel(7, 0, 100, 200, 13, 5, kGemm);
    file.copy(7, 0, 50, 90, 14, 6, 4096, 8);
    file.call(7, 70, 10, 20, 5, kLaunch).call(8, 80, 30, 40, 5, kLaunch);
    file.call(7, 71, 1, 2, 6, kCopyCall).call(9, 90, 0, 9, 5, kLaunch);
    file.run("INSERT INTO DIAGNOSTIC_EVENT VALUES (0, 1, 'hello'), (0, 2, 'lost" +
             std::string("\n") + "7 records'), (0, 4, 'chatter')");
  }
  const std::vector<ImportedTrace> traces = read_trace_file(folder.file("a.sqlite"));
  BOOST_TEST_REQUIRE(traces.size() == 2);
  const ImportedTrace& first = traces[0];
  BOOST_TEST_REQUIRE(first.ops.size() == 2);
  BOOST_TEST(first.calls.size() == 2);
  const ImportedOp& copy = first.ops[0];
  BOOST_TEST((copy.kind == ActivityKind::copy && copy.path == CopyPath::on_device));
  BOOST_TEST(first.names[copy.name] == "Memcpy DtoD (Pinned -> Device)");
  BOOST_TEST(first.names[copy.detail] == "DtoD");
  BOOST_TEST(copy.bytes == 4096);
  const ImportedOp& kernel = first.ops[1];
  BOOST_TEST(first.names[kernel.name] == "void gemm<float>(int)");
  BOOST_TEST(first.streams[kernel.stream].id == 13);
  BOOST_TEST_REQUIRE(first.launch_of(kernel) != nullptr);
  BOOST_TEST(first.launch_of(kernel)->start_ns == 10);
  BOOST_TEST(first.names[first.launch_of(kernel)->name] == "cudaLaunchKernel");
  BOOST_TEST((first.launch_of(kernel)->kind == CallKind::launch));
  BOOST_TEST(first.threads[first.launch_of(kernel)->thread].process == 7);
  BOOST_TEST(first.threads[first.launch_of(kernel)->thread].id == 70);
  const ImportedTrace& second = traces[1];
  BOOST_TEST_REQUIRE(second.ops.size() == 1);
  BOOST_TEST(second.launch_of(second.ops[0])->start_ns == 30);
  BOOST_TEST(second.shapes[second.ops[0].detail].grid[0] == 12);
  BOOST_TEST(second.streams[second.ops[0].stream].device == 1);
  for (size_t i = 0; i < traces.size(); ++i) {
    const TraceFacts& facts = traces[i].facts;
    BOOST_TEST(facts.rank.value_or(-1) == static_cast<int64_t>(i));
    BOOST_TEST(facts.is_rank_guessed);
    BOOST_TEST(facts.format == "nsys");
    BOOST_TEST(facts.version == "2026.2.1.210, schema 3.25.0");
    BOOST_TEST(facts.device_names == (std::vector<std::string>{"GPU A", "GPU B"}),
               boost::test_tools::per_element());
    BOOST_TEST(facts.base_time_ns == 1'700'000'000'000'000'000);
    BOOST_TEST(facts.notes == (std::vector<std::string>{"Nsight Systems: lost 7 records"}),
               boost::test_tools::per_element());
  }
  BOOST_TEST(first.facts.num_of.at("CUPTI_ACTIVITY_KIND_KERNEL") == 1);
  BOOST_TEST(first.facts.num_of.at("CUPTI_ACTIVITY_KIND_MEMCPY") == 1);
  BOOST_TEST(first.facts.num_events == 4);
  BOOST_TEST(second.facts.num_events == 2);
}

BOOST_AUTO_TEST_CASE(several_devices_of_one_process_share_what_held_it_up) {
  const TempFolder folder;
  {
    NsysExport file(folder.file("a.sqlite"));
    add_names(file);
    file.kernel(7, 0, 100, 200, 13, 5, kGemm).kernel(7, 1, 150, 250, 13, 6, kGemm);
    file.call(7, 70, 10, 20, 5, kLaunch).call(7, 70, 20, 30, 6, kLaunch);
    file.call(7, 70, 40, 260, 7, kSync);
    file.wait(7, 2, 40, 260, 13, 7, 3, 0xFFFFFFFF, 0);  // context 2 is device 1's
    file.range(7, 70, 0, 300, "iteration 1");
  }
  const std::vector<ImportedTrace> traces = read_trace_file(folder.file("a.sqlite"));
  BOOST_TEST_REQUIRE(traces.size() == 2);
  for (size_t i = 0; i < 2; ++i) {
    const ImportedTrace& trace = traces[i];
    BOOST_TEST(trace.ops.size() == 1);
    BOOST_TEST_REQUIRE(trace.calls.size() == 2);  // its own launch, and the wait of both
    BOOST_TEST(trace.launch_of(trace.ops[0])->start_ns == 10 + static_cast<int64_t>(i) * 10);
    BOOST_TEST(trace.steps.size() == 1);
    BOOST_TEST(trace.ranges.size() == 1);
  }
  BOOST_TEST(traces[0].syncs.empty());
  BOOST_TEST_REQUIRE(traces[1].syncs.size() == 1);
  BOOST_TEST((traces[1].syncs[0].kind == SyncKind::stream));
}

BOOST_AUTO_TEST_CASE(a_call_says_what_a_wait_is) {
  const TempFolder folder;
  constexpr int64_t kNone = 0xFFFFFFFF;
  {
    NsysExport file(folder.file("a.sqlite"));
    add_names(file);
    add_one_kernel(file);
    file.call(7, 70, 300, 310, 2, kSync).call(7, 70, 320, 330, 3, kQuery);
    file.call(7, 70, 340, 350, 4, kRecord).call(7, 70, 360, 370, 5, kWaitEvent);
    file.call(7, 70, 380, 390, 6, kRecord).call(7, 70, 392, 394, 7, kWaitEvent);
    file.wait(7, 1, 300, 310, 13, 2, 2, kNone, kNone);  // as 2025.5.2 wrote it
    file.wait(7, 1, 320, 330, kNone, 3, 1, 77, kNone);
    file.wait(7, 1, 360, 370, 14, 5, 2, 77, 901);
    file.wait(7, 1, 392, 394, 14, 7, 2, 77, kNone);
    file.wait(7, 1, 395, 399, kNone, 99, 4, kNone, kNone);  // whose call is not in the file
    // Recorded three times; in another process, too.
    file.event(8, 99, 4, 77, 901).event(7, 13, 4, 77, 901).event(7, 15, 6, 77, 902);
    file.event(7, 16, 8, 77, 903);
  }
  const std::vector<ImportedTrace> traces = read_trace_file(folder.file("a.sqlite"));
  BOOST_TEST_REQUIRE(traces.size() == 1);
  const ImportedTrace& trace = traces[0];
  BOOST_TEST_REQUIRE(trace.syncs.size() == 4);
  const auto stream = [&](uint32_t row) { return row == kNoRow ? -1 : trace.streams[row].id; };
  const ImportedSync& host = trace.syncs[0];
  BOOST_TEST((host.kind == SyncKind::stream));
  BOOST_TEST(stream(host.stream) == 13);
  BOOST_TEST(host.event == 0U);
  const ImportedSync& by_sync = trace.syncs[1];
  BOOST_TEST((by_sync.kind == SyncKind::stream_wait));
  BOOST_TEST(stream(by_sync.stream) == 14);
  BOOST_TEST(stream(by_sync.producer_stream) == 13);
  BOOST_TEST(by_sync.record_correlation == 4U);
  BOOST_TEST(by_sync.event == 77U);
  const ImportedSync& by_event = trace.syncs[2];  // the recording before the wait, not the last
  BOOST_TEST(stream(by_event.producer_stream) == 15);
  BOOST_TEST(by_event.record_correlation == 6U);
  const ImportedSync& unknown = trace.syncs[3];
  BOOST_TEST((unknown.kind == SyncKind::device));
  BOOST_TEST(stream(unknown.stream) == -1);
  BOOST_TEST(unknown.record_correlation == 0U);
}

BOOST_AUTO_TEST_CASE(ranges_are_read_without_operators) {
  const TempFolder folder;
  {
    NsysExport file(folder.file("a.sqlite"));
    add_names(file);
    add_one_kernel(file);
    file.text(50, "step 8").text(51, "layer_v2");
    file.range(7, 70, 0, 10, "aten::mm, op_id = 5").range(7, 70, 0, 10, "MyFn, seq = 3, op_id = 6");
    file.range(7, 70, 1, 9, "nccl:all_to_all, op_id = 7").range(7, 70, 1, 9, "load, op_id = 8");
    file.range(7, 70, 2, 8, "", 50).range(7, 71, 3, 7, "", 51).range(7, 70, 3, 7, "", 52);
    file.range(7, 70, 4, std::nullopt, "open").range(9, 90, 0, 5, "step 1").range(7, 70, 8, 4, "b");
    file.run("INSERT INTO NVTX_EVENTS VALUES (5, NULL, 34, 'mark', " +
             std::to_string(tests::nsys_process(7)) + ", NULL, 0)");
  }
  const ImportedTrace trace = std::move(read_trace_file(folder.file("a.sqlite")).front());
  std::string found;
  for (const HostRange& range : trace.ranges) {
    found += fmt::format("{}:{}-{} ", trace.names[range.name], range.start_ns, range.end_ns);
  }
  BOOST_TEST(found ==
             "nccl:all_to_all:1-9 load:1-9 step 8:2-8 layer_v2:3-7 (unnamed 52):3-7 b:8-8 ");
  BOOST_TEST(trace.facts.num_of.at("NVTX_EVENTS") == 8);
  BOOST_TEST_REQUIRE(trace.steps.size() == 1);
  BOOST_TEST(trace.steps[0].number == 8);
}

BOOST_AUTO_TEST_CASE(what_is_missing_is_told) {
  const TempFolder folder;
  {
    NsysExport file(folder.file("bare.sqlite"), false);
    file.run("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, shortName)");
    file.run("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (5, 9, 1), (3, 1, 2), (NULL, 4, 1)");
    file.run("CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start, nameId)");
  }
  const ImportedTrace trace = std::move(read_trace_file(folder.file("bare.sqlite")).front());
  BOOST_TEST(trace.ops.size() == 2);
  BOOST_TEST(trace.facts.num_clipped == 1);
  BOOST_TEST(trace.facts.num_incomplete == 1);
  BOOST_TEST(trace.names[trace.ops[0].name] == "(unnamed 2)");
  const std::string notes = notes_of(trace);
  BOOST_TEST(has(notes,
                 "CUPTI_ACTIVITY_KIND_KERNEL has no column deviceId, streamId, correlationId, "
                 "globalPid, contextId, demangledName, "));
  BOOST_TEST(has(notes,
                 "CUPTI_ACTIVITY_KIND_RUNTIME has no column end, globalTid, correlationId, "
                 "so it was not read"));
  BOOST_TEST(has(notes, "StringIds"));
  BOOST_TEST(has(notes, "does not say the version of its schema"));

  // Without the process in the device's tables, calls are joined all the same.
  {
    NsysExport file(folder.file("old.sqlite"));
    add_names(file);
    add_one_kernel(file);
    file.run("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN globalPid");
    file.run("UPDATE META_DATA_EXPORT SET value = '4.1.0' WHERE name = 'EXPORT_SCHEMA_VERSION'");
  }
  const ImportedTrace old = std::move(read_trace_file(folder.file("old.sqlite")).front());
  BOOST_TEST(old.launch_of(old.ops[0]) != nullptr);
  BOOST_TEST(has(notes_of(old), "schema 4.1.0 is not known here (known: 3.0 to 3.25)"));
}

BOOST_AUTO_TEST_CASE(odd_numbers_are_read_for_what_they_are) {
  const TempFolder folder;
  {
    NsysExport file(folder.file("rank-3.sqlite"));
    add_names(file);
    // Negative times, no duration, ids past 32 bits, a call that is joined to nothing.
    file.kernel(7, 0, -500, -400, int64_t{1} << 40, (int64_t{1} << 32) + 1, kGemm);
    file.kernel(7, 0, 100, 100, 13, -4, kGemm, int64_t{1} << 40).kernel(7, 0, 0, 0, 13, 3, kGemm);
    file.call(7, 70, 10, 20, 1, kLaunch).call(7, 70, 10, 20, (int64_t{1} << 32) + 1, kLaunch);
  }
  const ImportedTrace trace = std::move(read_trace_file(folder.file("rank-3.sqlite")).front());
  BOOST_TEST_REQUIRE(trace.ops.size() == 2);
  BOOST_TEST(trace.ops[0].start_ns == -500);
  BOOST_TEST(trace.ops[0].correlation == 0U);
  BOOST_TEST(trace.launch_of(trace.ops[0]) == nullptr);
  BOOST_TEST(trace.streams[trace.ops[0].stream].id == int64_t{1} << 40);
  BOOST_TEST(trace.shapes[trace.ops[1].detail].grid[0] == 0U);
  BOOST_TEST(trace.facts.num_incomplete == 1);  // both times 0: CUPTI could not read them
  BOOST_TEST(trace.facts.rank.value_or(-1) == 3);
}

BOOST_AUTO_TEST_CASE(what_the_program_was_given_is_not_read) {
  const TempFolder folder;
  {
    NsysExport file(folder.file("a.sqlite"));
    add_names(file);
    add_one_kernel(file);
  }
  const ImportedTrace trace = std::move(read_trace_file(folder.file("a.sqlite")).front());
  std::string all = notes_of(trace) + trace.facts.version;
  for (uint32_t name = 0; name < trace.names.size(); ++name) all += trace.names[name] + "\n";
  BOOST_TEST(has(all, "gemm"));
  BOOST_TEST(!has(all, "secret"));
}

BOOST_AUTO_TEST_CASE(nothing_is_written_beside_the_file) {
  const TempFolder folder;
  const std::string path = folder.file("50% of ?a#b=1.sqlite");
  {
    NsysExport file(path);
    add_names(file);
    add_one_kernel(file);
  }
  {  // a file that says it has a log, as a program leaves it that died or is done
    store::Database database(path, store::OpenMode::read_write);
    database.execute("PRAGMA journal_mode = wal");
  }
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  const std::string before = bytes_of(path);
  BOOST_TEST(before[18] == 2);  // the version that means a log
  BOOST_TEST_REQUIRE(files_in(parent).size() == 1);
  BOOST_TEST(read_trace_file(path).size() == 1);
  BOOST_TEST(files_in(parent).size() == 1);
  BOOST_TEST(bytes_of(path) == before);

  tests::write_text(path + "-wal", "changes");
  BOOST_CHECK_EXCEPTION(read_trace_file(path), base::UsageError,
                        says(path, "has changes in", "-wal that are not in it yet"));
}

BOOST_AUTO_TEST_CASE(a_hostile_file_ends_in_a_sentence) {
  const TempFolder folder;
  int number = 0;
  const auto expect = [&](const std::string& sql, const std::string& sentence) {
    const std::string path = folder.file(std::to_string(++number) + ".sqlite");
    {
      NsysExport file(path);
      add_names(file);
      add_one_kernel(file);
      file.run(sql);
    }
    BOOST_TEST_CONTEXT(sql.substr(0, 100)) {
      BOOST_CHECK_EXCEPTION(read_trace_file(path), base::UsageError, says(path, sentence));
    }
  };
  const std::string drop =
      "DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL;"
      "DROP TABLE CUPTI_ACTIVITY_KIND_MEMCPY;";
  expect(drop, "without CUPTI_ACTIVITY_KIND_KERNEL, expected what 'nsys export --type sqlite'");
  expect(drop + "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT 1 AS start, 2 AS end",
         "without CUPTI_ACTIVITY_KIND_KERNEL");
  expect(drop + "CREATE VIRTUAL TABLE CUPTI_ACTIVITY_KIND_KERNEL USING fts5(start, end)",
         "without CUPTI_ACTIVITY_KIND_KERNEL");
  expect(drop + "CREATE TABLE sweep (id INTEGER); CREATE TABLE trial (id INTEGER)",
         "is a runs database of moetune, expected what a run of another framework has left; "
         "'moetune show' and 'moetune report'");
  expect("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL", "holds no device work");
  const std::string set = "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET ";
  expect(set + "start = 'soon'", "row 1: start is 'soon', expected a whole number of 64 bits");
  expect(set + "end = 'a' || char(10, 27) || 'b'", "row 1: end is 'a  b', expected");
  expect(set + "end = 1e300", "row 1: end is '1.0e+300', expected a whole number");
  expect(set + "start = -9223372036854775808",
         "row 1: start is '-9223372036854775808', expected nanoseconds below 2^61");
  expect(set + "streamId = x'00ff'", "streamId is ");
  expect("UPDATE StringIds SET value = CAST(zeroblob(100000000) AS TEXT) WHERE id = 10",
         "has a text of more than 1 MB where a name is expected");
  expect(
      "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n LIMIT 40) "
      "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, contextId, streamId, "
      "globalPid, demangledName, shortName, registersPerThread, gridX, gridY, gridZ, blockX, "
      "blockY, blockZ, staticSharedMemory, dynamicSharedMemory, localMemoryPerThread, "
      "localMemoryTotal, gridId) SELECT 1, 2, i, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, "
      "0, 0 FROM n",
      "has more than 16 devices in a process");
}

BOOST_AUTO_TEST_CASE(triggers_and_views_do_no_harm) {
  const TempFolder folder;
  {
    NsysExport file(folder.file("a.sqlite"));
    add_names(file);
    add_one_kernel(file);
    // A long text that nobody asks for, such as the output of the program.
    file.run("INSERT INTO StringIds VALUES (99, CAST(zeroblob(5000000) AS TEXT))");
    file.run("DROP TABLE DIAGNOSTIC_EVENT");
    file.run(
        "CREATE VIEW DIAGNOSTIC_EVENT AS WITH RECURSIVE n(severity) AS "
        "(SELECT 2 UNION ALL SELECT 2 FROM n) SELECT severity, 'x' AS text FROM n");
    file.run("CREATE TRIGGER t AFTER INSERT ON StringIds BEGIN DELETE FROM StringIds; END");
    file.run("CREATE INDEX i ON CUPTI_ACTIVITY_KIND_KERNEL(start) WHERE start > 0");
  }
  const ImportedTrace trace = std::move(read_trace_file(folder.file("a.sqlite")).front());
  BOOST_TEST(trace.names[trace.ops[0].name] == "void gemm<float>(int)");
  BOOST_TEST(notes_of(trace) == "DIAGNOSTIC_EVENT is no plain table, so it was not read\n");
}

BOOST_AUTO_TEST_CASE(kernels_that_stand_in_no_table_are_told) {
  const TempFolder folder;
  {
    NsysExport file(folder.file("a.sqlite"));
    add_names(file);
    add_one_kernel(file);
    file.run(
        "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY (start, end, deviceId, contextId, streamId, "
        "bytes, copyKind) VALUES (1, 2, 0, 1, 7, 8, 1)");
    file.run("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME TO kernels");
    file.run("CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT * FROM kernels");
  }
  const ImportedTrace trace = std::move(read_trace_file(folder.file("a.sqlite")).front());
  const std::string notes = notes_of(trace);
  BOOST_TEST(has(notes, "has no kernels (CUPTI_ACTIVITY_KIND_KERNEL)"), notes);
  BOOST_TEST(has(notes, "CUPTI_ACTIVITY_KIND_KERNEL is no plain table, so it was not read"), notes);
}

BOOST_AUTO_TEST_CASE(other_files_are_known_for_what_they_are) {
  const TempFolder folder;
  tests::write_text(folder.file("a"), std::string("SQLite format 3\0", 16) + "and no more");
  BOOST_CHECK_EXCEPTION(read_trace_file(folder.file("a")), base::UsageError,
                        says("is no SQLite file, or a damaged one"));
  BOOST_CHECK_EXCEPTION(read_nsys_sqlite(folder.file("none")), base::UsageError,
                        says("cannot be opened"));
  BOOST_CHECK_EXCEPTION(read_nsys_sqlite("/tmp"), base::UsageError, says("not a regular file"));
}

/// Every byte of a small file, and of the shared ones some, is changed; every length is tried. The
/// result may be a trace, since most bytes are figures.
BOOST_AUTO_TEST_CASE(damaged_files_end_in_a_trace_or_a_sentence) {
  const TempFolder folder;
  {
    NsysExport file(folder.file("whole.sqlite"));
    add_names(file);
    for (int i = 1; i < 200; ++i) {
      file.kernel(7, 0, i * 100, i * 100 + 50, 13, i, kGemm);
      file.call(7, 70, i * 10, i * 10 + 5, i, kLaunch);
    }
    file.range(7, 70, 0, 9000, "iteration 1");
  }
  const std::string whole = bytes_of(folder.file("whole.sqlite"));
  const std::string path = folder.file("damaged.sqlite");
  int num_read = 0;
  int num_refused = 0;
  const auto try_one = [&](const std::string& bytes) {
    tests::write_text(path, bytes);
    try {
      read_trace_file(path);
      ++num_read;
    } catch (const base::UsageError& error) {
      ++num_refused;
      const std::string text = error.what();
      BOOST_TEST(has(text, path));
      BOOST_TEST(!has(text, "\n"));
    }
  };
  std::mt19937 random(18);
  for (int i = 0; i < 3000; ++i) {
    std::string bytes = whole;
    const int num_changes = 1 + static_cast<int>(random() % 8);
    for (int change = 0; change < num_changes; ++change) {
      // Half of them in the parts that link pages: the first bytes of each.
      const size_t page = random() % (bytes.size() / 4096) * 4096;
      const size_t at = random() % 2 == 0 ? page + random() % 120 : random() % bytes.size();
      bytes[at] = static_cast<char>(random() % 3 == 0 ? random() % 12 : random());
    }
    try_one(bytes);
  }
  for (size_t size = 1; size < whole.size(); size += 509) try_one(whole.substr(0, size));
  BOOST_TEST(num_read > 100);
  BOOST_TEST(num_refused > 100);
}

BOOST_AUTO_TEST_CASE(real_exports_say_what_waits) {
  const std::string folder = tests::shared_traces();
  if (folder.empty()) {
    BOOST_TEST_MESSAGE("skipped: there is no folder shared/traces beside the checkout");
    return;
  }
  const auto traces = read_trace_file(folder + "/nsys-ai/mfu_2gpu_before.sqlite");
  BOOST_TEST_REQUIRE(traces.size() == 2);
  int num_stream = 0;
  int num_stream_wait = 0;
  for (const ImportedTrace& trace : traces) {
    for (const ImportedSync& sync : trace.syncs) {
      num_stream += sync.kind == SyncKind::stream;
      num_stream_wait += sync.kind == SyncKind::stream_wait;
      BOOST_TEST(sync.producer_stream == kNoRow);  // no recordings are in this file
    }
    BOOST_TEST(trace.steps.empty());
    BOOST_TEST(trace.facts.notes.empty(), notes_of(trace));
  }
  BOOST_TEST(num_stream == 33);
  BOOST_TEST(num_stream_wait == 200);
  const auto smoke = read_trace_file(folder + "/flameox/nsight-2025.5.2.sqlite");
  BOOST_TEST_REQUIRE(smoke.size() == 1);
  for (const ImportedSync& sync : smoke[0].syncs) BOOST_TEST((sync.kind == SyncKind::stream));
  BOOST_TEST(smoke[0].facts.device_names.at(0) == "NVIDIA GeForce RTX 3060");
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler

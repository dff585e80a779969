// Packed traces: everything comes back, few bytes are taken, and no blob of anybody does harm.
#include "profiler/store/trace_blob.h"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <limits>
#include <map>
#include <random>
#include <tuple>

#include "kernels/base/error.h"
#include "profiler/store/column_codec.h"
#include "profiler/store/db.h"
#include "profiler/store/store.h"
#include "tests/profiler/store_samples.h"
#include "tests/profiler/synthetic_trace.h"
#include "tests/profiler/temp_folder.h"

namespace moetune::store {
BOOST_AUTO_TEST_SUITE(trace_blob_test)

namespace {

using profiler::random_timeline_trace;
using profiler::StepTrace;
using profiler::TraceRecord;
using tests::says;
using tests::TempFolder;

/// Texts by numbers, as the database has them.
class Texts {
 public:
  int64_t id_of(const std::string& text) {
    const auto [at, is_new] = ids_.try_emplace(text, static_cast<int64_t>(ids_.size()) + 1);
    if (is_new) texts_[at->second] = text;
    return at->second;
  }
  [[nodiscard]] std::string text_of(int64_t id) const {
    const auto found = texts_.find(id);
    if (found == texts_.end()) throw base::Error("no such text");
    return found->second;
  }

 private:
  std::map<std::string, int64_t> ids_;
  std::map<int64_t, std::string> texts_;
};

std::string pack(const std::vector<StepTrace>& traces, Texts& texts) {
  return pack_traces(traces, [&](const std::string& text) { return texts.id_of(text); });
}

std::vector<StepTrace> unpack(std::string_view blob, const Texts& texts) {
  return unpack_traces(blob, "runs.db", [&](int64_t id) { return texts.text_of(id); });
}

void check_round_trip(const std::vector<StepTrace>& traces) {
  Texts texts;
  const std::vector<StepTrace> back = unpack(pack(traces, texts), texts);
  BOOST_TEST_REQUIRE(back.size() == traces.size());
  for (size_t t = 0; t < traces.size(); ++t) {
    BOOST_TEST(back[t].step == traces[t].step);
    BOOST_TEST(back[t].rank == traces[t].rank);
    BOOST_TEST((back[t].further_waits == traces[t].further_waits));
    BOOST_TEST_REQUIRE(back[t].records.size() == traces[t].records.size());
    for (size_t i = 0; i < traces[t].records.size(); ++i) {
      const auto tied = [](const TraceRecord& r) {
        return std::tie(r.id, r.kind, r.stream, r.name, r.layer, r.micro_batch, r.launch_start_ns,
                        r.launch_end_ns, r.start_ns, r.end_ns, r.group, r.bytes, r.flops,
                        r.transfer_ns, r.sequence, r.graph_id, r.producer_id, r.is_recompute,
                        r.thread, r.device, r.kernel, r.grid, r.block, r.communicator, r.peer);
      };
      BOOST_TEST((tied(back[t].records[i]) == tied(traces[t].records[i])), "record " << i);
      BOOST_TEST(back[t].records[i].rank == traces[t].rank);
      BOOST_TEST(back[t].records[i].step == traces[t].step);
    }
  }
}

/// A member at each end of what it holds.
TraceRecord extreme_record(bool is_least) {
  const int64_t wide =
      is_least ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int64_t>::max();
  const int32_t narrow =
      is_least ? std::numeric_limits<int32_t>::min() : std::numeric_limits<int32_t>::max();
  TraceRecord record;
  record.id = record.bytes = record.flops = record.transfer_ns = wide;
  record.launch_start_ns = record.end_ns = record.producer_id = wide;
  record.launch_end_ns = record.start_ns = record.sequence = -(wide + 1);
  record.stream = record.layer = record.micro_batch = record.graph_id = narrow;
  record.thread = record.device = record.peer = narrow;
  record.grid = {narrow, -(narrow + 1), narrow};
  record.block = {-(narrow + 1), narrow, 0};
  record.communicator = wide;
  record.kernel = is_least ? "void k<int>(float*)" : "";
  record.kind = profiler::RecordKind::host_work;
  record.name = "n";
  record.group = "g";
  record.is_recompute = !is_least;
  return record;
}

}  // namespace

BOOST_AUTO_TEST_CASE(numbers_come_back) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  const std::vector<int64_t> numbers = {0, -1, 1, 63, 64, -64, -65, most, -most - 1, 1'000'000};
  ColumnWriter writer;
  for (const int64_t number : numbers) writer.add(number);
  ColumnReader reader(writer.packed(), numbers.size(), "here");
  for (const int64_t number : numbers) BOOST_TEST(reader.next() == number);
  reader.expect_end();
  BOOST_CHECK_EXCEPTION(reader.next(), base::Error, says("here", "ends early"));
  BOOST_CHECK_THROW(ColumnReader(writer.packed(), 1, "here"), base::Error);
  BOOST_CHECK_THROW(ColumnReader("", 9, "here"), base::Error);
}

BOOST_AUTO_TEST_CASE(records_come_back) {
  std::mt19937_64 random(5);
  check_round_trip({});
  check_round_trip({{0, 1, 0, 9, {}}});
  for (int i = 0; i < 30; ++i) {
    StepTrace first = random_timeline_trace(random);
    StepTrace second = profiler::random_garbage_trace(random);
    second.rank = 7;
    second.step = -3;
    check_round_trip({first, second, {2, 2, 0, 0, {}}});
  }
  const TraceRecord least = extreme_record(true);
  const TraceRecord most = extreme_record(false);
  check_round_trip({{0, 0, 0, 0, {least, most, least, least, most, most}}});
}

BOOST_AUTO_TEST_CASE(what_a_record_waited_for_comes_back) {
  StepTrace first{0, 1, 0, 0, {}};
  for (int64_t id = 0; id < 5; ++id) first.records.emplace_back().id = 3 * id;
  first.further_waits = {{6, 0}, {6, 3}, {12, -4}, {std::numeric_limits<int64_t>::max(), 9}};
  StepTrace second{1, 1, 0, 0, {TraceRecord{}}};
  second.further_waits = {{std::numeric_limits<int64_t>::min(), 7}};
  check_round_trip({first, {2, 1, 0, 0, {}}, second});

  Texts texts;
  const size_t most = static_cast<size_t>(kMaxWaitsPerRecord) * first.records.size();
  first.further_waits.clear();
  for (size_t i = 0; i < most; ++i) first.further_waits.push_back({3, static_cast<int64_t>(i)});
  BOOST_TEST(unpack(pack({first}, texts), texts).at(0).further_waits.size() == most);
  first.further_waits.push_back({3, -1});
  BOOST_CHECK_EXCEPTION(unpack(pack({first}, texts), texts), base::Error, says("waits"));
}

// As the first version packed it: without threads, devices, kernels, launch shapes, communicators,
// peers and further waits.
BOOST_AUTO_TEST_CASE(blobs_of_the_first_version_are_read) {
  const std::string hex =
      "010a00000028b52ffd2001090000080a00000028b52ffd2001090000020a00000028b52ffd2001090000080d0000"
      "0028b52ffd2004210000000000000d00000028b52ffd2004210000000200000d00000028b52ffd20042100000002"
      "00020d00000028b52ffd2004210000020602020d00000028b52ffd2004210000000204060d00000028b52ffd2004"
      "210000040404041000000028b52ffd200739000000b401b401b4010d00000028b52ffd2004210000140000001100"
      "000028b52ffd2008410000bc0fbc0fdc01da010f00000028b52ffd2006310000b401b60104020d00000028b52ffd"
      "2004210000040804041000000028b52ffd2007390000008001800280011000000028b52ffd200739000000c6018c"
      "03c6010d00000028b52ffd2004210000005000000d00000028b52ffd2004210000000e00000d00000028b52ffd20"
      "04210000000000040d00000028b52ffd2004210000010101010d00000028b52ffd200421000000000200";
  std::string blob;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    blob += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  Texts texts;
  for (const char* text : {"gemm", "", "dispatch", "ep"}) texts.id_of(text);
  const std::vector<StepTrace> traces = unpack(blob, texts);
  BOOST_TEST_REQUIRE(traces.size() == 1U);
  BOOST_TEST(traces[0].rank == 1);
  BOOST_TEST(traces[0].step == 4);
  BOOST_TEST(traces[0].further_waits.empty());
  BOOST_TEST_REQUIRE(traces[0].records.size() == 4U);
  for (int32_t i = 0; i < 4; ++i) {
    const TraceRecord& record = traces[0].records[static_cast<size_t>(i)];
    BOOST_TEST(record.id == i);
    BOOST_TEST(record.name == (i == 1 ? "dispatch" : "gemm"));
    BOOST_TEST(record.group == (i == 1 ? "ep" : ""));
    BOOST_TEST((record.kind == profiler::RecordKind::collective) == (i == 1));
    BOOST_TEST(record.stream == i % 2);
    BOOST_TEST(record.launch_end_ns == 100 * i + 10);
    BOOST_TEST(record.end_ns == 1090 + 101 * i);
    BOOST_TEST(record.flops == 99 * i);
    BOOST_TEST(record.sequence == (i == 1 ? 6 : -1));
    BOOST_TEST(record.graph_id == (i == 3 ? 2 : 0));
    BOOST_TEST(record.producer_id == i - 1);
    BOOST_TEST(record.is_recompute == (i == 2));
    BOOST_TEST(record.thread == -1);
    BOOST_TEST(record.device == -1);
    BOOST_TEST(record.kernel.empty());
    BOOST_TEST(record.grid[0] == 0);
    BOOST_TEST(record.communicator == -1);
    BOOST_TEST(record.peer == -1);
  }
}

/// The same program layer after layer, with the noise of measured durations.
std::vector<StepTrace> layers_of_ops(bool is_on_device) {
  std::mt19937_64 random(6);
  std::normal_distribution<double> noise(0, 0.03);
  std::vector<StepTrace> traces;
  for (int32_t rank = 0; rank < 4; ++rank) {
    StepTrace trace{rank, 5, 0, 0, {}};
    int64_t at_ns = 1'000'000;
    for (int64_t i = 0; i < 1000; ++i) {
      TraceRecord record;
      record.id = i;
      record.name = "op" + std::to_string(i % 25);
      record.layer = static_cast<int32_t>(i / 25);
      record.launch_start_ns = 1'000'000 + 5000 * i;
      record.launch_end_ns = record.launch_start_ns + 5000;
      record.start_ns = at_ns;
      at_ns += static_cast<int64_t>(static_cast<double>(20'000 + 7'000 * (i % 25)) *
                                    (1 + noise(random)));
      record.end_ns = at_ns;
      record.flops = 1'000'000 * (i % 25);
      record.bytes = 4096 * (i % 25);
      if (is_on_device) {
        record.thread = record.device = rank;
        record.kernel = "void k" + std::to_string(i % 25) + "<float>(float*)";
        record.grid = {static_cast<int32_t>(100 + i % 25), 2, 1};
        record.block = {128, 1, 1};
      }
      trace.records.push_back(record);
    }
    traces.push_back(std::move(trace));
  }
  return traces;
}

BOOST_AUTO_TEST_CASE(a_record_takes_few_bytes) {
  Texts texts;
  const size_t bytes = pack(layers_of_ops(false), texts).size();
  BOOST_TEST(bytes < 4000U * 6);
  // What follows from the operation costs only where an operation comes for the first time.
  BOOST_TEST(pack(layers_of_ops(true), texts).size() < bytes + 4000U);
}

BOOST_AUTO_TEST_CASE(damaged_blobs_are_refused) {
  std::mt19937_64 random(9);
  Texts texts;
  const std::string blob = pack({random_timeline_trace(random)}, texts);
  for (size_t length = 0; length < blob.size(); ++length) {
    BOOST_CHECK_EXCEPTION(unpack(blob.substr(0, length), texts), base::Error, says("runs.db"));
  }
  BOOST_CHECK_EXCEPTION(unpack(blob + "x", texts), base::Error, says("too much"));
  BOOST_CHECK_EXCEPTION(unpack("\x03" + blob.substr(1), texts), base::Error, says("version"));
  // Any byte changed: another trace, or an error, but nothing worse.
  for (size_t i = 0; i < blob.size(); ++i) {
    for (const char change : {'\1', '\x80', '\xff'}) {
      std::string other = blob;
      other[i] = static_cast<char>(other[i] ^ change);
      try {
        unpack(other, texts);
      } catch (const base::Error&) {
        // As it should.
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(few_bytes_cannot_promise_many_records) {
  ColumnWriter step;
  step.add(1);
  ColumnWriter many;
  many.add(kMaxTraceRecords + 1);
  std::string blob("\1", 1);
  for (const ColumnWriter* column : {&step, &step, &many}) {
    const std::string packed = column->packed();
    blob += std::string({static_cast<char>(packed.size()), 0, 0, 0}) + packed;
  }
  BOOST_CHECK_EXCEPTION(unpack(blob, {}), base::Error, says("wrong number of records"));
}

BOOST_AUTO_TEST_CASE(a_trial_keeps_what_its_records_say) {
  const TempFolder folder;
  Store store = Store::open(folder.file("runs.db"));
  const int64_t sweep = store.create_or_resume_sweep(samples::sample_sweep()).id;
  const int64_t id = store.begin_trial(samples::sample_trial(sweep, "00ff"));
  TraceRecord record = extreme_record(true);
  record.id = 7;
  record.step = record.rank = 3;
  StepTrace few{3, 3, 0, 9, {record}};
  few.further_waits = {{7, 5}, {7, 1}, {7, 5}};
  StepTrace many{4, 3, 0, 9, {record}};
  for (int64_t i = 0; i <= kMaxWaitsPerRecord; ++i) many.further_waits.push_back({7, i});
  TrialResult result;
  result.status = "ok";
  result.shards.emplace_back().traces = {few, many};
  store.finish_trial(id, result);
  const std::vector<StepTrace> back = store.read_trace(id);
  BOOST_TEST_REQUIRE(back.size() == 2U);
  BOOST_TEST((back[0].further_waits == std::vector<profiler::FurtherWait>{{7, 1}, {7, 5}}));
  BOOST_TEST_REQUIRE(back[0].records.size() == 1U);
  BOOST_TEST(back[0].records[0].kernel == record.kernel);
  BOOST_TEST((back[0].records[0].grid == record.grid));
  BOOST_TEST(back[0].records[0].communicator == record.communicator);
  // More than a blob may claim.
  BOOST_TEST(back[1].further_waits.empty());
  BOOST_TEST(back[1].records.size() == 1U);
  const std::vector<NamedText> texts = store.read_texts(id);
  BOOST_TEST(std::ranges::any_of(texts, [](const NamedText& text) {
    return text.name == "trace_note" && text.value.find("rank 4") != std::string::npos;
  }));
}

// What a query sees is the last step, as it was recorded.
BOOST_AUTO_TEST_CASE(a_query_sees_the_last_step) {
  const TempFolder folder;
  const std::string path = folder.file("runs.db");
  Store store = Store::open(path);
  SweepRow sweep;
  sweep.config_hash = "c";
  TrialRow trial;
  trial.sweep_id = store.create_or_resume_sweep(sweep).id;
  trial.spec_hash = "00ff";
  trial.phase = "fit";
  const int64_t id = store.begin_trial(trial);
  TrialResult result;
  result.status = "ok";
  std::mt19937_64 random(2);
  ShardContents& shard = result.shards.emplace_back();
  StepTrace last = random_timeline_trace(random);
  while (last.records.size() < 2) last = random_timeline_trace(random);
  last.step = 4;
  shard.traces = {random_timeline_trace(random), last};
  store.finish_trial(id, result);

  const Store reader = Store::open_read_only(path);
  reader.unpack_trace(-1);
  BOOST_TEST(reader.database().query_int("SELECT count(*) FROM trace_record") == 0);
  reader.unpack_trace(id);
  reader.unpack_trace(id);
  Statement rows(reader.database(),
                 "SELECT step, name, \"end\" FROM trace_record ORDER BY correlationId");
  for (const TraceRecord& record : last.records) {
    BOOST_TEST_REQUIRE(rows.step());
    BOOST_TEST(rows.get_int(0) == 4);
    BOOST_TEST(rows.get_text(1) == record.name);
    BOOST_TEST(rows.get_int(2) == record.end_ns);
  }
  BOOST_TEST(!rows.step());
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::store

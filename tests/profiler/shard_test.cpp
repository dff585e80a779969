// Shards: what a rank process writes comes back, whatever happens to the process or to the file.
#include <sys/wait.h>

#include <cmath>
#include <csignal>
#include <limits>
#include <set>
#include <tuple>

#include "profiler/store/db.h"
#include "profiler/store/metrics.h"
#include "profiler/store/store.h"
#include "tests/profiler/temp_folder.h"

namespace moetune::store {
BOOST_AUTO_TEST_SUITE(shard_test)

namespace {

using tests::says;
using tests::TempFolder;

profiler::StepTrace sample_trace(int rank, int num_records) {
  profiler::StepTrace trace{rank, 5, 1000, 9000, {}};
  for (int i = 0; i < num_records; ++i) {
    profiler::TraceRecord record;
    record.id = i;
    record.rank = rank;
    record.step = 5;
    record.kind = static_cast<profiler::RecordKind>(i % 5);
    record.stream = i % 3 - 1;
    record.name = i % 2 == 0 ? "core_attn.backward" : "dispatch.forward";
    record.layer = i;
    record.micro_batch = i % 4;
    record.launch_start_ns = 1000 + i;
    record.launch_end_ns = 1001 + i;
    record.start_ns = 2000 + i;
    record.end_ns = 2003 + i;
    record.group = i % 2 == 0 ? "" : "ep";
    record.bytes = int64_t{1} << 40;
    record.flops = 77 + i;
    record.transfer_ns = 2;
    record.sequence = i;
    record.graph_id = i % 2;
    record.producer_id = i - 1;
    record.is_recompute = i % 2 == 1;
    record.thread = i % 2;
    record.device = i % 3 - 1;
    record.kernel = i % 2 == 0 ? "void attention<float>(float*)" : "";
    record.grid = {i, 2, 3};
    record.block = {128, 4, i};
    record.communicator = i % 2 == 0 ? -1 : 9;
    record.peer = i - 1;
    trace.records.push_back(record);
    if (i > 1) trace.further_waits.push_back({i, i - 2});
  }
  return trace;
}

void check_equal(const profiler::StepTrace& a, const profiler::StepTrace& b) {
  BOOST_TEST(a.rank == b.rank);
  BOOST_TEST(a.step == b.step);
  BOOST_TEST(a.start_ns == b.start_ns);
  BOOST_TEST(a.end_ns == b.end_ns);
  BOOST_TEST((a.further_waits == b.further_waits));
  BOOST_TEST_REQUIRE(a.records.size() == b.records.size());
  for (size_t i = 0; i < a.records.size(); ++i) {
    const auto tied = [](const profiler::TraceRecord& r) {
      return std::tuple(r.id, r.rank, r.step, r.kind, r.stream, r.name, r.layer, r.micro_batch,
                        r.launch_start_ns, r.launch_end_ns, r.start_ns, r.end_ns, r.group, r.bytes,
                        r.flops, r.transfer_ns, r.sequence, r.graph_id, r.producer_id,
                        r.is_recompute, r.thread, r.device, r.kernel, r.grid, r.block,
                        r.communicator, r.peer);
    };
    BOOST_TEST((tied(a.records[i]) == tied(b.records[i])), "record " << i);
  }
}

void write_sample(const std::string& path) {
  ShardWriter writer(path);
  writer.add_step({3, true, false, 123, 5.5, 0.1, 0.2, 1.5, 1e-3});
  writer.add_step({4, false, true, 456, std::numeric_limits<double>::quiet_NaN(), 0, 0,
                   std::numeric_limits<double>::infinity(), 0});
  writer.add_trace(sample_trace(1, 7));
  writer.add_trace(sample_trace(0, 3));
  writer.add_memory({2, 600, 1000, {100, 200, 300, 0, 0, 0}, "experts.w1"});
  writer.add_op({1, "experts.forward", 8, 99, 100, 1234});
  writer.add_work({2, 1, {5, 1234567890123, 0}, {}, {7}});
  writer.add_metric(-1, "tokens_per_s", 1.25);
  writer.add_metric(0, "comm_bytes.ep", 64);
  writer.add_text("log", "first");
  writer.add_text("log", "second");
  writer.commit();
}

BOOST_AUTO_TEST_CASE(everything_comes_back) {
  const TempFolder folder;
  write_sample(folder.file("shard.db"));
  const ShardContents contents = read_shard(folder.file("shard.db"));
  BOOST_TEST_REQUIRE(contents.steps.size() == 2);
  BOOST_TEST(contents.steps[0].step == 3);
  BOOST_TEST(contents.steps[0].is_warmup);
  BOOST_TEST(!contents.steps[0].is_traced);
  BOOST_TEST(contents.steps[0].step_ns == 123);
  BOOST_TEST(contents.steps[0].loss == 5.5);
  BOOST_TEST(contents.steps[0].lr == 1e-3);
  BOOST_TEST(contents.steps[1].is_traced);
  BOOST_TEST(std::isnan(contents.steps[1].loss));
  BOOST_TEST(std::isinf(contents.steps[1].grad_norm));
  BOOST_TEST_REQUIRE(contents.traces.size() == 2);
  check_equal(contents.traces[0], sample_trace(0, 3));
  check_equal(contents.traces[1], sample_trace(1, 7));
  BOOST_TEST_REQUIRE(contents.memory.size() == 1);
  BOOST_TEST(contents.memory[0].rank == 2);
  BOOST_TEST(contents.memory[0].capacity_bytes == 1000);
  BOOST_TEST((contents.memory[0].peak_by_group == profiler::GroupBytes{100, 200, 300, 0, 0, 0}));
  BOOST_TEST(contents.memory[0].peak_allocation == "experts.w1");
  BOOST_TEST_REQUIRE(contents.ops.size() == 1);
  BOOST_TEST(contents.ops[0].duration_ns == 1234);
  BOOST_TEST_REQUIRE(contents.metrics.size() == 2);
  BOOST_TEST(contents.metrics[0].value == 1.25);
  BOOST_TEST(contents.text("log") == "second");
  BOOST_TEST(contents.text("none") == "");
  BOOST_TEST(committed_step(folder.file("shard.db")).value() == 4);
}

BOOST_AUTO_TEST_CASE(work_comes_back) {
  const TempFolder folder;
  {
    ShardWriter writer(folder.file("shard.db"));
    writer.add_work({2, 1, {5, 1234567890123, 0}, {}, {7}});
    writer.commit();
  }
  const ShardContents shard = read_shard(folder.file("shard.db"));
  BOOST_REQUIRE(shard.work.size() == 1U);
  BOOST_TEST(shard.work[0].step == 2);
  BOOST_TEST(shard.work[0].rank == 1);
  BOOST_TEST(shard.work[0].durations_ns == (std::vector<int64_t>{5, 1234567890123, 0}),
             boost::test_tools::per_element());
  BOOST_TEST(shard.work[0].routed_rows.empty());
  BOOST_TEST(shard.work[0].probe_ns == std::vector<int64_t>{7}, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(refuses_what_would_lie) {
  const TempFolder folder;
  ShardWriter writer(folder.file("shard.db"));
  BOOST_CHECK_EXCEPTION(writer.add_metric(0, "tokens_per_sec", 1), base::Error,
                        says("tokens_per_sec", "metrics.cpp"));
  BOOST_CHECK_EXCEPTION(ShardWriter(folder.file("shard.db")), base::Error, says("exists already"));
}

BOOST_AUTO_TEST_CASE(killed_writer_leaves_committed_steps_only) {
  const TempFolder folder;
  const std::string path = folder.file("shard.db");
  const pid_t child = fork();
  if (child == 0) {
    ShardWriter writer(path);
    for (int64_t step = 0; step < 4; ++step) {
      writer.add_step({step, false, false, 10 * step});
      if (step < 3) {
        writer.commit();
      }
    }
    raise(SIGKILL);
  }
  int status = 0;
  BOOST_REQUIRE(waitpid(child, &status, 0) == child);
  BOOST_REQUIRE(WIFSIGNALED(status));
  BOOST_TEST_REQUIRE(std::filesystem::exists(path + "-wal"));  // else nothing had to be recovered
  BOOST_TEST(committed_step(path).value() == 2);
  const ShardContents contents = read_shard(path);
  BOOST_TEST_REQUIRE(contents.steps.size() == 3);
  BOOST_TEST(contents.steps[2].step_ns == 20);
}

BOOST_AUTO_TEST_CASE(progress_can_be_read_while_it_is_written) {
  const TempFolder folder;
  const std::string path = folder.file("shard.db");
  BOOST_TEST(!committed_step(path).has_value());
  ShardWriter writer(path);
  BOOST_TEST(!committed_step(path).has_value());
  writer.add_step({0});
  BOOST_TEST(!committed_step(path).has_value());
  writer.commit();
  BOOST_TEST(committed_step(path).value() == 0);
  writer.add_step({1});
  writer.commit();
  BOOST_TEST(committed_step(path).value() == 1);
}

BOOST_AUTO_TEST_CASE(missing_text_and_foreign_files_are_refused) {
  const TempFolder folder;
  BOOST_CHECK_EXCEPTION(read_shard(folder.file("none.db")), ShardError, says("none.db", "missing"));
  tests::write_text(folder.file("text.db"), std::string(5000, 'x'));
  BOOST_CHECK_EXCEPTION(read_shard(folder.file("text.db")), ShardError, says("text.db"));
  tests::write_text(folder.file("empty.db"), "");
  BOOST_CHECK_EXCEPTION(read_shard(folder.file("empty.db")), ShardError,
                        says("not a trial's shard"));
  Store::open(folder.file("store.db"));
  BOOST_CHECK_EXCEPTION(read_shard(folder.file("store.db")), ShardError,
                        says("not a trial's shard"));
}

BOOST_AUTO_TEST_CASE(damage_anywhere_never_crashes) {
  const TempFolder folder;
  const std::string path = folder.file("shard.db");
  write_sample(path);
  std::ifstream in(path, std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(in)), {});
  BOOST_TEST_REQUIRE(good.size() > 4096U);
  const std::string bad = folder.file("bad.db");
  int num_refused = 0;
  for (const size_t length : {size_t{1}, size_t{100}, size_t{4096}, good.size() / 2}) {
    tests::write_text(bad, good.substr(0, length));
    try {
      read_shard(bad);
    } catch (const ShardError&) {
      ++num_refused;
    }
  }
  BOOST_TEST(num_refused == 4);
  uint32_t random = 1;
  for (int round = 0; round < 300; ++round) {
    std::string damaged = good;
    for (int i = 0; i < 8; ++i) {
      random = random * 1664525U + 1013904223U;
      damaged[(random >> 4) % damaged.size()] = static_cast<char>(random >> 24);
    }
    tests::write_text(bad, damaged);
    try {
      read_shard(bad);
    } catch (const ShardError&) {
      ++num_refused;
    }
  }
  BOOST_TEST(num_refused > 4);
}

BOOST_AUTO_TEST_CASE(a_view_in_a_tables_place_is_refused) {
  const TempFolder folder;
  const std::string path = folder.file("shard.db");
  write_sample(path);
  {
    Database database(path, OpenMode::read_write);
    database.execute(
        "DROP TABLE text; CREATE VIEW text (name, value) AS WITH RECURSIVE n(i) AS (SELECT 1 UNION "
        "ALL SELECT i + 1 FROM n) SELECT i, i FROM n;");
  }
  BOOST_CHECK_EXCEPTION(read_shard(path), ShardError, says("text"));
}

BOOST_AUTO_TEST_CASE(impossible_values_are_refused) {
  const char* const statements[] = {"UPDATE trace_record SET kind = 9",
                                    "UPDATE trace_record SET rank = 12",
                                    "UPDATE trace_record SET streamId = 1 << 40",
                                    "UPDATE metric SET name = 'nonsense'",
                                    "INSERT INTO trace_step SELECT * FROM trace_step",
                                    "UPDATE trace_record SET peer = 1 << 40",
                                    "UPDATE trace_wait SET rank = 12"};
  for (const char* sql : statements) {
    const TempFolder folder;
    const std::string path = folder.file("shard.db");
    write_sample(path);
    Database(path, OpenMode::read_write).execute(sql);
    BOOST_CHECK_THROW(read_shard(path), ShardError);
  }
}

BOOST_AUTO_TEST_CASE(the_metric_table_has_each_name_once) {
  std::set<std::string_view> names;
  for (const MetricInfo& metric : metric_table()) {
    BOOST_TEST(names.insert(metric.name).second, metric.name << " is there twice");
    BOOST_TEST(!metric.help.empty());
    BOOST_TEST(metric.name.find('.') == std::string_view::npos);
  }
  BOOST_TEST((metric_info("step_ns").better == Better::lower));
  BOOST_TEST(metric_info("comm_bytes.edp").unit == "bytes");
  BOOST_CHECK_THROW(metric_info("comm_bytes.xx"), base::Error);
  BOOST_CHECK_THROW(metric_info(""), base::Error);
  BOOST_CHECK_THROW(metric_info(".ep"), base::Error);
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::store

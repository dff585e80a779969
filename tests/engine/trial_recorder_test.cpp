// What the engine leaves of its traced steps: several of them, for each rank the same ones.
#include "engine/trial_recorder.h"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <map>
#include <set>

#include "profiler/store/judged_steps.h"
#include "profiler/store/store.h"
#include "tests/engine/training_fixture.h"
#include "tests/profiler/temp_folder.h"

namespace moetune::engine {
BOOST_AUTO_TEST_SUITE(trial_recorder)

namespace {

constexpr int kNumRanks = 2;

/// As many kernels as the step is long.
profiler::StepTrace trace_of(int rank, int64_t step, int64_t step_ns, size_t num_records) {
  profiler::StepTrace trace;
  trace.rank = rank;
  trace.step = static_cast<int32_t>(step);
  trace.end_ns = step_ns;
  trace.records.resize(num_records);
  for (size_t i = 0; i < num_records; ++i) {
    profiler::TraceRecord& record = trace.records[i];
    record.id = static_cast<int64_t>(i);
    record.rank = rank;
    record.step = trace.step;
    record.name = "gemm.forward";
    record.end_ns = step_ns;
  }
  return trace;
}

/// A trial of one warm-up step and traced steps of these lengths, in processes of `ranks` each.
struct Recorded {
  spec::TrialSpec trial;
  tests::TempFolder folder;

  explicit Recorded(spec::CommunicatorKind communicator = spec::CommunicatorKind::threads) {
    spec::Knobs knobs;
    knobs.data_parallel_size = kNumRanks;
    trial = testing::tiny_trial(testing::tiny_model(), knobs);
    trial.communicator = communicator;
    trial.num_warmup_steps = 1;
    trial.num_steps = 0;
  }

  /// `lost`: the traced step of which nothing was recorded.
  store::ShardContents shard(const std::vector<int>& ranks, const std::vector<int64_t>& step_ns,
                             size_t num_records = 4, int64_t lost = -1) {
    trial.num_traced_steps = static_cast<int64_t>(step_ns.size());
    const std::string out = folder.file("out");
    std::filesystem::remove_all(out);
    std::filesystem::create_directories(out);
    {
      TrialRecorder recorder(trial, out, ranks);
      StepResult result;
      result.step_ns = 1;
      recorder.add_step(0, result, 1, 1);
      for (size_t i = 0; i < step_ns.size(); ++i) {
        const auto step = static_cast<int64_t>(i + 1);
        for (const int rank : ranks) {
          const size_t num = step == lost ? 0 : num_records;
          recorder.add_trace(rank, trace_of(rank, step, step_ns[i], num));
        }
        profiler::CounterSums counters;
        counters.dram_read_bytes = step;
        recorder.add_counters(counters);
        result.step_ns = step_ns[i];
        recorder.add_step(step, result, 1, 1);
      }
      recorder.finish(nullptr);
    }
    return store::read_shard(out + "/shard-" + std::to_string(ranks.front()) + ".db");
  }
};

std::map<int32_t, std::set<int32_t>> steps_by_rank(const store::ShardContents& shard) {
  std::map<int32_t, std::set<int32_t>> steps;
  for (const profiler::StepTrace& trace : shard.traces) steps[trace.rank].insert(trace.step);
  return steps;
}

}  // namespace

BOOST_AUTO_TEST_CASE(all_traced_steps_of_all_ranks_are_left) {
  Recorded recorded;
  const store::ShardContents shard = recorded.shard({0, 1}, {300, 100, 200});
  const std::set<int32_t> all = {1, 2, 3};
  const auto steps = steps_by_rank(shard);
  BOOST_TEST_REQUIRE(steps.size() == 2U);
  for (const auto& [rank, own] : steps) BOOST_TEST((own == all));
  for (const profiler::StepTrace& trace : shard.traces) BOOST_TEST(trace.records.size() == 4U);
  // What is told of one step is of that of median length.
  BOOST_TEST_REQUIRE(shard.ops.size() == 2U);
  for (const store::ShardOp& op : shard.ops) {
    BOOST_TEST(op.count == 4);
    BOOST_TEST(op.duration_ns == 4 * 200);
  }
  BOOST_TEST(store::steps_to_judge(shard).front().front().step == 3);
}

double counted_in(const store::ShardContents& shard) {
  const auto row = std::ranges::find(shard.metrics, "dram_read_bytes", &store::MetricRow::name);
  return row == shard.metrics.end() ? -1 : row->value;
}

// The device may have lost all records of the step that would be told.
BOOST_AUTO_TEST_CASE(operations_and_counters_are_of_the_step_that_is_stored) {
  Recorded recorded;
  const store::ShardContents whole = recorded.shard({0, 1}, {300, 100, 200});
  BOOST_TEST(counted_in(whole) == 3);
  store::ShardContents shard = recorded.shard({0, 1}, {300, 100, 200}, 4, 3);
  const int32_t told = store::steps_to_judge(shard).front().front().step;
  BOOST_TEST(told != 3);
  BOOST_TEST(counted_in(shard) == told);
  const std::map<int32_t, int64_t> step_ns = {{1, 300}, {2, 100}};
  BOOST_TEST_REQUIRE(shard.ops.size() == 2U);
  for (const store::ShardOp& op : shard.ops) BOOST_TEST(op.duration_ns == 4 * step_ns.at(told));
  BOOST_TEST(recorded.shard({0, 1}, {300}, 4, 1).ops.empty());
}

BOOST_AUTO_TEST_CASE(one_traced_step_is_as_it_was) {
  Recorded recorded;
  const store::ShardContents shard = recorded.shard({0, 1}, {300});
  BOOST_TEST_REQUIRE(shard.traces.size() == 2U);
  BOOST_TEST(shard.ops.size() == 2U);
}

BOOST_AUTO_TEST_CASE(many_steps_are_bounded_and_the_median_is_among_them) {
  Recorded recorded;
  std::vector<int64_t> step_ns;
  for (int64_t i = 0; i < 21; ++i) step_ns.push_back(1000 - i);
  const store::ShardContents shard = recorded.shard({0, 1}, step_ns);
  for (const auto& [rank, own] : steps_by_rank(shard)) {
    BOOST_TEST(own.size() == store::kMostJudgedSteps);
    BOOST_TEST(own.contains(11));
  }
  BOOST_TEST(store::steps_to_judge(shard).front().front().step == 11);
}

// Each rank has its share of the room, as it does not know the records of the others.
BOOST_AUTO_TEST_CASE(large_steps_are_fewer_and_processes_have_the_first_ones_in_common) {
  constexpr size_t kMany = store::kMostJudgedRecords / kNumRanks / 2;
  const std::vector<int64_t> step_ns = {500, 100, 300, 400, 200};
  Recorded threads;
  const auto together = steps_by_rank(threads.shard({0, 1}, step_ns, kMany));
  BOOST_TEST(together.at(0).size() == 2U);
  BOOST_TEST((together.at(0) == together.at(1)));
  Recorded processes(spec::CommunicatorKind::nccl);
  const auto large = steps_by_rank(processes.shard({0}, step_ns, kMany)).at(0);
  const auto small = steps_by_rank(processes.shard({1}, step_ns)).at(1);
  BOOST_TEST(large.size() == 2U);
  BOOST_TEST(small.size() == 5U);
  BOOST_TEST((large == together.at(0)));
  BOOST_TEST(large.contains(3));
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::engine

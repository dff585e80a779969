// Which traced steps of a shard are judged, and which one is told and stored.
#include "profiler/store/judged_steps.h"

#include <boost/test/unit_test.hpp>
#include <vector>

namespace moetune::store {
BOOST_AUTO_TEST_SUITE(judged_steps)

namespace {

using Indices = std::vector<size_t>;

profiler::StepTrace trace_of(int32_t step, int32_t rank, size_t num_records = 3) {
  profiler::StepTrace trace{rank, step, 0, 100, {}};
  trace.records.resize(num_records);
  for (profiler::TraceRecord& record : trace.records) {
    record.step = step;
    record.rank = rank;
  }
  return trace;
}

/// Traced steps of these lengths, numbered from 10, with traces of two ranks.
ShardContents shard_of(const std::vector<int64_t>& step_ns, size_t num_records = 3) {
  ShardContents shard;
  for (size_t i = 0; i < step_ns.size(); ++i) {
    ShardStep row;
    row.step = static_cast<int64_t>(10 + i);
    row.is_traced = true;
    row.step_ns = step_ns[i];
    shard.steps.push_back(row);
    for (int32_t rank = 0; rank < 2; ++rank) {
      shard.traces.push_back(trace_of(static_cast<int32_t>(row.step), rank, num_records));
    }
  }
  return shard;
}

std::vector<int32_t> numbers_of(const ShardContents& shard) {
  std::vector<int32_t> numbers;
  for (const auto& ranks : steps_to_judge(shard)) numbers.push_back(ranks.front().step);
  return numbers;
}

std::vector<int32_t> kept_of(ShardContents shard) {
  keep_told_step(shard);
  std::vector<int32_t> numbers;
  for (const profiler::StepTrace& trace : shard.traces) numbers.push_back(trace.step);
  return numbers;
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_step_of_median_length_is_first) {
  BOOST_TEST(choose_steps(std::vector<int64_t>{}).empty());
  BOOST_TEST((choose_steps(std::vector<int64_t>{7}) == Indices{0}));
  BOOST_TEST((choose_steps(std::vector<int64_t>{9, 7}) == Indices{1, 0}));
  BOOST_TEST(choose_steps(std::vector<int64_t>{900, 7, 8}).front() == 2U);
}

BOOST_AUTO_TEST_CASE(the_others_are_spread_over_the_lengths) {
  std::vector<int64_t> step_ns;
  for (int64_t i = 0; i < 101; ++i) step_ns.push_back(i * 37 % 101);
  const Indices chosen = choose_steps(step_ns);
  BOOST_TEST_REQUIRE(chosen.size() == kMostJudgedSteps);
  BOOST_TEST(step_ns[chosen[0]] == 50);
  // The shortest and the longest, and then what lies between.
  BOOST_TEST(step_ns[chosen[1]] + step_ns[chosen[2]] == 100);
  BOOST_TEST(step_ns[chosen[1]] * step_ns[chosen[2]] == 0);
  BOOST_TEST(step_ns[chosen[3]] + step_ns[chosen[4]] == 100);
}

BOOST_AUTO_TEST_CASE(a_shorter_answer_begins_the_longer_one) {
  const std::vector<int64_t> step_ns = {5, 3, 9, 1, 1, 8, 2, 7, 7, 4, 6};
  const Indices all = choose_steps(step_ns);
  for (size_t most = 0; most <= all.size(); ++most) {
    const Indices fewer = choose_steps(step_ns, most);
    BOOST_TEST((fewer == Indices(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(most))));
  }
}

BOOST_AUTO_TEST_CASE(records_bound_the_steps_and_one_fits_always) {
  BOOST_TEST(num_that_fit(0, kMostJudgedRecords) == kMostJudgedSteps);
  BOOST_TEST(num_that_fit(5'000, kMostJudgedRecords) == kMostJudgedSteps);
  BOOST_TEST(num_that_fit(100'000, kMostJudgedRecords) == 2U);
  BOOST_TEST(num_that_fit(10'000'000, kMostJudgedRecords) == 1U);
  BOOST_TEST(num_that_fit(10, 0) == 1U);
  // Of a shard, of all its ranks together.
  BOOST_TEST(steps_to_judge(shard_of({3, 1, 2}, 50'000)).size() == 2U);
}

BOOST_AUTO_TEST_CASE(whole_steps_are_judged_and_the_first_is_kept) {
  ShardContents shard = shard_of({300, 100, 200});
  BOOST_TEST(numbers_of(shard).size() == 3U);
  BOOST_TEST(numbers_of(shard).front() == 12);
  BOOST_TEST(steps_to_judge(shard).front().size() == 2U);
  BOOST_TEST((kept_of(shard) == std::vector<int32_t>{12, 12}));
  // A rank had no room for the second step.
  std::erase_if(shard.traces, [](const auto& t) { return t.step == 11 && t.rank == 1; });
  BOOST_TEST((numbers_of(shard) == std::vector<int32_t>{12, 10}));
  BOOST_TEST((kept_of(shard) == std::vector<int32_t>{12, 12}));
}

// One of several ranks with shards of their own has written those of another step.
BOOST_AUTO_TEST_CASE(operations_are_of_the_step_that_is_kept) {
  ShardContents shard = shard_of({300, 100, 200});
  for (profiler::StepTrace& trace : shard.traces) {
    for (profiler::TraceRecord& record : trace.records) {
      record.name = "gemm.forward";
      record.flops = 7;
      record.end_ns = trace.step;
    }
  }
  shard.ops = {{0, "gemm.forward", 9, 9, 9, 9}, {1, "of_another_step", 1, 1, 1, 1}};
  keep_told_step(shard);
  BOOST_TEST_REQUIRE(shard.ops.size() == 2U);
  for (int rank = 0; rank < 2; ++rank) {
    const ShardOp& op = shard.ops[static_cast<size_t>(rank)];
    BOOST_TEST(op.rank == rank);
    BOOST_TEST(op.name == "gemm.forward");
    BOOST_TEST(op.count == 3);
    BOOST_TEST(op.flops == 21);
    BOOST_TEST(op.duration_ns == 3 * 12);
  }
  // Without records there is nothing to sum up.
  ShardContents empty = shard_of({3, 1, 2}, 0);
  empty.ops = {{0, "gemm.forward", 9, 9, 9, 9}};
  keep_told_step(empty);
  BOOST_TEST(empty.ops.size() == 1U);
}

// Steps that were left out count as to which one is the median.
BOOST_AUTO_TEST_CASE(what_a_writer_left_out_changes_nothing) {
  ShardContents shard = shard_of({100, 200, 300, 400, 500});
  const std::vector<int32_t> all = numbers_of(shard);
  std::erase_if(shard.traces, [&](const auto& t) { return t.step == all[3] || t.step == all[4]; });
  BOOST_TEST((numbers_of(shard) == std::vector<int32_t>(all.begin(), all.begin() + 3)));
  BOOST_TEST((kept_of(shard) == std::vector<int32_t>{12, 12}));
}

BOOST_AUTO_TEST_CASE(a_shard_with_one_step_or_none_is_as_it_was) {
  BOOST_TEST((kept_of(shard_of({100})) == std::vector<int32_t>{10, 10}));
  BOOST_TEST(kept_of({}).empty());
  BOOST_TEST(steps_to_judge({}).empty());
  // Any step, if it is the only one with traces, and of those without records one.
  ShardContents shard = shard_of(std::vector<int64_t>(30, 5));
  std::erase_if(shard.traces, [](const auto& t) { return t.step != 39; });
  BOOST_TEST((numbers_of(shard) == std::vector<int32_t>{39}));
  const ShardContents empty = shard_of({3, 1, 2}, 0);
  BOOST_TEST(steps_to_judge(empty).empty());
  BOOST_TEST(kept_of(empty).size() == 2U);
}

BOOST_AUTO_TEST_CASE(shards_that_do_not_say_how_long_steps_took_are_judged_too) {
  ShardContents shard = shard_of({1, 2, 3});
  shard.steps.clear();
  BOOST_TEST(numbers_of(shard).size() == 3U);
  BOOST_TEST(numbers_of(shard).front() == 11);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::store

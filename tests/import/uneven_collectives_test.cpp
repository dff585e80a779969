// A rank without a trace that comes late, as the collectives of the others show it.
#include "profiler/analysis/uneven_collectives.h"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <functional>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "profiler/analysis/imported_wall.h"
#include "tests/import/played_kineto.h"
#include "tests/import/trace_texts.h"
#include "tests/tuner/faulty_steps.h"

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(uneven_collectives)

namespace {

struct Shape {
  double us;          ///< that the collective takes
  int64_t num_elems;  ///< floats
};

/// By turns work of 60 us and a collective of four ranks, as rank 2 sees it.
ImportedWall wall_of(const std::function<Shape(int)>& shape_of, const std::string& more = "") {
  tests::EventText events;
  double at_us = 10'000;
  for (int i = 0; i < 60; ++i) {
    const Shape shape = shape_of(i);
    const std::string num = std::to_string(shape.num_elems);
    events.call(i, 1, 2 * i + 1).kernel(at_us, 60, 2 * i + 1);
    events.call(i + 0.5, 0.2, 2 * i + 2)
        .kernel(at_us + 60, shape.us, 2 * i + 2, "ncclDevKernel_AllReduce_Sum_bf16(x)", 20,
                R"(, "Collective name": "allreduce", "In msg nelems": )" + num +
                    R"(, "Out msg nelems": )" + num +
                    R"(, "dtype": "Float", "Process Group Name": "0", "Group size": 4,
                       "Process Group Description": "TENSOR_MODEL_PARALLEL_GROUP",
                       "Process Group Ranks": "[0, 1, 2, 3]")");
    at_us += 60 + shape.us;
  }
  const ImportedTrace trace =
      events.read(R"(, "distributedInfo": {"rank": 2, "world_size": 4})" + more);
  return classify_imported(std::span(&trace, 1));
}

const Evidence* evidence_of(const ImportedWall& wall, const char* name) {
  const auto at = std::ranges::find(wall.evidence, name, &Evidence::name);
  return at == wall.evidence.end() ? nullptr : &*at;
}

}  // namespace

BOOST_AUTO_TEST_CASE(one_in_six_that_takes_far_longer_waits) {
  const ImportedWall wall = wall_of([](int i) { return Shape{i % 6 == 5 ? 900.0 : 40.0, 1000}; });
  BOOST_TEST(name_of(wall.label) == "communication");
  BOOST_TEST(wall.sub_cause == "");
  BOOST_TEST(wall.is_waiting_likely);
  BOOST_TEST(wall.summary.starts_with("communication (transfer, or more likely waiting for one of "
                                      "the 3 ranks without a trace)"),
             wall.summary);
  const Evidence* uneven = evidence_of(wall, "uneven_collectives_ratio");
  BOOST_TEST_REQUIRE(uneven != nullptr);
  // 860 of each 900 us, and none of five times 40.
  BOOST_TEST(std::abs(uneven->value - 860.0 / 1100) < 0.01);
  BOOST_TEST(uneven->text.find("10 took at least twice as long as a quarter of alike ones, up to "
                               "22 times") != std::string::npos,
             uneven->text);
  const Evidence* missing = evidence_of(wall, "ranks_missing");
  BOOST_TEST_REQUIRE(missing != nullptr);
  BOOST_TEST(
      missing->text.find("ranks 0, 1 and 3 of TENSOR_MODEL_PARALLEL_GROUP") != std::string::npos,
      missing->text);
}

// A transfer takes about as long each time, and longer with more data.
BOOST_AUTO_TEST_CASE(what_takes_equally_long_may_be_transfer) {
  for (const ImportedWall& wall : {wall_of([](int) {
                                     return Shape{60, 1000};
                                   }),
                                   wall_of([](int i) {
                                     return Shape{50.0 + i, 1000};
                                   }),
                                   wall_of([](int i) {
                                     return i % 6 == 5 ? Shape{900, 1'000'000} : Shape{40, 1000};
                                   })}) {
    BOOST_TEST(name_of(wall.label) == "communication");
    BOOST_TEST(!wall.is_waiting_likely);
    BOOST_TEST((evidence_of(wall, "uneven_collectives_ratio") == nullptr));
    BOOST_TEST((evidence_of(wall, "ranks_missing") != nullptr));
    BOOST_TEST(wall.summary.starts_with("communication (transfer, or waiting for one of"),
               wall.summary);
  }
}

// 32 MiB in 20 ms are 1.7 GB/s, in 800 ms less than 100 MB/s.
BOOST_AUTO_TEST_CASE(what_is_slower_than_any_link_waits) {
  constexpr int64_t kElems = 8 << 20;
  BOOST_TEST(!wall_of([](int) { return Shape{20'000, kElems}; }).is_waiting_likely);
  const ImportedWall wall = wall_of([](int) { return Shape{800'000, kElems}; });
  BOOST_TEST(wall.is_waiting_likely);
  const Evidence* uneven = evidence_of(wall, "uneven_collectives_ratio");
  BOOST_TEST_REQUIRE(uneven != nullptr);
  BOOST_TEST(uneven->text.find("less than the slowest link") != std::string::npos, uneven->text);
}

// Members and purposes have other rows in each trace.
BOOST_AUTO_TEST_CASE(a_group_loses_what_it_loses_on_all_ranks) {
  UnevenCollectives uneven;
  std::vector<ImportedTrace> traces;
  for (const int rank : {0, 1}) {
    tests::EventText events;
    const std::pair<const char*, const char*> groups[] = {{"[0, 1, 4]", "A"},
                                                          {rank == 0 ? "[0, 5]" : "[1, 6]", "B"}};
    for (int i = 0; i < 2; ++i) {
      const auto& [members, purpose] = groups[(i + rank) % 2];
      events.call(i, 0.5, i + 1)
          .kernel(100 * (i + 1), 50, i + 1, "ncclDevKernel_AllReduce_Sum_bf16(x)", 20,
                  std::string(R"(, "Collective name": "allreduce", "In msg nelems": 10,
                       "Process Group Description": ")") +
                      purpose + R"(", "Process Group Ranks": ")" + members + '"');
    }
    traces.push_back(events.read(R"(, "distributedInfo": {"rank": )" + std::to_string(rank) + "}"));
    for (uint32_t op = 0; op < 2; ++op)
      uneven.add(traces.size() - 1, op, op == 0u + rank ? 60 : 90);
  }
  // 120 of A on both ranks together, 90 of each B.
  BOOST_TEST(uneven.ranks_to_record(traces) == "rank 4 of A");
}

// Of each rank of a played run, as if the others had no traces: slow links slow all transfers
// alike.
BOOST_AUTO_TEST_CASE(a_played_late_rank_is_told_from_slow_links) {
  using tuner::testing::Fault;
  constexpr size_t kOverlapped = 4;  // dp8
  constexpr size_t kExperts = 1;     // dp4 ep4
  constexpr size_t kTensor = 5;      // tp2 dp2
  const auto num_likely = [](size_t layout, Fault fault) {
    tuner::testing::FaultyCase faulty{layout, {}, 3, 0.03};
    faulty.faults = {{fault, tuner::testing::strength_for(layout, fault, 0.4).value()}};
    const tuner::testing::FaultyStep step = tuner::testing::play_faulty(faulty);
    std::vector<ImportedTrace> traces = tests::as_recorded(step.traces, step.communicators);
    size_t count = 0;
    for (ImportedTrace& trace : traces) {
      trace.facts.world_size = std::ssize(traces);
      count += classify_imported(std::span(&trace, 1)).is_waiting_likely ? 1 : 0;
    }
    return count;
  };
  BOOST_TEST(num_likely(kOverlapped, Fault::stall) == 7U);  // all but the late one
  for (const size_t layout : {kOverlapped, kExperts, kTensor}) {
    BOOST_TEST(num_likely(layout, Fault::slow_links) == 0U, layout);
  }
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler

// What the communication of each group costs, from traces that name groups, and how large they are.
#include "profiler/analysis/group_costs.h"

#include <fmt/format.h>

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "tests/import/trace_texts.h"

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(costs_of_groups)

namespace {

std::string comm_in(const std::string& purpose, int size) {
  return R"(, "Collective name": "allreduce", "In msg nelems": 100, "dtype": "Float",
            "Process Group Name": "5", "Group size": )" +
         std::to_string(size) + R"(, "Process Group Description": ")" + purpose + "\"";
}

/// By turns: work of 100 us, a collective of 50 in this group, messages of 30 in one that the file
/// does not describe, an exchange of 20 by DeepEP.
ImportedTrace rank_of(const std::string& purpose, int size) {
  tests::EventText events;
  events.kernel(0, 100, 1)
      .kernel(100, 50, 2, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", 8, comm_in(purpose, size))
      .kernel(150, 30, 3, "ncclDevKernel_SendRecv(x)", 8)
      .kernel(180, 20, 4, "void deep_ep::intranode::dispatch<8, 768>(int4*)", 8);
  return events.read();
}

const CauseSegments kSegments = {{0, 100'000, IdleCause::compute, kNoRow},
                                 {100'000, 150'000, IdleCause::communication, 1},
                                 {150'000, 180'000, IdleCause::communication, 2},
                                 {180'000, 200'000, IdleCause::communication, 3}};

void add(GroupCosts& costs, const ImportedTrace& trace, const WaitsByOp* waits = nullptr) {
  costs.add(trace, stage_messages_of(trace), kSegments, 200'000, waits);
}

bool is_near(double is, double expected) { return std::abs(is - expected) < 1e-9; }

}  // namespace

BOOST_AUTO_TEST_CASE(each_group_has_what_ran_alone_and_did_not_wait) {
  GroupCosts costs;
  BOOST_TEST(!costs.are_known());
  // 20 of the 50 us it waited for another rank.
  const WaitsByOp waits(std::vector<WaitsByOp::Entry>{{1, {120'000, {}}}});
  const ImportedTrace trace = rank_of("TENSOR_MODEL_PARALLEL_GROUP", 4);
  add(costs, trace, &waits);
  BOOST_TEST_REQUIRE(costs.are_known());
  BOOST_TEST_REQUIRE(costs.ratios.size() == 3U);
  BOOST_TEST(is_near(costs.ratios["tp"], 0.15));
  BOOST_TEST(is_near(costs.ratios["ep"], 0.1));
  BOOST_TEST(is_near(costs.ratios[std::string(kUnknownMessages)], 0.15));
  BOOST_TEST(costs.unknown_ratio == 0);
  BOOST_TEST(costs.sizes["tp"] == 4);
  BOOST_TEST(!costs.has_meshes);
  // Of two ranks the one that shows most.
  add(costs, trace);
  BOOST_TEST(is_near(costs.ratios["tp"], 0.25));
  BOOST_TEST(is_near(costs.ratios["ep"], 0.1));
}

// Reductions are of gradients, gathers of weights; the rest may be of either.
BOOST_AUTO_TEST_CASE(a_group_is_told_by_what_its_collectives_do) {
  const auto costs_of = [](const char* collective, const char* kernel) {
    tests::EventText events;
    const std::string more = *collective == '\0'
                                 ? ""
                                 : fmt::format(R"(, "Collective name": "{}", "In msg nelems": 100,
                                  "Process Group Description": "DATA_PARALLEL_GROUP")",
                                               collective);
    events.kernel(0, 100, 1).kernel(100, 50, 2, kernel, 8, more);
    GroupCosts costs;
    costs.add(events.read(), std::vector<bool>(1), {kSegments[0], kSegments[1]}, 200'000, nullptr);
    return costs;
  };
  const auto has = [](const GroupCosts& costs, const char* group, double gathers,
                      double reductions) {
    return is_near(costs.ratio_of(group, CollectiveKind::any), 0.25) &&
           is_near(costs.ratio_of(group, CollectiveKind::gathers), gathers) &&
           is_near(costs.ratio_of(group, CollectiveKind::reductions), reductions);
  };
  constexpr const char* kGather = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096>)";
  constexpr const char* kReduce = "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(x)";
  BOOST_TEST(has(costs_of("_reduce_scatter_base", kGather), "dp_cp", 0, 0.25));
  BOOST_TEST(has(costs_of("_allgather_base", kReduce), "dp_cp", 0.25, 0));
  BOOST_TEST(has(costs_of("coalesced", kReduce), "dp_cp", 0.25, 0.25));
  // Nsight Systems has kernels alone.
  BOOST_TEST(has(costs_of("", kGather), "", 0.25, 0));
  BOOST_TEST(has(costs_of("", kReduce), "", 0, 0.25));
  BOOST_TEST(has(costs_of("", "ncclDevKernel_SendRecv(x)"), "messages", 0.25, 0.25));
}

// What does all that has no kernel of its own is called by the first of these.
BOOST_AUTO_TEST_CASE(kernels_of_everything_may_be_of_any_group) {
  for (const char* name :
       {"ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)", "ncclDevKernel_Generic_1(x)"}) {
    GroupCosts costs;
    tests::EventText events;
    events.kernel(0, 100, 1).kernel(100, 50, 2, name, 8);
    costs.add(events.read(), {}, {kSegments[0], kSegments[1]}, 200'000, nullptr);
    BOOST_TEST(is_near(costs.unknown_ratio, 0.25), name);
    BOOST_TEST(!costs.are_known());
  }
}

BOOST_AUTO_TEST_CASE(a_size_is_told_where_it_is_one_axis_alone) {
  GroupCosts costs;
  add(costs, rank_of("EXPERT_MODEL_PARALLEL_GROUP", 8));
  add(costs, rank_of("TENSOR_AND_EXPERT_PARALLEL_GROUP", 16));
  BOOST_TEST(costs.sizes["ep"] == 8);
  add(costs, rank_of("EXPERT_MODEL_PARALLEL_GROUP", 4));
  BOOST_TEST(costs.sizes["ep"] == 0);  // two configurations, or names that are not understood
}

BOOST_AUTO_TEST_CASE(groups_of_device_meshes_are_seen) {
  GroupCosts costs;
  add(costs, rank_of("mesh_tp", 2));
  BOOST_TEST(costs.has_meshes);
  BOOST_TEST(is_near(costs.ratios["tp"], 0.25));
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler

// What a probe reads off measured operations and transfers: rates that are put in come out.
#include "tuner/probed_rates.h"

#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <cmath>

#include "tests/tuner/fake_world.h"
#include "tuner/compiled_step.h"
#include "tuner/cost_model.h"
#include "tuner/planner/fit.h"

namespace moetune::tuner {

namespace data = boost::unit_test::data;
using spec::Work;

namespace {

/// An operation of `rows` rows that takes what `flops_per_ns` and `half_rows` say.
ProbedSum product_of(double rows, double flops_per_ns, double half_rows) {
  ProbedSum sum;
  sum.count = 1;
  sum.row_flops = 1e4;
  sum.flops = rows * sum.row_flops;
  sum.bytes = 1;
  sum.ns = (sum.flops + half_rows * sum.row_flops) / flops_per_ns;
  return sum;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(probed_rates)

BOOST_DATA_TEST_CASE(products_have_a_rate_and_a_length, data::make({0.0, 17.0, 500.0, 3000.0}),
                     half_rows) {
  ProbedSums sums;
  for (const int trial : {0, 1, 2}) {
    sums[{"qkv_proj.forward", trial}] = product_of(256 << trial, 100, half_rows);
    sums[{"o_proj.forward", trial}] = product_of(256 << trial, 64, half_rows);
  }
  const WorkRate rate = rates_of(sums).at(Work::product);
  // Equal work at both speeds takes as long as all of it at this one.
  BOOST_TEST(rate.per_ns == 2 / (1.0 / 100 + 1.0 / 64), boost::test_tools::tolerance(0.01));
  BOOST_TEST(rate.low == 64, boost::test_tools::tolerance(0.01));
  BOOST_TEST(rate.high == 100, boost::test_tools::tolerance(0.01));
  BOOST_TEST(std::abs(rate.half_rows - half_rows) <= 1 + half_rows / 100);
}

BOOST_AUTO_TEST_CASE(small_operations_and_links_say_nothing_of_a_rate) {
  ProbedSums sums;
  sums[{"o_proj.forward", 0}] = product_of(1 << 20, 100, 0);
  sums[{"router_gemm.forward", 0}] = product_of(1, 1, 0);  // slow, and a hundredth of a per cent
  sums[{"dispatch.forward", 0}] = {1, 0, 1e9, 0, 1e9};
  sums[{"no_such_operation", 0}] = {1, 1e9, 1e9, 0, 1e9};
  const WorkRates rates = rates_of(sums);
  BOOST_TEST(rates.at(Work::product).low == 100, boost::test_tools::tolerance(1e-9));
  BOOST_TEST(rates.count(Work::none) == 0U);
}

// The links of a played cluster are read off its transfers.
BOOST_AUTO_TEST_CASE(links_of_a_played_cluster_are_found) {
  // Groups within a node and over both.
  spec::TrialSpec trial = testing::small_sweep({}).base;
  trial.knobs.tensor_model_parallel_size = 2;
  trial.knobs.data_parallel_size = 4;
  trial.knobs.use_distributed_optimizer = true;
  trial.knobs.overlap_grad_reduce = false;
  trial.hardware.comm_sm_ratio = 0;
  const CompiledStep compiled(trial);
  const PlayedStep played = play_traced(trial, compiled, {}, 1'000'000);
  const ProbedLinks links = links_of(played.traces, plan::layout_of(trial.knobs), trial.hardware);
  BOOST_TEST_REQUIRE(links.inter_node.has_value());
  BOOST_TEST(links.inter_node->link.bytes_per_s == trial.hardware.inter_node.bytes_per_s,
             boost::test_tools::tolerance(0.03));
  BOOST_TEST(links.inter_node->error < 0.05);
  BOOST_TEST_REQUIRE(links.intra_node.has_value());
  BOOST_TEST(links.intra_node->link.bytes_per_s == trial.hardware.intra_node.bytes_per_s,
             boost::test_tools::tolerance(0.03));
  BOOST_TEST(static_cast<double>(links.intra_node->link.latency_ns) ==
                 static_cast<double>(trial.hardware.intra_node.latency_ns),
             boost::test_tools::tolerance(0.1));
}

BOOST_AUTO_TEST_CASE(a_data_sheets_peaks_are_kept) {
  spec::HardwareSpec hardware;
  hardware.peak_flops_per_s = 1e15;
  hardware.memory_bytes_per_s = 2e12;
  WorkRates rates;
  rates[Work::product] = {6.5e5, 6e5, 7e5, 300, 1};
  rates[Work::heavy] = {1e3, 1e3, 1e3, 0, 1};
  const spec::HardwareSpec kept = with_rates(hardware, rates, true);
  BOOST_TEST(kept.peak_flops_per_s == 1e15);
  BOOST_TEST(kept.efficiency[static_cast<size_t>(Work::product)] == 0.65);
  BOOST_TEST(kept.efficiency[static_cast<size_t>(Work::heavy)] == 0.5);
  const spec::HardwareSpec found = with_rates(hardware, rates, false);
  BOOST_TEST(found.peak_flops_per_s == 6.5e14);
  BOOST_TEST(found.efficiency[static_cast<size_t>(Work::product)] == 1);
}

BOOST_AUTO_TEST_CASE(plans_take_what_was_probed) {
  spec::HardwareSpec hardware;
  hardware.peak_flops_per_s = 9.9e14;
  hardware.fp8_flops_per_s = 2e15;
  planner::Rates rates;
  BOOST_TEST(planner::take_probed(hardware, rates).empty());
  hardware.efficiency[static_cast<size_t>(Work::product)] = 0.7;
  hardware.efficiency[static_cast<size_t>(Work::grouped)] = 0.56;
  hardware.half_rows[static_cast<size_t>(Work::grouped)] = 200;
  // Attention and what moves memory were not measured.
  BOOST_TEST(planner::take_probed(hardware, rates).size() == 3U);
  BOOST_TEST(rates.attention == planner::Rates{}.attention);
  BOOST_TEST(rates.product_hopper == 0.7);
  BOOST_TEST(rates.product_ampere == planner::Rates{}.product_ampere);
  BOOST_TEST(rates.grouped == 0.8, boost::test_tools::tolerance(1e-9));
  BOOST_TEST(rates.grouped_half_rows == 200);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::tuner

// The fit of op times: lines that were put in come out, and what was never measured borrows
// sensibly.
#include "tuner/calibration.h"

#include <boost/test/unit_test.hpp>

namespace moetune::tuner {
BOOST_AUTO_TEST_SUITE(calibration)

namespace {

using plan::Op;
using plan::OpCost;
using plan::Pass;
using OpTimes = std::map<std::string, TrialOutcome::OpTime>;

/// One FLOP takes one ns, one byte ten.
spec::HardwareSpec hardware() {
  spec::HardwareSpec made;
  made.peak_flops_per_s = 1e9;
  made.memory_bytes_per_s = 1e8;
  made.kernel_floor_ns = 50;
  return made;
}

TrialOutcome::OpTime time(int64_t count, OpCost cost, int64_t ns) {
  return {count, count * cost.flops, count * cost.bytes, count * ns};
}

int64_t duration(const Calibration& calibration, Op op, Pass pass, OpCost cost) {
  return calibration.duration_ns(hardware(), op, pass, cost);
}

BOOST_AUTO_TEST_CASE(without_measurements_the_roofline_decides) {
  const Calibration calibration;
  BOOST_TEST(calibration.is_empty());
  for (const OpCost cost : {OpCost{5000, 10}, OpCost{10, 400}, OpCost{1, 1}}) {
    BOOST_TEST(duration(calibration, Op::expert_fc1, Pass::forward, cost) ==
               plan::roofline_ns(hardware(), Op::expert_fc1, cost));
  }
}

BOOST_AUTO_TEST_CASE(a_line_through_several_trials_is_found_again) {
  Calibration calibration;
  // 300 ns and 2 ns per ns of roofline, whichever resource binds.
  calibration.add(hardware(), {{"expert_fc1.forward", time(3, {1000, 0}, 2300)}});
  calibration.add(hardware(), {{"expert_fc1.forward", time(10, {0, 200}, 4300)}});
  calibration.add(hardware(), {{"expert_fc1.forward", time(1, {4000, 100}, 8300)}});
  BOOST_TEST(!calibration.is_empty());
  for (const int64_t work : {0, 500, 3000, 100000}) {
    const int64_t found = duration(calibration, Op::expert_fc1, Pass::forward, {work, 0});
    BOOST_TEST(std::abs(found - (300 + 2 * work)) <= 1);
  }
}

BOOST_AUTO_TEST_CASE(one_size_scales_in_proportion) {
  Calibration calibration;
  calibration.add(hardware(), {{"core_attn.forward", time(4, {1000, 0}, 3000)}});
  BOOST_TEST(std::abs(duration(calibration, Op::core_attn, Pass::forward, {1000, 0}) - 3000) <= 1);
  BOOST_TEST(std::abs(duration(calibration, Op::core_attn, Pass::forward, {5000, 0}) - 15000) <= 1);
}

BOOST_AUTO_TEST_CASE(an_op_without_work_has_a_constant_time) {
  Calibration calibration;
  calibration.add(hardware(), {{"moe_preprocess.forward", time(5, {0, 0}, 700)}});
  calibration.add(hardware(), {{"moe_preprocess.forward", time(5, {0, 0}, 900)}});
  BOOST_TEST(duration(calibration, Op::moe_preprocess, Pass::forward, {0, 0}) == 800);
  BOOST_TEST(duration(calibration, Op::moe_preprocess, Pass::forward, {0, 1000}) == 800);
}

BOOST_AUTO_TEST_CASE(times_never_fall_with_more_work_nor_below_zero) {
  Calibration falling;
  falling.add(hardware(), {{"router.forward", time(1, {1000, 0}, 5000)},
                           {"embed.forward", time(1, {1000, 0}, 10)}});
  // router: larger is faster; embed: a line with a negative start.
  falling.add(hardware(), {{"router.forward", time(1, {9000, 0}, 1000)},
                           {"embed.forward", time(1, {9000, 0}, 90000)}});
  for (const Op op : {Op::router, Op::embed}) {
    int64_t last = 0;
    for (const int64_t work : {0, 1, 100, 1000, 10000, 1000000}) {
      const int64_t found = duration(falling, op, Pass::forward, {work, 0});
      BOOST_TEST(found >= last);
      last = found;
    }
  }
}

BOOST_AUTO_TEST_CASE(unmeasured_ops_borrow_from_their_kind) {
  Calibration calibration;
  calibration.add(hardware(), {{"qkv_proj.forward", time(2, {1000, 0}, 4000)},
                               {"rope.forward", time(2, {0, 100}, 9000)}});
  // GEMMs run at a quarter of the peak, element-wise ops at a ninth of the bandwidth.
  BOOST_TEST(std::abs(duration(calibration, Op::o_proj, Pass::forward, {2000, 0}) - 8000) <= 1);
  BOOST_TEST(std::abs(duration(calibration, Op::attn_norm, Pass::forward, {0, 200}) - 18000) <= 1);
  // Nothing is known of dispatcher ops yet.
  BOOST_TEST(duration(calibration, Op::permute, Pass::forward, {0, 200}) ==
             plan::roofline_ns(hardware(), Op::permute, {0, 200}));
}

BOOST_AUTO_TEST_CASE(what_is_known_of_other_kernels_is_kept_in_proportion) {
  spec::HardwareSpec slow = hardware();
  slow.efficiency[static_cast<size_t>(plan::Work::attention)] = 0.25;
  Calibration calibration;
  // Products take twice their roofline, so attention will take twice its own, longer one.
  calibration.add(slow, {{"qkv_proj.forward", time(2, {1000, 0}, 2000)}});
  BOOST_TEST(calibration.duration_ns(slow, Op::o_proj, Pass::forward, {3000, 0}) == 6000);
  BOOST_TEST(calibration.duration_ns(slow, Op::core_attn, Pass::forward, {3000, 0}) == 24000);
}

BOOST_AUTO_TEST_CASE(what_teaches_nothing_is_left_out) {
  Calibration calibration;
  calibration.add(hardware(), {});
  calibration.add(hardware(), {{"no_such_op.forward", time(1, {10, 10}, 10)},
                               {"dispatch.forward", time(1, {0, 10}, 10)},  // waiting included
                               {"o_proj.forward", time(0, {10, 10}, 10)},
                               {"embed.forward", time(1, {10, 10}, -10)}});
  BOOST_TEST(calibration.is_empty());
  BOOST_TEST(duration(calibration, Op::o_proj, Pass::forward, {5000, 0}) == 5000);
}

BOOST_AUTO_TEST_CASE(a_machine_without_peaks_is_fitted_too) {
  spec::HardwareSpec unknown;
  Calibration calibration;
  calibration.add(unknown, {{"o_proj.forward", time(1, {1000, 0}, 2000)}});
  BOOST_TEST(
      std::abs(calibration.duration_ns(unknown, Op::o_proj, Pass::forward, {3000, 0}) - 6000) <= 1);
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::tuner

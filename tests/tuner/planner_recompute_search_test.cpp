// The search where full recomputation does not take each layer by itself.
#include <boost/test/unit_test.hpp>

#include "tests/tuner/planner_samples.h"
#include "tuner/planner/memory_profile.h"
#include "tuner/planner/search.h"
#include "tuner/planner/step_time.h"

namespace moetune::tuner::planner {
namespace {

using samples::dense_model;
using samples::machine;
using spec::PlanRecompute;
using spec::PlanRecomputeSet;
using spec::RecomputeMethod;

/// One layout of a small model, on devices of which the tests say how much they hold.
struct OneLayout {
  spec::ModelSpec model = dense_model();
  spec::HardwareSpec hardware = machine(8);
  PlanQuestion question;

  OneLayout() {
    question.model = &model;
    question.hardware = &hardware;
    question.global_batch_size = 64;
    question.seq_length = 4096;
    question.base.recompute_method = RecomputeMethod::block;
    question.base.recompute_num_layers = 1;
    question.base.cross_entropy = spec::CrossEntropy::native;
  }

  static bool is_kept(const spec::PlanKnobs& knobs) {
    return knobs.dp == 8 && knobs.micro_batch_size == 4 && knobs.fsdp == spec::Fsdp::none &&
           knobs.cross_entropy == spec::CrossEntropy::native && knobs.cuda_graphs.empty();
  }

  [[nodiscard]] PlanRun run_with_recompute(PlanRecomputeSet recompute) const {
    spec::PlanKnobs knobs = question.base;
    knobs.dp = 8;
    knobs.micro_batch_size = 4;
    knobs.recompute = recompute;
    return run_with(question, {knobs});
  }
  [[nodiscard]] double bytes(PlanRecomputeSet recompute) const {
    return device_bytes(predict_memory(run_with_recompute(recompute)).peak_bytes());
  }
};

BOOST_AUTO_TEST_SUITE(search_of_recomputed_layers)

// One of eight layers costs less than the products of all.
BOOST_AUTO_TEST_CASE(a_block_may_be_faster_than_modules) {
  OneLayout one;
  one.question.keeps = [](const spec::PlanKnobs& knobs) {
    return OneLayout::is_kept(knobs) && knobs.recompute_method == RecomputeMethod::block;
  };
  const double of_block = one.bytes({PlanRecompute::full});
  BOOST_TEST_REQUIRE(of_block < one.bytes({}));
  BOOST_TEST_REQUIRE(one.bytes({PlanRecompute::mlp}) < of_block);
  one.hardware.memory_bytes = static_cast<int64_t>(of_block) + 1;
  const PlanAnswer answer = search_plans(one.question, {});
  BOOST_TEST_REQUIRE(!answer.best.empty());
  BOOST_TEST((answer.best[0].knobs.recompute == PlanRecomputeSet{PlanRecompute::full}));
  BOOST_TEST(answer.best[0].seconds <
             predict_step(one.run_with_recompute({PlanRecompute::mlp}), {}).seconds);
}

// What the run of today recomputes need not suffice: each layer by itself takes least.
BOOST_AUTO_TEST_CASE(each_layer_by_itself_is_tried) {
  OneLayout one;
  one.question.keeps = OneLayout::is_kept;
  PlanRun each = one.run_with_recompute({PlanRecompute::full});
  each.knobs.recompute_method = RecomputeMethod::uniform;
  const double least = device_bytes(predict_memory(each).peak_bytes());
  BOOST_TEST_REQUIRE(least < one.bytes({PlanRecompute::full}));
  BOOST_TEST_REQUIRE(least < one.bytes({PlanRecompute::mlp}));
  one.hardware.memory_bytes = static_cast<int64_t>(least) + 1;
  const PlanAnswer answer = search_plans(one.question, {});
  BOOST_TEST_REQUIRE(!answer.best.empty());
  BOOST_TEST(answer.best[0].knobs.recomputes_each_layer());
  BOOST_TEST(answer.best[0].seconds == predict_step(each, {}).seconds,
             boost::test_tools::tolerance(1e-12));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace moetune::tuner::planner

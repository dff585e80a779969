// A played step against the price of the same plan: where nothing is hidden and nobody waits, the
// two say the same.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/tuner/planned_layouts.h"
#include "tuner/planner/step_time.h"

namespace moetune::tuner::planner {

BOOST_AUTO_TEST_SUITE(played_price)

namespace {

namespace tt = boost::test_tools;
using samples::with_run;

/// Many micro-batches, so that what is done once a step is little.
void many(PlanRun& run) { run.global_batch_size *= 16; }

double played_over_priced(const PlanRun& run, const Rates& rates) {
  return 1e-9 * f64(play_plan(run, rates, false).estimate.step_ns) /
         predict_step(run, rates).seconds;
}

/// Of one rank, and of few of which nobody waits long.
samples::Models models() {
  samples::Models models = samples::usual_models();
  models.emplace_back("gdn", samples::hybrid_model(4));
  spec::ModelSpec biased = samples::moe_model();
  biased.has_expert_bias = true;
  models.emplace_back("biased", biased);
  spec::ModelSpec mamba = samples::moe_model();
  mamba.mamba = {16, 64, 128, 8, 4};
  for (int64_t layer = 0; layer < mamba.num_layers; ++layer) {
    mamba.layer_kinds.push_back(
        {layer % 2 == 0 ? spec::Mixer::mamba : spec::Mixer::none,
         layer % 2 == 0 ? spec::FeedForward::none : spec::FeedForward::moe});
  }
  models.emplace_back("mamba", mamba);
  return models;
}

}  // namespace

BOOST_AUTO_TEST_CASE(operations_last_as_they_are_priced) {
  for (const auto& [name, model] : models()) {
    for (const spec::PrecisionRecipe precision :
         {spec::PrecisionRecipe::bf16, spec::PrecisionRecipe::fp8_blockwise}) {
      BOOST_TEST_CONTEXT(name << " " << name_of(precision)) {
        with_run(model, {}, [&](PlanRun& run) {
          many(run);
          run.knobs.precision = precision;
          const double ratio = played_over_priced(run, samples::rates_of_devices());
          BOOST_TEST(ratio > 0.93);
          BOOST_TEST(ratio < 1.07);
        });
      }
    }
  }
}

// The host that is priced is the host that is played: eager, and with graphs of parts.
BOOST_AUTO_TEST_CASE(launches_come_to_the_hosts_price) {
  for (const auto& [name, model] : samples::usual_models()) {
    for (const char* graphs : {"none", "attn", "full_iteration"}) {
      BOOST_TEST_CONTEXT(name << " " << graphs) {
        with_run(model, {}, [&](PlanRun& run) {
          many(run);
          run.knobs.cuda_graphs = *spec::PlanGraphSet::parse(graphs);
          Rates rates;
          rates.host_layer_ns *= 10;  // all of the step waits for it
          const double ratio = played_over_priced(run, rates);
          BOOST_TEST(ratio > 0.95);
          BOOST_TEST(ratio < 1.05);
        });
      }
    }
  }
}

// Also where a kernel of its own is launched for each expert.
BOOST_AUTO_TEST_CASE(experts_one_by_one_have_their_launches) {
  with_run(samples::moe_model(), {}, [](PlanRun& run) {
    many(run);
    const Rates rates;
    const int64_t grouped = play_plan(run, rates, false).estimate.step_ns;
    run.knobs.moe_grouped_gemm = false;
    BOOST_TEST(not_played(run).empty());
    BOOST_TEST(play_plan(run, rates, false).estimate.step_ns > grouped);
    BOOST_TEST(played_over_priced(run, rates) == 1, tt::tolerance(0.07));
  });
}

BOOST_AUTO_TEST_CASE(the_fixed_cost_stands_behind_the_step) {
  with_run(samples::moe_model(), {.pp = 2}, [](PlanRun& run) {
    Rates rates = samples::rates_of_devices();
    const StepTime priced = predict_step(run, rates);
    const PlayedStep step = play_plan(run, rates, false);
    const std::string part = base::name_of(base::StepPart::compute, "fixed");
    BOOST_TEST(f64(step.estimate.parts_ns.at(part)) == 1e9 * priced.part(TimePart::fixed),
               tt::tolerance(1e-6));
    rates.fixed_ns = rates.parameter_ns = 0;
    const PlayedStep without = play_plan(run, rates, false);
    BOOST_TEST(without.estimate.step_ns == step.estimate.step_ns - step.estimate.parts_ns.at(part));
    BOOST_TEST(without.estimate.parts_ns.count(part) == 0U);
    // Parts of each stage, and of all, add up to the step.
    for (const auto& parts : step.stage_parts_ns) {
      int64_t sum = 0;
      for (const auto& [name, ns] : parts) sum += ns;
      BOOST_TEST(sum == step.estimate.step_ns);
    }
    int64_t sum = 0;
    for (const auto& [name, ns] : step.estimate.parts_ns) sum += ns;
    BOOST_TEST(sum == step.estimate.step_ns);
  });
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::tuner::planner

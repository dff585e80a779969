// The exchange of experts' rows in plans against what was measured on machines.
#include <fmt/format.h>

#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <ostream>

#include "engine/spec/json_reader.h"
#include "tests/spec/spec_samples.h"
#include "tests/tuner/planner_samples.h"
#include "tuner/planner/exchange.h"
#include "tuner/planner/played_plan.h"

namespace moetune::tuner::planner {

using spec::Dispatcher;

BOOST_AUTO_TEST_SUITE(planner_exchange)

namespace {

/// A dispatch of 4096 tokens a rank, hidden size 7168, bf16, 256 experts, 8 a token: table 7 of
/// arXiv 2603.07685, as a third party transcribed it.
struct MeasuredDispatch {
  const char* machine;
  Dispatcher dispatcher;
  int ep;
  double us;
  double tolerance;
};
std::ostream& operator<<(std::ostream& out, const MeasuredDispatch& row) {
  return out << row.machine << " " << name_of(row.dispatcher) << " " << row.ep;
}

const MeasuredDispatch kMeasuredDispatches[] = {
    {"gb200-nvl72", Dispatcher::hybridep, 8, 391, 0.2},
    {"gb200-nvl72", Dispatcher::hybridep, 16, 578, 0.2},
    {"gb200-nvl72", Dispatcher::hybridep, 32, 612, 0.2},
    {"gb200-nvl72", Dispatcher::hybridep, 64, 675, 0.2},
    {"h100-80g", Dispatcher::hybridep, 8, 661, 0.2},
    {"h100-80g", Dispatcher::hybridep, 16, 1485, 0.4},
    {"h100-80g", Dispatcher::hybridep, 32, 3064, 0.2},
    {"h100-80g", Dispatcher::hybridep, 64, 4626, 0.2},
    {"gb200-nvl72", Dispatcher::alltoall, 8, 735, 0.2},
    {"gb200-nvl72", Dispatcher::alltoall, 16, 743, 0.2},
    {"gb200-nvl72", Dispatcher::alltoall, 32, 769, 0.2},
    {"gb200-nvl72", Dispatcher::alltoall, 64, 930, 0.2},
    {"h100-80g", Dispatcher::alltoall, 8, 1265, 0.3},
    {"h100-80g", Dispatcher::alltoall, 16, 5774, 0.2},
    {"h100-80g", Dispatcher::alltoall, 32, 8059, 0.2},
    {"h100-80g", Dispatcher::alltoall, 64, 9164, 0.2},
};

}  // namespace

BOOST_DATA_TEST_CASE(a_dispatch_takes_about_what_was_measured,
                     boost::unit_test::data::make(kMeasuredDispatches)) {
  const std::string path = fmt::format("sweeps/hardware/{}.json", sample.machine);
  const spec::HardwareSpec hardware = spec::with_devices(
      spec::hardware_from_json(spec::parse_json(spec::samples::read_file(path), path), path), 64);
  spec::ModelSpec model = samples::moe_model();
  model.hidden_size = 7168;
  model.num_experts = 256;
  model.experts_per_token = 8;
  PlanRun run = samples::run_of(model, hardware);
  run.knobs.dp = 64;
  run.knobs.ep = sample.ep;
  run.knobs.dispatcher = sample.dispatcher;
  BOOST_TEST(exchange_seconds(run) * 1e6 == sample.us,
             boost::test_tools::tolerance(sample.tolerance));
}

// With padding every rank sends and receives what the capacity has room for, however uneven the
// routing is; without it the busiest rank's rows are waited for.
BOOST_AUTO_TEST_CASE(padded_rows_do_not_follow_the_load) {
  const spec::ModelSpec model = samples::moe_model();
  const spec::HardwareSpec hardware = samples::machine(16);
  PlanRun run = samples::run_of(model, hardware);
  run.knobs.dp = 16;
  run.knobs.ep = 16;
  run.knobs.capacity_factor = 1;
  const auto seconds_at = [&](double load) {
    run.load = load;
    return exchange_seconds(run);
  };
  const double balanced = seconds_at(1);
  BOOST_TEST(seconds_at(3) > 2 * balanced);
  run.knobs.pad_to_capacity = true;
  BOOST_TEST(seconds_at(1) == balanced);
  BOOST_TEST(seconds_at(3) == balanced);
  run.knobs.capacity_factor = 2;
  BOOST_TEST(seconds_at(1) > balanced);
  BOOST_TEST(seconds_at(3) == seconds_at(1));
  run.knobs.capacity_factor = 0;  // nothing to pad to
  BOOST_TEST(seconds_at(3) > 2 * balanced);
}

// moetune's own engine sends rows in an all-to-all; what is played takes as long as the plan's
// dispatcher is priced at.
BOOST_AUTO_TEST_CASE(a_played_exchange_is_that_of_the_dispatcher) {
  const spec::ModelSpec model = samples::moe_model();
  const spec::HardwareSpec hardware = samples::machine(16);
  PlanRun run = samples::run_of(model, hardware);
  run.knobs.dp = 16;
  run.knobs.ep = 16;
  for (const auto& [dispatcher, load] : {std::pair(Dispatcher::alltoall, 1.0),
                                         {Dispatcher::hybridep, 1.0},
                                         {Dispatcher::alltoall, 3.0}}) {
    run.knobs.dispatcher = dispatcher;
    run.load = load;
    const Rates rates;
    const PlayedStep played = play_plan(run, rates, true);
    int64_t ns = 0;
    int64_t count = 0;
    for (const profiler::TraceRecord& record : played.traces.front().records) {
      if (record.name != "dispatch.forward") continue;
      ns += record.transfer_ns;
      ++count;
    }
    BOOST_TEST_REQUIRE(count > 0);
    BOOST_TEST(1e-9 * static_cast<double>(ns) / static_cast<double>(count) ==
                   exchange_seconds(run) / rates.exchange,
               boost::test_tools::tolerance(0.05));
  }
}

// What software gets out of the links of tensor parallelism is in its transfers, too.
BOOST_AUTO_TEST_CASE(a_played_transfer_of_tensors_is_that_of_its_price) {
  const spec::ModelSpec model = samples::dense_model();
  const spec::HardwareSpec hardware = samples::machine(2);
  PlanRun run = samples::run_of(model, hardware);
  run.knobs.tp = 2;
  const auto transfer_ns = [&](double factor, spec::PrecisionRecipe recipe) {
    Rates rates;
    rates.tensor_factor = factor;
    rates.case_factor[static_cast<size_t>(spec::PrecisionRecipe::mxfp8)] = 1.5;
    run.knobs.precision = recipe;
    const PlayedStep played = play_plan(run, rates, true);
    int64_t ns = 0;
    for (const profiler::TraceRecord& record : played.traces.front().records) {
      if (record.group == plan::name_of(plan::Group::tp)) ns += record.transfer_ns;
    }
    return static_cast<double>(ns);
  };
  const double one = transfer_ns(1, spec::PrecisionRecipe::bf16);
  BOOST_TEST_REQUIRE(one > 0);
  BOOST_TEST(transfer_ns(3, spec::PrecisionRecipe::bf16) == 3 * one,
             boost::test_tools::tolerance(0.001));
  // Transfers are of 16 bits, and the kind of run has a factor.
  BOOST_TEST(transfer_ns(1, spec::PrecisionRecipe::mxfp8) == 1.5 * one,
             boost::test_tools::tolerance(0.001));
}

// And so do the products of the busiest rank's experts.
BOOST_AUTO_TEST_CASE(a_played_step_has_the_load_of_the_plan) {
  const spec::ModelSpec model = samples::moe_model();
  const spec::HardwareSpec hardware = samples::machine(16);
  PlanRun run = samples::run_of(model, hardware);
  run.knobs.dp = 16;
  run.knobs.ep = 16;
  const auto products_at = [&](double load) {
    run.load = load;
    int64_t ns = 0;
    const PlayedStep played = play_plan(run, {}, true);
    for (const profiler::TraceRecord& record : played.traces.front().records) {
      if (record.name == "expert_fc1.forward") ns += record.end_ns - record.start_ns;
    }
    return ns;
  };
  const int64_t balanced = products_at(1);
  BOOST_TEST_REQUIRE(balanced > 0);
  BOOST_TEST(products_at(3) > balanced);
  // Nobody receives more than all.
  BOOST_TEST(products_at(100) == products_at(16));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::tuner::planner

// Faults that are put into steps which the engine runs: they do what their names say, and verdicts
// name them. The whole table is label_bench's.
#include "tests/engine/emulated_faults.h"

#include <boost/test/unit_test.hpp>

#include "profiler/analysis/step_verdict.h"
#include "tests/tuner/faulty_steps.h"

namespace moetune::engine::testing {

using profiler::StepVerdict;
using tuner::testing::Fault;
using tuner::testing::FaultyCase;

namespace {

constexpr size_t kExperts = 1;   // dp4 ep4
constexpr size_t kPipeline = 8;  // pp2 dp2 ep2
constexpr size_t kReplicas = 4;  // dp8, overlapped
constexpr size_t kFullQueue = 13;

}  // namespace

BOOST_AUTO_TEST_SUITE(emulated_faults)

BOOST_AUTO_TEST_CASE(a_step_that_is_run_again_takes_as_long_and_steps_differ_by_their_tokens) {
  const EmulatedRun run = run_emulated({kExperts, {}}, 2);
  const EmulatedRun again = run_emulated({kExperts, {}}, 2);
  BOOST_TEST(run.steps[0].step_ns == again.steps[0].step_ns);
  BOOST_TEST(run.steps[1].step_ns == again.steps[1].step_ns);
  BOOST_TEST(run.steps[0].step_ns != run.steps[1].step_ns);
  BOOST_TEST(time_of({kExperts, {}}, 2) == run.time());
}

BOOST_AUTO_TEST_CASE(faults_of_a_running_engine_are_named_with_their_ranks) {
  for (const size_t layout : {kExperts, kPipeline}) {
    int num_cases = 0;
    int num_gains = 0;
    for (const Fault fault :
         {Fault::none, Fault::slow_links, Fault::one_ranks_link, Fault::launches, Fault::syncs,
          Fault::allocator, Fault::loader, Fault::stall, Fault::slow_rank, Fault::uneven_experts,
          Fault::few_micro_batches, Fault::uneven_stages, Fault::capped_memory, Fault::offload,
          Fault::small_work, Fault::slow_memory, Fault::large_products}) {
      if (!is_emulated(layout, fault)) continue;
      FaultyCase faulty{layout, {}};
      if (fault != Fault::none) {
        const auto strength = emulated_strength(layout, fault, 0.2);
        if (!strength) continue;
        faulty.faults = {{fault, *strength}};
      }
      ++num_cases;
      const EmulatedRun run = run_emulated(faulty, 1);
      const StepVerdict verdict = judge(run.steps.front());
      const tuner::testing::FaultRow& row = tuner::testing::row_of(fault);
      BOOST_TEST((verdict.sub_cause == row.sub_cause), row.name << ": " << verdict.text());
      if (row.is_of_one_rank) {
        BOOST_TEST(verdict.rank.value_or(-1) == run.steps.front().faulty_rank,
                   row.name << ": " << verdict.text());
      }
      if (profiler::row_of(row.sub_cause).label == profiler::Wall::compute) continue;
      const double gain = emulated_gain(faulty, run);
      BOOST_TEST(gain >= 0.18, row.name << ": " << gain);
      BOOST_TEST(gain <= verdict.ceiling_ratio() + 0.005, row.name << ": " << verdict.text());
      ++num_gains;
    }
    BOOST_TEST(num_cases >= 12);
    BOOST_TEST(num_gains >= 8);
  }
}

BOOST_AUTO_TEST_CASE(collectives_that_hold_multiprocessors_of_a_running_engine_are_contention) {
  const auto strength = emulated_strength(kReplicas, Fault::held_multiprocessors, 0.2);
  BOOST_TEST_REQUIRE(strength.has_value());
  const EmulatedRun run = run_emulated({kReplicas, {{Fault::held_multiprocessors, *strength}}}, 1);
  const StepVerdict verdict = judge(run.steps.front());
  BOOST_TEST((verdict.sub_cause == profiler::SubCause::contention), verdict.text());
}

BOOST_AUTO_TEST_CASE(launch_queues_that_fill_are_only_played) {
  BOOST_TEST(!is_emulated(kFullQueue, Fault::none));
  BOOST_TEST(is_emulated(kExperts, Fault::none));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::engine::testing

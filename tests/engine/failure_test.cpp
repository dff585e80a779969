// A rank that fails ends the whole world with its own cause, and nobody touches the buffers of a
// rank that is gone.
#include <array>
#include <boost/test/unit_test.hpp>
#include <thread>

#include "engine/comm/thread_world.h"
#include "kernels/base/error.h"
#include "tests/engine/training_fixture.h"

namespace moetune::engine {
BOOST_AUTO_TEST_SUITE(failure)

namespace {

BOOST_AUTO_TEST_CASE(late_member_does_not_meet_one_that_left) {
  plan::Layout layout;
  layout.dp = 2;
  const spec::TrialSpec trial = testing::tiny_trial(testing::tiny_model());
  const std::unique_ptr<kernels::Backend> backend = kernels::make_cpu_backend();
  ThreadWorld world(trial.hardware, layout, profiler::ClockMode::virtual_modelled, 2);
  const auto early = world.communicator(plan::Group::world, 0, *backend);
  const auto late = world.communicator(plan::Group::world, 1, *backend);
  bool has_early_failed = false;
  std::thread thread([&] {
    world.begin_computing();
    const int value = 1;
    std::array<int, 2> all{};
    try {
      early->all_gather(&value, all.data(), sizeof(int), 0);
    } catch (const base::PeerFailed&) {
      has_early_failed = true;
    }
    world.end_computing();
  });
  world.abort("on purpose");
  thread.join();
  BOOST_TEST(has_early_failed);
  world.begin_computing();
  const int value = 2;
  std::array<int, 2> all{};
  BOOST_CHECK_THROW(late->all_gather(&value, all.data(), sizeof(int), 0), base::PeerFailed);
  BOOST_TEST(all[0] == 0);
  BOOST_TEST(all[1] == 0);
}

BOOST_AUTO_TEST_CASE(every_failing_rank_gives_its_own_cause) {
  spec::Knobs knobs;
  knobs.data_parallel_size = 2;
  knobs.context_parallel_size = 2;
  knobs.expert_model_parallel_size = 4;
  const spec::TrialSpec trial = testing::tiny_trial(testing::tiny_model(), knobs);
  const testing::RandomTokens tokens(trial);
  for (int failing = 0; failing < 4; ++failing) {
    const auto body = [&](RankTrainer& trainer, World&, int rank) {
      for (int64_t step = 0; step < 3; ++step) {
        if (rank == failing && step == 1) throw base::Error("on purpose");
        trainer.step(step, tokens, profiler::TraceLevel::none);
      }
    };
    BOOST_CHECK_EXCEPTION(run_ranks(trial, {}, body), base::Error, [](const base::Error& error) {
      return std::string(error.what()) == "on purpose";
    });
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::engine

// The memory model beside the ledger of a real run.
#pragma once

#include "engine/routing_recorder.h"
#include "tests/engine/parity_fixture.h"
#include "tuner/memory_model.h"

namespace moetune::engine::testing {

inline constexpr int64_t kMemorySteps = 2;

/// Where the router sends the tokens of the trial's batches, as one rank sees it.
inline spec::RoutingProfile record_profile(spec::TrialSpec trial) {
  trial.records_routing = true;
  trial.num_warmup_steps = 0;
  trial.num_steps = kMemorySteps;
  trial.num_traced_steps = 0;
  RoutingRecorder recorder(trial);
  TrainerHooks hooks;
  hooks.observers.routing = &recorder;
  const RandomTokens tokens(trial);
  run_ranks(trial, hooks, [&](RankTrainer& trainer, World&, int) {
    for (int64_t step = 0; step < kMemorySteps; ++step) {
      trainer.step(step, tokens, profiler::TraceLevel::none);
    }
  });
  return recorder.profile();
}

inline spec::RoutingProfile record_profile(const spec::ModelSpec& model,
                                           const char* recompute = "none") {
  spec::TrialSpec trial = tiny_trial(model);
  trial.knobs.recompute = spec::RecomputeSet(recompute);
  return record_profile(trial);
}

/// Given the routing, the model knows the peak of every rank and group to the byte.
inline void check_memory(spec::TrialSpec trial, const spec::RoutingProfile& profile) {
  trial.num_warmup_steps = 0;
  trial.num_steps = kMemorySteps;
  trial.num_traced_steps = 0;
  const TrainingRun run = train(trial, kMemorySteps);
  const auto ranks =
      tuner::estimate_memory(trial, tuner::ReceivedRows(profile, trial.model, trial.training))
          .ranks;
  BOOST_TEST_REQUIRE(ranks.size() == run.ledgers.size());
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    BOOST_TEST_CONTEXT("rank " << rank << " peak at " << run.ledgers[rank].peak_allocation()) {
      BOOST_TEST(ranks[rank].peak_bytes == run.ledgers[rank].peak_bytes());
      for (int group = 0; group < profiler::kNumMemoryGroups; ++group) {
        BOOST_TEST_CONTEXT(profiler::name_of(static_cast<profiler::MemoryGroup>(group))) {
          BOOST_TEST(ranks[rank].group_bytes[static_cast<size_t>(group)] ==
                     run.ledgers[rank].peak_by_group()[static_cast<size_t>(group)]);
        }
      }
    }
  }
}

}  // namespace moetune::engine::testing

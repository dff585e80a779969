// Runs rank threads: one body per rank, one root cause when something fails.
#pragma once

#include <functional>

#include "engine/comm/thread_world.h"
#include "engine/spec/trial_spec.h"
#include "engine/trainer.h"

namespace moetune::engine {

/// Starts one thread per rank of the trial's layout on the CPU backend, gives each a trainer and
/// calls body(trainer, rank). When a rank throws, the others are released and the first real cause
/// is thrown to the caller.
void run_ranks(const spec::TrialSpec& trial, const TrainerHooks& hooks,
               const std::function<void(RankTrainer&, ThreadWorld&, int rank)>& body);

}  // namespace moetune::engine

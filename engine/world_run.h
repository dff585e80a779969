// Runs the ranks of a trial that belong to this process: one body per rank, one root cause when
// something fails.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "engine/comm/rendezvous.h"
#include "engine/comm/world.h"
#include "engine/spec/trial_spec.h"
#include "engine/trainer.h"

namespace moetune::engine {

/// The ranks of the trial's layout that this process runs, in ascending order: all of them as
/// threads, the one of a fake world, or the one that the launcher has given this process (see
/// launch_env.h). Throws base::UsageError when the launcher's variables make no sense.
std::vector<int> local_ranks(const spec::TrialSpec& trial);

/// Which of this machine's GPUs the process uses: the first, or by the launcher's number of the
/// process on this host where it shows each process all of them.
int local_device(const spec::TrialSpec& trial);

/// Why the trial's backend or communicator is not in this build; empty when they are.
std::string missing_in_build(const spec::TrialSpec& trial);

/// How ranks that are processes wait for each other.
struct Meeting {
  std::string folder;  ///< where they meet without a launcher's address; all share it
  /// For the last rank to reach an operation or a meeting that the first has reached.
  std::chrono::milliseconds patience = kUsualPatience;
};

/// What runs on a rank.
using RankBody = std::function<void(RankTrainer&, World&, int rank)>;

/// Makes a backend and a trainer for each rank of this process, each on a thread of its own where
/// there are several, and calls body(trainer, world, rank). When a rank throws, the others are
/// released and the first real cause is thrown to the caller.
void run_ranks(const spec::TrialSpec& trial, const TrainerHooks& hooks, const RankBody& body,
               const Meeting& meeting = {});

/// The part of run_ranks for one rank among processes, which have met. When something fails here,
/// the others are told.
void run_process_rank(const spec::TrialSpec& trial, const TrainerHooks& hooks, const RankBody& body,
                      int device, Rendezvous& rendezvous,
                      std::chrono::milliseconds patience = kUsualPatience);

}  // namespace moetune::engine

// Whether a run of another engine was the one asked for, by the configuration that its log echoes.
#pragma once

#include <string>
#include <vector>

#include "sweeps/adapters/user_run.h"
#include "sweeps/runs/run_facts.h"
#include "tuner/strategy.h"

namespace moetune::sweeps {

/// Settings of the space, and the number of steps after which the trial ends, that the log has
/// otherwise than they were asked for, "; " between them; empty: none is known. A log without a
/// configuration may say some of them in other lines, or have the command.
std::string echo_mismatch(const UserRun& run, const tuner::TrialRequest& request,
                          const RunFacts& facts);

/// The same for the sizes outside of the space that make a run another one: ranks of every kind,
/// batches, the sequence's length, the model's sizes, recomputation, the steps of the whole run.
/// What the log's configuration leaves out its other lines may say. Compared is what the command
/// states, and of parallel sizes also that one which is not stated is 1. No default of a release
/// counts, and none at all where a script or a file that was not read may state it.
std::string size_mismatch(const UserRun& run, const RunFacts& facts);

/// All other settings that the log has otherwise than the command, a sentence each: frameworks
/// change some by themselves.
std::vector<std::string> echo_differences(const UserRun& run, const tuner::TrialRequest& request,
                                          const RunFacts& facts);

}  // namespace moetune::sweeps

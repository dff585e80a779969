// How many ranks a run has had: what its command states, its log and its traces.
#pragma once

#include <cstdint>
#include <optional>

#include "sweeps/runs/diagnosed_run.h"

namespace moetune::sweeps {

/// As the log or the traces have it.
std::optional<int64_t> seen_world_size(const RunDiagnosis& diagnosis);
/// As the command states it, else as the log or the traces have it.
std::optional<int64_t> world_size_of(const RunDiagnosis& diagnosis);
/// What a script starts by default, such as "${SLURM_NNODES:-1}" nodes, gives way to what was seen,
/// or else to what the user says (0: nothing). Where neither tells, or what they tell does
/// not fit the layout, it is noted as a default.
void take_seen_world(int64_t said_devices, RunDiagnosis& diagnosis);
/// A note where the log or the command has more ranks than there are traces, and these, as exports
/// of Nsight Systems, do not say how many ranks they are of.
void note_untraced_ranks(RunDiagnosis& diagnosis);

}  // namespace moetune::sweeps

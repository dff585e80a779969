// What the machine has left for the ranks of a trial, and whether that is enough: asked before they
// start, as ranks that are killed for lack of memory say nothing about the trial.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/spec/trial_spec.h"
#include "tuner/strategy.h"

namespace moetune::sweeps {

/// The machine as it is now.
struct HostState {
  /// Memory that a process started now may still use: what the kernel can free, and what the
  /// control groups of this process leave; none where nothing says so.
  std::optional<int64_t> available_bytes;
  bool is_group_limit = false;  ///< a control group is what leaves least
  int64_t num_cores = 1;        ///< that this process may run on
  /// Processes that the kernel's out-of-memory killer has ended since the machine started.
  std::optional<int64_t> num_oom_kills;
};

/// From /proc and /sys, or from the same files under another folder.
HostState read_host(const std::string& root = "");

/// Host memory that the ranks of a trial need in this machine, by the predicted peaks of the
/// emulated devices (those of balanced routing where `known` has none); 0 where the ranks are not
/// in this machine's memory: on a GPU.
int64_t host_bytes_of(const spec::TrialSpec& spec, const tuner::Prediction& known);

/// Throws base::EnvironmentFailure, in one sentence, when the host has less left than that.
void check_host_memory(const spec::TrialSpec& spec, int64_t needed_bytes, const HostState& host);

/// A sentence where ranks that compute on this machine are more than its cores; else empty.
std::string cores_note(const spec::TrialSpec& spec, const HostState& host);

}  // namespace moetune::sweeps

// What is stored of a trial that somebody else's engine has run, which other trials do not have:
// its settings and its command in the user's own words. And what it does not have.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "profiler/store/store.h"

namespace moetune::reports {

/// The command of a run as it was given to the shell, and where: names of a trial's texts.
inline constexpr const char* kCommandText = "command";
inline constexpr const char* kCommandFolderText = "command_folder";

/// The text of a trial whose experts were forced to be balanced, whatever their router said.
inline constexpr const char* kForcedBalancingText = "forced_balancing";
/// Whether a trial has it: its figures say nothing of real routing.
bool has_forced_balancing(const store::Store& store, int64_t trial_id);
/// The sentence for all that is shown of such a sweep.
inline constexpr const char* kForcedBalancing =
    "experts were forced to be balanced: no figure here holds for real routing";

/// True for a trial of a sweep whose `engine` is not our own.
bool is_of_another_engine(const store::TrialRow& trial);

/// What a trial changes in the user's command, as the engine writes it; none of trials of our own
/// engine.
std::optional<std::vector<std::string>> engine_changes(const store::TrialRow& trial);

/// The command of such a trial. Both are empty where nobody has stored it: somebody has run it by
/// hand, or it was run by our own engine.
struct EngineRun {
  std::string command;
  std::string folder;  ///< also empty of trials of earlier versions
};
EngineRun engine_run_of(const store::Store& store, const store::TrialRow& trial);

/// Of a row of memory what is known: the log of another engine may tell neither what a peak was
/// made of nor the capacity, which are stored as 0 then.
std::optional<int64_t> known_bytes(bool is_of_another_engine, std::optional<int64_t> bytes);

/// Whether a sweep that is not running waits for a result by `moetune tell`: nothing was run yet,
/// or the last of its `trials` was told. The stored status of both is `interrupted`.
bool waits_for_tell(const store::Store& store, const store::SweepRow& sweep,
                    std::span<const store::TrialRow* const> trials);

}  // namespace moetune::reports

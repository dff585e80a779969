// What a trial of another framework needs besides its choices: how many steps, a log line for each,
// a trace or none. One table.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/spec/dialects/run_config.h"

namespace moetune::sweeps {

struct TrialLength {
  int64_t num_steps = 0;     ///< all of them
  int64_t first_traced = 0;  ///< from 1; 0: the run is not profiled
  std::string out;           ///< the trial's folder
  int64_t world_size = 0;    ///< ranks; 0: not known
};

/// The ranks of which a trial is profiled: all, or of more than 64 those of the first eight, which
/// are mostly one node, and 56 that are spread evenly over the others. Rank 0 where nobody knows
/// how many there are.
std::vector<int64_t> profiled_ranks(int64_t world_size);

/// Settings that stand in no table of knobs, with values as the dialect writes them.
std::vector<spec::dialects::UnknownSetting> trial_settings(spec::dialects::Dialect dialect,
                                                           const TrialLength& length);
/// The settings of the table that only serve to make a trace.
std::vector<spec::dialects::UnknownSetting> profile_settings(spec::dialects::Dialect dialect,
                                                             const TrialLength& length);

/// The setting by which a trial ends after its steps.
std::string_view trial_steps_setting(spec::dialects::Dialect dialect);

/// The setting that ends a run of itself after so many steps, which a trial leaves as it is: it
/// leaves earlier. Empty where a trial sets it.
std::string total_steps_setting(spec::dialects::Dialect dialect);

}  // namespace moetune::sweeps

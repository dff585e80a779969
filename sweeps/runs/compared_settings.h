// The settings in which two runs differ, as lines of a diff: what the first says, and what the
// second says instead.
#pragma once

#include <string>
#include <vector>

#include "engine/spec/dialects/run_config.h"

namespace moetune::sweeps {

/// Lines are in the words of the second run's framework: "--micro-batch-size 2".
struct ComparedSetting {
  std::string key;
  std::string before;  ///< empty: the first run does not say it
  std::string after;   ///< empty: the second does not
};

/// Settings that moetune knows come first, in the order of its table, then variables of the
/// environment. What it has no word for is compared where both runs are of one dialect and say such
/// settings: the configuration that a log echoes is read without them.
std::vector<ComparedSetting> differing_settings(const spec::dialects::RunConfig& before,
                                                const spec::dialects::RunConfig& after);

/// "--micro-batch-size 2", or "without --recompute-method": what makes the first as the second.
std::string text_of(const ComparedSetting& setting);

}  // namespace moetune::sweeps

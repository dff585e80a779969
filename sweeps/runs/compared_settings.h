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
  std::string before;        ///< empty: the first run does not say it
  std::string after;         ///< empty: the second does not
  bool is_variable = false;  ///< of the environment
};

/// Settings that moetune knows come first, then variables of the environment, then others by their
/// keys. Runs of one dialect are compared by what their sources say. Where one of two sources says
/// more than the other by its nature (RunConfig::is_echo, is_whole), what only one says is compared
/// by the knobs. So are runs of two dialects: there a setting that was understood only in part is
/// left out. The echo of a log is read without variables: they are not compared with it.
std::vector<ComparedSetting> differing_settings(const spec::dialects::RunConfig& before,
                                                const spec::dialects::RunConfig& after);

/// "--micro-batch-size 2", or "without --recompute-method": what makes the first as the second.
std::string text_of(const ComparedSetting& setting);

}  // namespace moetune::sweeps

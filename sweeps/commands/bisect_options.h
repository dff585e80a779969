// What both forms of `moetune bisect` share on the command line.
#pragma once

#include <string>

#include "sweeps/bisect/hunt.h"
#include "sweeps/commands/options.h"

namespace moetune::sweeps {

/// "2%" or "0.02"; throws base::UsageError outside of (0, 1).
double ratio_option(const CommandOptions& options, const std::string& name, double otherwise);
double min_effect_option(const CommandOptions& options);
double confidence_option(const CommandOptions& options);
MetricKind kind_option(const CommandOptions& options);
std::string metric_option(const CommandOptions& options);

/// Exit code of a hunt that has ended.
int hunt_exit_code(tuner::HuntVerdict verdict, bool is_swapped, bool is_interrupted);

/// bisect --configs GOOD BAD.
int run_bisect_configs(const CommandOptions& options, const std::string& database);

}  // namespace moetune::sweeps

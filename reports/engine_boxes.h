// A trial of somebody else's engine in the verdict: what it changes in the user's command, and its
// whole command. moetune itself cannot run it alone.
#pragma once

#include <string>

#include "reports/context.h"

namespace moetune::reports {

/// Empty for a trial of our own engine. `name`: as Context::name_of, with a capital letter.
std::string engine_settings_box(const store::TrialRow& trial, const std::string& name);

/// Of the trial that is shown, folded; empty where its command is not known.
std::string engine_command_box(const Context& context, const store::TrialRow& trial);

}  // namespace moetune::reports

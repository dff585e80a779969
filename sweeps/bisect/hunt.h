// A whole hunt through commits: chooses the metric to follow and what to run, and says what was
// found.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "sweeps/bisect/vocabulary.h"

namespace moetune::sweeps {

/// Runs until the hunt is over, is asked to stop, or has used up its runs or seconds.
HuntAnswer run_hunt(const HuntSetup& setup, HuntSource& source);

/// The answer as one object: verdict, culprits, runs, builds, seconds, and what a report shows.
nlohmann::json to_json(const HuntAnswer& answer, const HuntSetup& setup);
/// The same for people, several lines.
std::string to_text(const HuntAnswer& answer, const HuntSetup& setup);

}  // namespace moetune::sweeps

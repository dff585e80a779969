// The routing that a trial has recorded in a runs database, for other programs of the same model.
#pragma once

#include <cstdint>
#include <string>

#include "engine/spec/routing_profile.h"
#include "engine/spec/trial_spec.h"

namespace moetune::sweeps {

struct StoredRouting {
  int64_t trial_id = 0;
  spec::RoutingProfile profile;
};

/// Routing from the last trial that has recorded it for this trial's model, batch and sequence
/// length. Throws base::UsageError, which names `database` and what is wrong with it, if there is
/// none.
StoredRouting read_stored_routing(const std::string& database, const spec::TrialSpec& trial);

}  // namespace moetune::sweeps

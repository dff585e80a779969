// The hunts of a database (moetune bisect) as a table and as JSON: what ls prints of them.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "profiler/store/store.h"

namespace moetune::sweeps {

/// One object per hunt: hunt (its id), repository (null for two trial files), good, bad, metric,
/// status, verdict, answer (a sentence), num_runs, started_at, ended_at, command_line; null where
/// unknown.
nlohmann::json hunts_json(const store::Store& store);

/// The same for people, one line per hunt. With a `width`, lines fit.
std::string hunts_text(const store::Store& store, std::optional<size_t> width);

}  // namespace moetune::sweeps

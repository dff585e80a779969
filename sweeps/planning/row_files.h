// Files of measured runs.
#pragma once

#include <string>
#include <vector>

#include "sweeps/planning/published_rows.h"

namespace moetune::sweeps {

/// Reads a JSON array of rows, by path, or - for standard input. Throws base::UsageError.
std::vector<PublishedRow> load_rows(const std::string& path);

}  // namespace moetune::sweeps

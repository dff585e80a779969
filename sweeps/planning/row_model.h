// The model of a row in the words of a config.json: rows have Megatron's, too, and leave out what
// their family has by default.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/spec/source.h"

namespace moetune::sweeps {

/// As spec::model_from_json takes it. What the family's default is taken for is told in `assumed`.
/// Throws base::UsageError, which names `source`, for what no config.json says, and for sizes that
/// are none.
nlohmann::json model_of_row(const nlohmann::json& stated, const spec::Source& source,
                            std::vector<std::string>& assumed);

}  // namespace moetune::sweeps

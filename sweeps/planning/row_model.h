// The model of a row in the words of a config.json: rows have Megatron's, too, and leave out what
// their family has by default.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace moetune::sweeps {

/// As spec::model_from_json takes it. What the family's default is taken for is told in `assumed`.
/// Throws base::UsageError for what no config.json says.
nlohmann::json model_of_row(const nlohmann::json& stated, std::vector<std::string>& assumed);

}  // namespace moetune::sweeps

// The published rows that came with the tests.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "kernels/base/error.h"

namespace moetune::tests {

inline nlohmann::json shipped_row(const std::string& id) {
  static const nlohmann::json rows = nlohmann::json::parse(
      std::ifstream(std::string(MOETUNE_SOURCE_DIR) + "/tests/golden/published/rows.json"));
  for (const nlohmann::json& row : rows) {
    if (row["id"] == id) return row;
  }
  throw base::Error("no row " + id);
}

}  // namespace moetune::tests

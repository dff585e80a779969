// The real traces of other tools that lie beside the checkout, in a folder that is not everywhere.
#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace moetune::tests {

/// The folder with expected.json; empty where there is none.
inline std::string shared_traces() {
  std::filesystem::path folder = MOETUNE_SOURCE_DIR;
  for (int level = 0; level < 3; ++level) {
    folder = folder.parent_path();
    const std::filesystem::path traces = folder / "shared" / "traces";
    if (std::filesystem::exists(traces / "expected.json")) return traces;
  }
  return {};
}

inline nlohmann::json expected_of(const std::string& folder) {
  std::ifstream file(std::filesystem::path(folder) / "expected.json");
  return nlohmann::json::parse(file);
}

}  // namespace moetune::tests

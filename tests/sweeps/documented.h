// Whether what a command printed is what docs/formats.md says it prints.
#pragma once

#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "sweeps/outputs.h"

namespace moetune::tests {

/// Names every key of the JSON that no row has.
inline void check_documented(const std::string& command, const std::string& printed) {
  const nlohmann::json document = nlohmann::json::parse(printed, nullptr, false);
  if (printed.empty()) return;  // it was refused
  BOOST_REQUIRE_MESSAGE(!document.is_discarded(), "moetune " << command << " prints no JSON");
  const bool is_hunts = command == "ls" && !document.empty() && document[0].contains("hunt");
  for (const std::string& key : sweeps::undocumented_keys(is_hunts ? "hunts" : command, document)) {
    BOOST_ERROR("moetune " << command << " prints '" << key << "', which sweeps/outputs.cpp lacks");
  }
}

}  // namespace moetune::tests

// Whether what a command printed is what docs/formats.md says it prints.
#pragma once

#include <boost/test/unit_test.hpp>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

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

/// Names every key of the tables that none of the documents has, of those that `is_asked` for.
inline void check_printed(
    const std::string& command, const std::vector<nlohmann::json>& documents,
    const std::function<bool(const std::string&)>& is_asked = [](const auto&) { return true; }) {
  for (const std::string& key : sweeps::unprinted_keys(command, documents)) {
    if (!is_asked(key)) continue;
    BOOST_ERROR("moetune " << command << " does not print '" << key << "', which the tables have");
  }
}

}  // namespace moetune::tests

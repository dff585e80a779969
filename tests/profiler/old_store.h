// Databases as older versions of moetune wrote them.
#pragma once

#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

#include "profiler/store/db.h"
#include "profiler/store/schema.h"

namespace moetune::tests {

/// An empty one of schema 1 to 5.
inline void make_old_store(const std::string& path, int version) {
  const std::string name = version == 5 ? "schema" : version == 4 ? "schema_4" : "schema_3";
  std::ifstream file(std::string(MOETUNE_SOURCE_DIR) + "/profiler/store/" + name + ".sql");
  std::stringstream schema;
  schema << file.rdbuf();
  store::Database database(path, store::OpenMode::read_write_create);
  std::string text = schema.str();
  if (version < 3) {
    // Traces had no host_work.
    constexpr std::string_view kLater = "kind BETWEEN 0 AND 5";
    text.replace(text.find(kLater), kLater.size(), "kind BETWEEN 0 AND 4");
  }
  // Four walls, where now there are seven.
  constexpr std::string_view kWalls =
      "'communication', 'host', 'pipeline', 'imbalance', 'memory', 'compute', 'unknown'";
  while (version == 5 && text.find(kWalls) != std::string::npos) {
    text.replace(text.find(kWalls), kWalls.size(), "'memory', 'communication', 'host', 'compute'");
  }
  database.execute(text);
  if (version == 1) {
    database.execute("DROP TABLE bisect_run; DROP TABLE bisect_commit; DROP TABLE bisect_hunt");
  }
  database.execute("PRAGMA application_id = " + std::to_string(store::kStoreApplicationId) +
                   "; PRAGMA user_version = " + std::to_string(version));
}

}  // namespace moetune::tests

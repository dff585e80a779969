// Databases as older versions of moetune wrote them.
#pragma once

#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

#include "profiler/store/db.h"
#include "profiler/store/schema.h"

namespace moetune::tests {

/// An empty one of schema 1, 2, 3 or 4.
inline void make_old_store(const std::string& path, int version) {
  std::ifstream file(std::string(MOETUNE_SOURCE_DIR) + "/profiler/store/schema_" +
                     (version == 4 ? "4" : "3") + ".sql");
  std::stringstream schema;
  schema << file.rdbuf();
  store::Database database(path, store::OpenMode::read_write_create);
  std::string text = schema.str();
  if (version < 3) {
    // Traces had no host_work.
    constexpr std::string_view kLater = "kind BETWEEN 0 AND 5";
    text.replace(text.find(kLater), kLater.size(), "kind BETWEEN 0 AND 4");
  }
  database.execute(text);
  if (version == 1) {
    database.execute("DROP TABLE bisect_run; DROP TABLE bisect_commit; DROP TABLE bisect_hunt");
  }
  database.execute("PRAGMA application_id = " + std::to_string(store::kStoreApplicationId) +
                   "; PRAGMA user_version = " + std::to_string(version));
}

}  // namespace moetune::tests

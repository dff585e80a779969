// Databases as older versions of moetune wrote them.
#pragma once

#include <fstream>
#include <sstream>
#include <string>

#include "profiler/store/db.h"
#include "profiler/store/schema.h"

namespace moetune::tests {

/// An empty one of schema 1 or 2.
inline void make_old_store(const std::string& path, int version) {
  std::ifstream file(std::string(MOETUNE_SOURCE_DIR) + "/profiler/store/schema_2.sql");
  std::stringstream schema;
  schema << file.rdbuf();
  store::Database database(path, store::OpenMode::read_write_create);
  database.execute(schema.str());
  if (version == 1) {
    database.execute("DROP TABLE bisect_run; DROP TABLE bisect_commit; DROP TABLE bisect_hunt");
  }
  database.execute("PRAGMA application_id = " + std::to_string(store::kStoreApplicationId) +
                   "; PRAGMA user_version = " + std::to_string(version));
}

}  // namespace moetune::tests

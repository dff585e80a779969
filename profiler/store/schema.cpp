// Creating, checking and migrating schemas; see schema.h.
#include "profiler/store/schema.h"

#include <array>
#include <map>

#include "embedded/kSchemaSql.h"
#include "embedded/kShardSchemaSql.h"
#include "kernels/base/error.h"

namespace moetune::store {
namespace {

std::map<std::string, std::string> definitions(Database& database) {
  std::map<std::string, std::string> result;
  Statement statement(database,
                      "SELECT type || ' ' || name, sql FROM sqlite_schema WHERE sql IS NOT NULL");
  while (statement.step()) {
    result[statement.get_text(0)] = statement.get_text(1);
  }
  return result;
}

std::map<std::string, std::string> expected_definitions(std::string_view schema_sql) {
  Database fresh(":memory:", OpenMode::read_write_create);
  fresh.execute(std::string(schema_sql));
  return definitions(fresh);
}

// Every object of ours must be there as we define it: a view in a table's place, a trigger or a
// generated column could make a plain read or insert run as long as its author likes. Further
// tables, views and indexes of the user are harmless.
void check_definitions(Database& database, const std::map<std::string, std::string>& expected) {
  const auto found = definitions(database);
  for (const auto& [name, sql] : expected) {
    const auto at = found.find(name);
    if (at == found.end() || at->second != sql) {
      throw base::UsageError(fmt::format(
          "{}: its {} is {}; this is not a database that this version of moetune wrote",
          database.path(), name, at == found.end() ? "missing" : "defined in another way"));
    }
  }
  for (const auto& [name, sql] : found) {
    if (name.starts_with("trigger ")) {
      throw base::UsageError(fmt::format(
          "{}: it contains the {}, which moetune did not write; drop it", database.path(), name));
    }
  }
}

// Creates tables that a version adds, as schema.sql defines them now. A later version that changes
// one of them keeps its old text in the migration instead.
void create_tables(Database& database, std::initializer_list<const char*> names) {
  const auto expected = expected_definitions(kSchemaSql);
  for (const char* name : names) {
    Statement taken(database, "SELECT type FROM sqlite_schema WHERE name = ? COLLATE NOCASE");
    taken.bind(1, name);
    if (taken.step()) {
      throw base::UsageError(
          fmt::format("{}: it contains the {} {}, which moetune did not write; rename or drop it",
                      database.path(), taken.get_text(0), name));
    }
    database.execute(expected.at(std::string("table ") + name));
  }
}

// 3: the host's work in traces, a kind of record that version 2 refused.
void widen_trace_kinds(Database& database) {
  // Before anything in it is read: what a foreign hand defined in its place may run for ever.
  constexpr std::string_view kNow = "BETWEEN 0 AND 5";
  std::string before = expected_definitions(kSchemaSql).at("table trace_record");
  before.replace(before.find(kNow), kNow.size(), "BETWEEN 0 AND 4");
  check_definitions(database, {{"table trace_record", before}});
  database.execute(
      "CREATE TEMP TABLE old_trace_record AS SELECT * FROM main.trace_record;"
      "DROP TABLE main.trace_record");
  create_tables(database, {"trace_record"});
  database.execute(
      "INSERT INTO main.trace_record SELECT * FROM old_trace_record;"
      "DROP TABLE old_trace_record");
}

/// Step i brings version i + 1 to version i + 2. A migration must leave tables whose definition
/// equals schema.sql's: rebuild a table instead of altering it.
using Migration = void (*)(Database&);
constexpr std::array<Migration, kSchemaVersion - 1> kMigrations = {
    // 2: hunts.
    [](Database& database) {
      create_tables(database, {"bisect_hunt", "bisect_commit", "bisect_run"});
    },
    widen_trace_kinds,
};

void check_store_definitions(Database& database) {
  static const auto kExpected = expected_definitions(kSchemaSql);
  check_definitions(database, kExpected);
}

int64_t num_objects(Database& database) {
  return database.query_int("SELECT count(*) FROM sqlite_schema");
}

// The file's version; 0 for an empty file. Refuses other programs' files and newer schemas.
int checked_version(Database& database) {
  const int64_t version = database.query_int("PRAGMA user_version");
  const int64_t application = database.query_int("PRAGMA application_id");
  if (application == 0 && version == 0 && num_objects(database) == 0) {
    return 0;
  }
  if (application == kShardApplicationId) {
    throw base::UsageError(fmt::format(
        "{}: this is the shard of one trial; name the database of the sweep", database.path()));
  }
  if (application != kStoreApplicationId || version < 1) {
    throw base::UsageError(
        fmt::format("{}: this SQLite file was not written by moetune; name a file written by "
                    "'moetune sweep', or "
                    "one that does not exist yet",
                    database.path()));
  }
  if (version > kSchemaVersion) {
    throw base::UsageError(
        fmt::format("{}: its schema is version {} and this program knows versions up to {}; use "
                    "the moetune that "
                    "wrote it, or a newer one",
                    database.path(), version, kSchemaVersion));
  }
  return static_cast<int>(version);
}

}  // namespace

void create_or_check_store(Database& database, bool may_create) {
  int version = checked_version(database);
  if (version == 0) {
    if (!may_create) {
      throw base::UsageError(fmt::format(
          "{}: the database is empty; name a file written by 'moetune sweep'", database.path()));
    }
    Transaction transaction(database);
    version = checked_version(database);  // another process may have been faster
    if (version == 0) {
      database.execute(std::string(kSchemaSql));
      database.execute(fmt::format("PRAGMA application_id = {}; PRAGMA user_version = {}",
                                   kStoreApplicationId, kSchemaVersion));
      transaction.commit();
      return;
    }
  }
  if (version < kSchemaVersion) {
    throw base::UsageError(fmt::format(
        "{}: its schema is version {} and this program needs {}; run 'moetune db upgrade'",
        database.path(), version, kSchemaVersion));
  }
  check_store_definitions(database);
}

int migrate_store(Database& database) {
  Transaction transaction(database);
  const int version = checked_version(database);
  if (version == 0) {
    throw base::UsageError(fmt::format(
        "{}: the database is empty; name a file written by 'moetune sweep'", database.path()));
  }
  for (size_t i = static_cast<size_t>(version) - 1; i < kMigrations.size(); ++i) {
    kMigrations[i](database);
  }
  database.execute(fmt::format("PRAGMA user_version = {}", kSchemaVersion));
  // A file that is not what its version says stays as it was.
  check_store_definitions(database);
  transaction.commit();
  return version;
}

void create_shard(Database& database) {
  Transaction transaction(database);
  database.execute(std::string(kShardSchemaSql));
  database.execute(fmt::format("PRAGMA application_id = {}; PRAGMA user_version = {}",
                               kShardApplicationId, kShardSchemaVersion));
  transaction.commit();
}

void check_shard(Database& database) {
  const int64_t application = database.query_int("PRAGMA application_id");
  const int64_t version = database.query_int("PRAGMA user_version");
  if (application != kShardApplicationId || version != kShardSchemaVersion) {
    throw base::UsageError(fmt::format("{}: this is not a trial's shard of schema version {}",
                                       database.path(), kShardSchemaVersion));
  }
  static const auto kExpected = expected_definitions(kShardSchemaSql);
  check_definitions(database, kExpected);
}

}  // namespace moetune::store

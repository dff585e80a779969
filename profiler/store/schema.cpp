// The statements that create the tables, compare a file's with them, and bring older ones over.
#include "profiler/store/schema.h"

#include <array>
#include <map>

#include "embedded/kSchema3Sql.h"
#include "embedded/kSchema4Sql.h"
#include "embedded/kSchemaSql.h"
#include "embedded/kShardSchemaSql.h"
#include "kernels/base/error.h"
#include "profiler/store/internal.h"
#include "profiler/store/trace_columns.h"

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

std::string shard_schema() { return std::string(kShardSchemaSql) + create_in_shard(); }

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

// Creates tables that a version adds, as `schema_sql` defines them: schema.sql, or that of an older
// version where a later one changes them.
void create_tables(Database& database, std::initializer_list<const char*> names,
                   std::string_view schema_sql = kSchemaSql) {
  const auto expected = expected_definitions(schema_sql);
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
  std::string before = expected_definitions(kSchema4Sql).at("table trace_record");
  before.replace(before.find(kNow), kNow.size(), "BETWEEN 0 AND 4");
  check_definitions(database, {{"table trace_record", before}});
  database.execute(
      "CREATE TEMP TABLE old_trace_record AS SELECT * FROM main.trace_record;"
      "DROP TABLE main.trace_record");
  create_tables(database, {"trace_record"}, kSchema4Sql);
  database.execute(
      "INSERT INTO main.trace_record SELECT * FROM old_trace_record;"
      "DROP TABLE old_trace_record");
}

/// A table of an older version, copied to a temporary one and dropped, so that it can be created
/// anew by its own name and word for word (renaming one would write its new name into others).
void set_aside(Database& database, const char* name) {
  database.execute(fmt::format(
      "CREATE TEMP TABLE old_{0} AS SELECT * FROM main.{0}; DROP TABLE main.{0}", name));
}

// 4: environments are kept, trials have measurements, and a sweep says which trials matter.
void add_measurements(Database& database) {
  // Before anything in it is read: nothing that a foreign hand defined may run while it is.
  check_definitions(database, expected_definitions(kSchema3Sql));
  constexpr auto kRebuilt =
      std::to_array<const char*>({"sweep", "environment", "trial", "decision"});
  for (const char* name : kRebuilt) set_aside(database, name);
  create_tables(database,
                {"sweep", "environment", "environment_value", "trial", "measurement", "decision"},
                kSchema4Sql);
  database.execute(expected_definitions(kSchema4Sql).at("index trial_by_hash"));
  // The winner as the reports of that version chose it: the last long run that held, else what the
  // search kept last, else the fastest. The reference run is no candidate.
  database.execute(R"(
    CREATE TEMP TABLE candidate AS
      SELECT id, sweep_id, ordinal, phase, step_ns FROM old_trial
      WHERE status = 'ok' AND (phase <> 'contract' OR is_baseline);
    INSERT INTO sweep
      SELECT id, name, config_hash, config_json, contract_json, model_id, hardware_id, status,
             started_at, ended_at, command_line, tool_version, tool_commit,
             coalesce(
               (SELECT c.id FROM candidate c
                WHERE c.sweep_id = s.id AND c.phase = 'validate' AND NOT EXISTS (
                  SELECT 1 FROM old_decision d WHERE d.trial_id = c.id AND d.kind = 'rejected')
                ORDER BY c.ordinal DESC LIMIT 1),
               (SELECT c.id FROM old_decision d JOIN candidate c ON c.id = d.trial_id
                WHERE d.sweep_id = s.id AND c.sweep_id = s.id AND d.kind = 'kept'
                ORDER BY d.ordinal DESC LIMIT 1),
               (SELECT c.id FROM candidate c WHERE c.sweep_id = s.id AND c.step_ns IS NOT NULL
                ORDER BY c.step_ns, c.ordinal LIMIT 1)),
             (SELECT t.id FROM old_trial t WHERE t.sweep_id = s.id AND t.is_baseline
              ORDER BY t.ordinal LIMIT 1),
             (SELECT c.id FROM candidate c WHERE c.sweep_id = s.id ORDER BY c.ordinal LIMIT 1)
      FROM old_sweep s;
    INSERT INTO environment
      SELECT id, id, 1, started_at FROM old_sweep s
      WHERE EXISTS (SELECT 1 FROM old_environment e WHERE e.sweep_id = s.id);
    INSERT INTO environment_value SELECT sweep_id, ordinal, name, value FROM old_environment;
    INSERT INTO trial
      SELECT id, sweep_id, ordinal, spec_hash, status, reason, phase, spec_json, wall,
             predicted_peak_bytes, peak_bytes, predicted_step_ns, step_ns, step_ns_low,
             step_ns_high, tokens_per_s, loss_final, started_at, ended_at, duration_ns, lease_pid,
             lease_host, lease_start, num_attempts
      FROM old_trial;
    INSERT INTO decision
      SELECT id, sweep_id, ordinal, phase, kind, trial_id, baseline_trial_id, wall, remedy, knob,
             value_before, value_after, gain_ratio, NULL, NULL, noise_ratio, text, evidence_json
      FROM old_decision;
  )");
  // What ran was measured once, by what the sweep said last of its build; the program that ran is
  // not known.
  database.execute(R"(
    INSERT INTO measurement
      SELECT t.id, 1, 'first', t.status, t.reason, 1,
             (SELECT count(*) FROM step s WHERE s.trial_id = t.id AND NOT is_warmup AND
              NOT is_traced),
             '[' || coalesce((SELECT group_concat(step_ns, ',') FROM (
               SELECT s.step_ns FROM step s
               WHERE s.trial_id = t.id AND NOT is_warmup AND NOT is_traced ORDER BY s.step)), '')
               || ']',
             '[]', NULL, t.step_ns, t.step_ns_low, t.step_ns_high, t.started_at,
             coalesce(t.ended_at, t.started_at), t.duration_ns, e.id,
             coalesce((SELECT value FROM environment_value v
                       WHERE v.environment_id = e.id AND v.name = 'commit' LIMIT 1),
                      w.tool_commit)
      FROM trial t JOIN sweep w ON w.id = t.sweep_id
      LEFT JOIN environment e ON e.sweep_id = t.sweep_id
      WHERE t.num_attempts > 0 AND
            t.status IN ('ok', 'invalid', 'oom', 'wrong', 'failed', 'crashed', 'hung');
    DROP TABLE candidate;
  )");
  for (const char* name : kRebuilt) database.execute(fmt::format("DROP TABLE temp.old_{}", name));
}

// 5: the records of traces are packed.
void pack_traces_of_version_4(Database& database) {
  check_definitions(database, expected_definitions(kSchema4Sql));
  create_tables(database, {"trace_blob"});
  pack_version_4(database);
  database.execute("DROP TABLE main.trace_record");
}

// 6: the walls of verdicts by causes, of which version 5 knew four.
void widen_walls(Database& database) {
  constexpr std::string_view kNow =
      "wall IN ('communication', 'host', 'pipeline', 'imbalance', 'memory', 'compute', 'unknown')";
  constexpr std::string_view kBefore = "wall IN ('memory', 'communication', 'host', 'compute')";
  std::string version_5(kSchemaSql);
  for (size_t at = version_5.find(kNow); at != std::string::npos; at = version_5.find(kNow, at)) {
    version_5.replace(at, kNow.size(), kBefore);
  }
  check_definitions(database, expected_definitions(version_5));
  for (const char* name : {"trial", "decision"}) {
    set_aside(database, name);
    create_tables(database, {name});
    database.execute(fmt::format(
        "INSERT INTO main.{0} SELECT * FROM temp.old_{0}; DROP TABLE temp.old_{0}", name));
  }
  database.execute(expected_definitions(kSchemaSql).at("index trial_by_hash"));
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
    add_measurements,
    pack_traces_of_version_4,
    widen_walls,
};

/// Foreign keys are not enforced while tables are rebuilt: dropping one would delete what refers to
/// it. They are checked at the end instead.
class WithoutForeignKeys {
 public:
  explicit WithoutForeignKeys(Database& database) : database_(database) {
    database_.execute("PRAGMA foreign_keys = off");
  }
  ~WithoutForeignKeys() {
    try {
      database_.execute("PRAGMA foreign_keys = on");
    } catch (const base::Error&) {
      // The connection is of no more use; what was being done has said so.
    }
  }
  WithoutForeignKeys(const WithoutForeignKeys&) = delete;
  WithoutForeignKeys& operator=(const WithoutForeignKeys&) = delete;

 private:
  Database& database_;
};

void check_foreign_keys(Database& database) {
  Statement broken(database, "SELECT \"table\", parent FROM pragma_foreign_key_check LIMIT 1");
  if (broken.step()) {
    throw base::UsageError(
        fmt::format("{}: a row of its table {} refers to one of {} that is not "
                    "there; this is not a database that moetune wrote",
                    database.path(), broken.get_text(0), broken.get_text(1)));
  }
}

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
  const WithoutForeignKeys unchecked(database);
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
  check_foreign_keys(database);
  transaction.commit();
  return version;
}

void create_shard(Database& database) {
  Transaction transaction(database);
  database.execute(shard_schema());
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
  static const auto kExpected = expected_definitions(shard_schema());
  check_definitions(database, kExpected);
}

}  // namespace moetune::store

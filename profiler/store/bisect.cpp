// The store's tables of hunts: written, continued and read back.
#include "profiler/store/bisect.h"

#include <cmath>
#include <limits>

#include "kernels/base/error.h"
#include "profiler/store/db.h"
#include "profiler/store/internal.h"
#include "profiler/store/store.h"

namespace moetune::store {
namespace {

/// Commits wait for the disk while this lives: a measurement may have cost minutes, a sync costs
/// milliseconds.
class SyncedCommits {
 public:
  explicit SyncedCommits(Database& database) : database_(database) {
    database_.execute("PRAGMA synchronous = full");
  }
  ~SyncedCommits() {
    try {
      database_.execute("PRAGMA synchronous = normal");
    } catch (const base::Error&) {
      // The connection stays as safe as it is.
    }
  }
  SyncedCommits(const SyncedCommits&) = delete;
  SyncedCommits& operator=(const SyncedCommits&) = delete;

 private:
  Database& database_;
};

std::optional<double> finite(double value) {
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

std::optional<double> finite(const std::optional<double>& value) {
  return value ? finite(*value) : std::nullopt;
}

double seconds_from(const Statement& row, int column) {
  const double seconds = row.get_double(column);
  return std::isfinite(seconds) && seconds > 0 ? seconds : 0;
}

int position_from(const Statement& row, int column, const std::string& path) {
  const int64_t position = row.get_int(column);
  if (position < 0 || position > std::numeric_limits<int>::max()) {
    throw base::Error(
        fmt::format("{}: a hunt has a commit at position {}, expected one from 0; the database was "
                    "changed by another program: restore it, or start a new one",
                    path, position));
  }
  return static_cast<int>(position);
}

}  // namespace

int64_t Store::open_bisect(const BisectRow& hunt) {
  Transaction transaction(*database_);
  int64_t id = 0;
  {
    Statement select(*database_, "SELECT id FROM bisect_hunt WHERE config_hash = ?");
    select.bind(1, hunt.config_hash);
    if (select.step()) {
      id = select.get_int(0);
    }
  }
  if (id != 0) {
    Statement(*database_, "UPDATE bisect_hunt SET status = 'running', ended_at = NULL WHERE id = ?")
        .bind(1, id)
        .run();
  } else {
    Statement(*database_,
              "INSERT INTO bisect_hunt (config_hash, config_json, repository, good, bad, metric, "
              "status, command_line, tool_version, tool_commit, started_at) "
              "VALUES (?, ?, ?, ?, ?, ?, 'running', ?, ?, ?, ?)")
        .bind_all(hunt.config_hash, hunt.config_json, hunt.repository, hunt.good, hunt.bad,
                  hunt.metric, hunt.command_line, hunt.tool_version, hunt.tool_commit, now_utc())
        .run();
    id = database_->last_insert_rowid();
  }
  transaction.commit();
  return id;
}

void Store::set_bisect_commits(int64_t hunt_id, const std::vector<BisectCommitRow>& commits) {
  Transaction transaction(*database_);
  Statement(*database_, "DELETE FROM bisect_commit WHERE hunt_id = ?").bind(1, hunt_id).run();
  Statement insert(*database_, "INSERT INTO bisect_commit VALUES (?, ?, ?, ?, ?, ?)");
  for (const BisectCommitRow& commit : commits) {
    insert
        .bind_all(hunt_id, commit.position, commit.commit_id, commit.subject, commit.author,
                  commit.author_date)
        .run();
  }
  transaction.commit();
}

void Store::add_bisect_run(int64_t hunt_id, const BisectRunRow& run) {
  const SyncedCommits synced(*database_);
  Transaction transaction(*database_);
  Statement(*database_,
            "INSERT INTO bisect_run (hunt_id, ordinal, position, \"key\", purpose, status, value, "
            "metrics_json, message, build_seconds, run_seconds, started_at) "
            "SELECT ?1, CASE WHEN ?2 > 0 THEN ?2 ELSE (SELECT coalesce(max(ordinal), 0) + 1 "
            "FROM bisect_run WHERE hunt_id = ?1) END, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12")
      .bind_all(hunt_id, run.ordinal, run.position, run.key, run.purpose, run.status,
                finite(run.value), run.metrics_json, run.message, finite(run.build_seconds),
                finite(run.run_seconds), run.started_at.empty() ? now_utc() : run.started_at)
      .run();
  transaction.commit();
}

void Store::finish_bisect(int64_t hunt_id, SearchStatus status, const std::string& verdict,
                          const std::string& result_json) {
  Statement(*database_,
            "UPDATE bisect_hunt SET status = ?, verdict = ?, result_json = ?, ended_at = ? "
            "WHERE id = ?")
      .bind_all(
          name_of(status), verdict, result_json,
          status == SearchStatus::running ? std::optional<std::string>() : std::optional(now_utc()),
          hunt_id)
      .run();
  MOETUNE_CHECK(database_->num_changes() == 1, "{}: no hunt {}", path(), hunt_id);
}

std::vector<BisectRow> Store::read_bisects() const {
  std::vector<BisectRow> hunts;
  Statement statement(*database_,
                      "SELECT id, config_hash, config_json, repository, good, bad, metric, status, "
                      "verdict, result_json, command_line, tool_version, tool_commit, started_at, "
                      "ended_at FROM bisect_hunt ORDER BY id");
  while (statement.step()) {
    Columns c(statement);
    BisectRow& row = hunts.emplace_back();
    row.id = c.integer();
    row.config_hash = c.text();
    row.config_json = c.text();
    row.repository = c.text();
    row.good = c.text();
    row.bad = c.text();
    row.metric = c.text();
    row.status = search_status_of(c.text());
    row.verdict = c.text();
    row.result_json = c.text();
    row.command_line = c.text();
    row.tool_version = c.text();
    row.tool_commit = c.text();
    row.started_at = c.text();
    row.ended_at = c.text();
  }
  return hunts;
}

std::vector<BisectCommitRow> Store::read_bisect_commits(int64_t hunt_id) const {
  std::vector<BisectCommitRow> commits;
  Statement statement(*database_,
                      "SELECT position, commit_id, subject, author, author_date FROM bisect_commit "
                      "WHERE hunt_id = ? ORDER BY position");
  statement.bind(1, hunt_id);
  while (statement.step()) {
    commits.push_back({position_from(statement, 0, path()), statement.get_text(1),
                       statement.get_text(2), statement.get_text(3), statement.get_text(4)});
  }
  return commits;
}

namespace {

constexpr const char* kSelectRuns =
    "SELECT ordinal, position, \"key\", purpose, status, value, metrics_json, message, "
    "build_seconds, run_seconds, started_at FROM bisect_run ";

std::vector<BisectRunRow> runs_from(Statement& statement, const std::string& path) {
  std::vector<BisectRunRow> runs;
  while (statement.step()) {
    runs.push_back({statement.get_int(0), position_from(statement, 1, path), statement.get_text(2),
                    statement.get_text(3), statement.get_text(4),
                    finite(statement.get_optional_double(5)), statement.get_text(6),
                    statement.get_text(7), seconds_from(statement, 8), seconds_from(statement, 9),
                    statement.get_text(10)});
  }
  return runs;
}

}  // namespace

std::vector<BisectRunRow> Store::read_bisect_runs(int64_t hunt_id) const {
  Statement statement(*database_, std::string(kSelectRuns) + "WHERE hunt_id = ? ORDER BY ordinal");
  statement.bind(1, hunt_id);
  return runs_from(statement, path());
}

std::vector<BisectRunRow> Store::read_bisect_runs_of_others(int64_t hunt_id,
                                                            const std::string& key) const {
  Statement statement(
      *database_, std::string(kSelectRuns) +
                      "WHERE hunt_id <> ? AND \"key\" = ? ORDER BY started_at, hunt_id, ordinal");
  statement.bind(1, hunt_id).bind(2, key);
  return runs_from(statement, path());
}

}  // namespace moetune::store

// Opening the runs database, and its sweeps and decisions; trials are in store_trials.cpp, their
// measurements in store_measurements.cpp, reading in store_read.cpp.
#include "profiler/store/store.h"

#include <fmt/chrono.h>

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <utility>

#include "kernels/base/error.h"
#include "kernels/base/utf8.h"
#include "profiler/store/db.h"
#include "profiler/store/internal.h"
#include "profiler/store/schema.h"

namespace moetune::store {
namespace {

void check_exists(const std::string& path) {
  std::error_code ignored;  // also of a name that is too long: no file has it
  if (!std::filesystem::exists(path, ignored)) {
    constexpr size_t kMostBytes = 1000;
    throw base::UsageError(
        fmt::format("{}: there is no such database; name a file written by 'moetune sweep'",
                    base::shortened(path, kMostBytes)));
  }
}

// Id of the row with this name and text in `model` or `hardware`, inserted when it is new.
int64_t id_of(Database& database, const char* table, const std::string& name,
              const std::string& json) {
  Statement(database, fmt::format("INSERT OR IGNORE INTO {} (name, json) VALUES (?, ?)", table))
      .bind_all(name, json)
      .run();
  Statement select(database, fmt::format("SELECT id FROM {} WHERE name = ? AND json = ?", table));
  select.bind_all(name, json);
  MOETUNE_CHECK(select.step(), "{}: no row for {} '{}'", database.path(), table, name);
  return select.get_int(0);
}

}  // namespace

std::string now_utc() {
  using std::chrono::milliseconds;
  const auto now = std::chrono::time_point_cast<milliseconds>(std::chrono::system_clock::now());
  const auto ms = now.time_since_epoch().count() % 1000;
  return fmt::format("{:%FT%T}.{:03}Z", fmt::gmtime(std::chrono::system_clock::to_time_t(now)), ms);
}

double seconds_of(const std::string& utc) {
  std::tm time{};
  const char* rest = strptime(utc.c_str(), "%Y-%m-%dT%H:%M:%S", &time);
  if (rest == nullptr) return 0.0;
  const auto seconds = static_cast<double>(timegm(&time));
  const double fraction = *rest == '.' ? std::strtod(rest, nullptr) : 0.0;
  return fraction > 0 && fraction < 1 ? seconds + fraction : seconds;
}

Store::Store(std::unique_ptr<Database> database) : database_(std::move(database)) {}
Store::Store(Store&&) noexcept = default;
Store& Store::operator=(Store&& other) noexcept {
  std::swap(database_, other.database_);
  return *this;
}

Store::~Store() {
  // At rest the database is one file that can be copied, and read from a folder that may not be
  // written.
  if (database_) {
    database_->leave_wal();
  }
}

Store Store::open(const std::string& path) {
  auto database = std::make_unique<Database>(path, OpenMode::read_write_create);
  create_or_check_store(*database, true);
  // WAL lets the report read while the sweep writes, and makes a commit one append. A killed
  // process loses nothing (the log is in the operating system's hands); only a loss of power could
  // take the last commits, never the file.
  database->execute("PRAGMA journal_mode = wal; PRAGMA synchronous = normal");
  return Store(std::move(database));
}

Store Store::open_read_only(const std::string& path) {
  check_exists(path);
  auto database = std::make_unique<Database>(path, OpenMode::read_only);
  create_or_check_store(*database, false);
  return Store(std::move(database));
}

int Store::upgrade(const std::string& path) {
  check_exists(path);
  Database database(path, OpenMode::read_write);
  const int version = migrate_store(database);
  if (version < kSchemaVersion) {
    try {
      database.execute("VACUUM");  // gives back what tables of old have left empty
    } catch (const base::Error&) {
      // It needs room for a copy; the file is upgraded all the same.
    }
  }
  return version;
}

int Store::schema_version() { return kSchemaVersion; }

Database& Store::database() const { return *database_; }

const std::string& Store::path() const { return database_->path(); }

Store::OpenedSweep Store::create_or_resume_sweep(const SweepRow& sweep) {
  Transaction transaction(*database_);
  OpenedSweep opened;
  {
    Statement select(*database_, "SELECT id FROM sweep WHERE config_hash = ?");
    select.bind(1, sweep.config_hash);
    if (select.step()) {
      opened = {select.get_int(0), true};
    }
  }
  if (opened.is_resumed) {
    Statement(*database_, "UPDATE sweep SET status = 'running', ended_at = NULL WHERE id = ?")
        .bind(1, opened.id)
        .run();
  } else {
    Statement(*database_,
              "INSERT INTO sweep (name, config_hash, config_json, contract_json, model_id, "
              "hardware_id, status, started_at, command_line, tool_version, tool_commit) "
              "VALUES (?, ?, ?, ?, ?, ?, 'running', ?, ?, ?, ?)")
        .bind_all(sweep.name, sweep.config_hash, sweep.config_json, sweep.contract_json,
                  id_of(*database_, "model", sweep.model_name, sweep.model_json),
                  id_of(*database_, "hardware", sweep.hardware_name, sweep.hardware_json),
                  now_utc(), sweep.command_line, sweep.tool_version, sweep.tool_commit)
        .run();
    opened.id = database_->last_insert_rowid();
  }
  transaction.commit();
  return opened;
}

void Store::finish_sweep(int64_t sweep_id, SearchStatus status) {
  Statement(*database_, "UPDATE sweep SET status = ?, ended_at = ? WHERE id = ?")
      .bind_all(name_of(status), now_utc(), sweep_id)
      .run();
  MOETUNE_CHECK(database_->num_changes() == 1, "{}: no sweep {}", path(), sweep_id);
}

void Store::set_landmarks(int64_t sweep_id, const Landmarks& landmarks) {
  Statement(*database_,
            "UPDATE sweep SET winner_trial = ?, baseline_trial = ?, first_fit_trial = ? "
            "WHERE id = ?")
      .bind_all(landmarks.winner_trial, landmarks.baseline_trial, landmarks.first_fit_trial,
                sweep_id)
      .run();
  MOETUNE_CHECK(database_->num_changes() == 1, "{}: no sweep {}", path(), sweep_id);
}

void Store::add_decision(const DecisionRow& decision) {
  Statement statement(
      *database_,
      "INSERT INTO decision (sweep_id, ordinal, phase, kind, trial_id, baseline_trial_id, wall, "
      "remedy, knob, value_before, value_after, gain_ratio, gain_low_ratio, gain_high_ratio, "
      "noise_ratio, text, evidence_json) "
      "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
      "ON CONFLICT (sweep_id, ordinal) DO UPDATE SET phase = excluded.phase, kind = excluded.kind, "
      "trial_id = excluded.trial_id, baseline_trial_id = excluded.baseline_trial_id, "
      "wall = excluded.wall, remedy = excluded.remedy, knob = excluded.knob, "
      "value_before = excluded.value_before, value_after = excluded.value_after, "
      "gain_ratio = excluded.gain_ratio, gain_low_ratio = excluded.gain_low_ratio, "
      "gain_high_ratio = excluded.gain_high_ratio, noise_ratio = excluded.noise_ratio, "
      "text = excluded.text, evidence_json = excluded.evidence_json");
  statement.bind_all(decision.sweep_id, decision.ordinal, decision.phase, name_of(decision.kind),
                     decision.trial_id, decision.baseline_trial_id);
  statement.bind_text_or_null(7, decision.wall)
      .bind(8, decision.remedy)
      .bind(9, decision.knob)
      .bind(10, decision.value_before)
      .bind(11, decision.value_after)
      .bind(12, decision.gain_ratio)
      .bind(13, decision.gain_low_ratio)
      .bind(14, decision.gain_high_ratio)
      .bind(15, decision.noise_ratio)
      .bind(16, decision.text)
      .bind(17, decision.evidence_json)
      .run();
}

void Store::drop_decisions(int64_t sweep_id, int64_t first_ordinal) {
  Statement(*database_, "DELETE FROM decision WHERE sweep_id = ? AND ordinal >= ?")
      .bind_all(sweep_id, first_ordinal)
      .run();
}

}  // namespace moetune::store

// Where and how often trials were measured: environments and measurements (store.h).
#include <algorithm>
#include <limits>

#include "kernels/base/error.h"
#include "profiler/store/db.h"
#include "profiler/store/internal.h"
#include "profiler/store/store.h"

namespace moetune::store {
namespace {

constexpr const char* kSelectMeasurement =
    "SELECT m.trial_id, attempt, purpose, m.status, m.reason, is_counted, num_steps, samples, "
    "played, "
    "probe_ns, m.step_ns, m.step_ns_low, m.step_ns_high, window_start, window_end, m.duration_ns, "
    "environment_id, \"commit\" FROM measurement m ";

MeasurementRow measurement_from(const Statement& statement) {
  Columns c(statement);
  MeasurementRow row;
  row.trial_id = c.integer();
  row.attempt = c.integer();
  row.purpose = c.text();
  row.status = c.text();
  row.reason = c.text();
  row.is_counted = c.boolean();
  row.num_steps = c.integer();
  row.samples_ns = list_from(c.text());
  row.played_ns = list_from(c.text());
  row.probe_ns = c.optional_integer();
  row.step_ns = c.optional_integer();
  row.step_ns_low = c.optional_integer();
  row.step_ns_high = c.optional_integer();
  row.window_start = c.text();
  row.window_end = c.text();
  row.duration_ns = c.optional_integer();
  row.environment_id = c.optional_integer();
  row.commit = c.text();
  return row;
}

std::vector<MeasurementRow> measurements_of(Statement& statement) {
  std::vector<MeasurementRow> rows;
  while (statement.step()) rows.push_back(measurement_from(statement));
  return rows;
}

std::vector<NamedText> values_of(Database& database, int64_t environment_id) {
  std::vector<NamedText> values;
  Statement select(database,
                   "SELECT name, value FROM environment_value WHERE environment_id = ? "
                   "ORDER BY ordinal");
  select.bind(1, environment_id);
  while (select.step()) values.push_back({select.get_text(0), select.get_text(1)});
  return values;
}

std::vector<EnvironmentRow> environments_of(Database& database, int64_t sweep_id) {
  std::vector<EnvironmentRow> rows;
  Statement select(database,
                   "SELECT id, ordinal, started_at FROM environment WHERE sweep_id = ? "
                   "ORDER BY ordinal");
  select.bind(1, sweep_id);
  while (select.step()) {
    rows.push_back({select.get_int(0), select.get_int(1), select.get_text(2), {}});
  }
  for (EnvironmentRow& row : rows) row.values = values_of(database, row.id);
  return rows;
}

bool are_equal(const std::vector<NamedText>& a, const std::vector<NamedText>& b) {
  return std::ranges::equal(a, b, [](const NamedText& x, const NamedText& y) {
    return x.name == y.name && x.value == y.value;
  });
}

const EnvironmentRow* by_id(const std::vector<EnvironmentRow>& rows, std::optional<int64_t> id) {
  const auto found = std::ranges::find_if(rows, [&](const auto& row) { return row.id == id; });
  return found == rows.end() ? nullptr : &*found;
}

int64_t sweep_of(Database& database, int64_t trial_id) {
  Statement select(database, "SELECT sweep_id FROM trial WHERE id = ?");
  select.bind(1, trial_id);
  MOETUNE_CHECK(select.step(), "{}: no trial {}", database.path(), trial_id);
  return select.get_int(0);
}

void stop_counting(Database& database, int64_t trial_id, int64_t attempt) {
  Statement(database, "UPDATE measurement SET is_counted = 0 WHERE trial_id = ? AND attempt = ?")
      .bind_all(trial_id, attempt)
      .run();
}

}  // namespace

std::string EnvironmentRow::value(std::string_view name) const {
  const auto found = std::ranges::find(values, name, &NamedText::name);
  return found == values.end() ? std::string() : found->value;
}

bool are_comparable(const EnvironmentRow& a, const EnvironmentRow& b) {
  return std::ranges::all_of(kEnvironmentIdentity,
                             [&](std::string_view name) { return a.value(name) == b.value(name); });
}

int64_t write_measurement(Database& database, int64_t trial_id, const std::string& started_at,
                          const TrialResult& result, const std::string& status,
                          const std::string& reason) {
  const std::vector<EnvironmentRow> environments =
      environments_of(database, sweep_of(database, trial_id));
  const EnvironmentRow* own = result.environment_id  ? by_id(environments, result.environment_id)
                              : environments.empty() ? nullptr
                                                     : &environments.back();
  Statement select(database, std::string(kSelectMeasurement) + "WHERE trial_id = ?");
  select.bind(1, trial_id);
  int64_t attempt = 1;
  for (const MeasurementRow& earlier : measurements_of(select)) {
    MOETUNE_CHECK(earlier.attempt < std::numeric_limits<int64_t>::max(),
                  "{}: trial {} has a measurement numbered {}", database.path(), trial_id,
                  earlier.attempt);
    attempt = std::max(attempt, earlier.attempt + 1);
    const EnvironmentRow* other = by_id(environments, earlier.environment_id);
    const bool is_same = own == other || (own && other && are_comparable(*own, *other));
    if (!is_same) stop_counting(database, trial_id, earlier.attempt);
  }
  Statement insert(
      database,
      "INSERT INTO measurement (trial_id, attempt, purpose, status, reason, is_counted, num_steps, "
      "samples, step_ns, step_ns_low, step_ns_high, window_start, window_end, duration_ns, "
      "environment_id, \"commit\", played, probe_ns) VALUES (?1, ?2, ?3, ?4, ?5, 1, ?6, ?7, ?8, "
      "?9, "
      "?10, ?11, ?12, "
      "CAST(round((julianday(?12) - julianday(?11)) * 86400000) AS INTEGER) * 1000000, ?13, ?14, "
      "?15, ?16)");
  insert
      .bind_all(trial_id, attempt, result.purpose, status, reason, result.num_steps,
                list_text(result.samples_ns), result.step_ns, result.step_ns_low,
                result.step_ns_high, started_at, now_utc(),
                own ? std::optional(own->id) : std::nullopt, own ? own->value("commit") : "",
                list_text(result.played_ns), result.probe_ns)
      .run();
  return attempt;
}

int64_t Store::add_measurement(int64_t trial_id, const std::string& started_at,
                               const TrialResult& result, const std::optional<TrialSpeed>& speed) {
  Transaction transaction(*database_);
  const int64_t attempt =
      write_measurement(*database_, trial_id, started_at, result, result.status, result.reason);
  Statement(*database_, "UPDATE trial SET num_attempts = num_attempts + 1 WHERE id = ?")
      .bind(1, trial_id)
      .run();
  if (speed) {
    Statement(*database_,
              "UPDATE trial SET step_ns = ?, step_ns_low = ?, step_ns_high = ?, tokens_per_s = ? "
              "WHERE id = ?")
        .bind_all(speed->step_ns, speed->step_ns_low, speed->step_ns_high, speed->tokens_per_s,
                  trial_id)
        .run();
  }
  transaction.commit();
  return attempt;
}

void Store::add_text(int64_t trial_id, const NamedText& text) {
  Transaction transaction(*database_);
  append_texts(*database_, trial_id, {text});
  transaction.commit();
}

int64_t Store::set_environment(int64_t sweep_id, const std::vector<NamedText>& values) {
  Transaction transaction(*database_);
  const std::vector<EnvironmentRow> known = environments_of(*database_, sweep_id);
  if (!known.empty() && are_equal(known.back().values, values)) return known.back().id;
  MOETUNE_CHECK(known.empty() || known.back().ordinal < std::numeric_limits<int64_t>::max(),
                "{}: sweep {} has an environment numbered {}", database_->path(), sweep_id,
                known.back().ordinal);
  Statement(*database_, "INSERT INTO environment (sweep_id, ordinal, started_at) VALUES (?, ?, ?)")
      .bind_all(sweep_id, known.empty() ? int64_t{1} : known.back().ordinal + 1, now_utc())
      .run();
  const int64_t id = database_->last_insert_rowid();
  Statement insert(*database_, "INSERT INTO environment_value VALUES (?, ?, ?, ?)");
  for (size_t i = 0; i < values.size(); ++i) {
    insert.bind_all(id, static_cast<int64_t>(i), values[i].name, values[i].value).run();
  }
  transaction.commit();
  return id;
}

std::vector<EnvironmentRow> Store::read_environments(int64_t sweep_id) const {
  return environments_of(*database_, sweep_id);
}

std::vector<NamedText> Store::read_environment(int64_t sweep_id) const {
  std::vector<EnvironmentRow> rows = environments_of(*database_, sweep_id);
  return rows.empty() ? std::vector<NamedText>{} : std::move(rows.back().values);
}

std::vector<MeasurementRow> Store::read_measurements(int64_t trial_id) const {
  Statement select(*database_,
                   std::string(kSelectMeasurement) + "WHERE trial_id = ? ORDER BY attempt");
  select.bind(1, trial_id);
  return measurements_of(select);
}

std::vector<MeasurementRow> Store::read_measurements_of_sweep(int64_t sweep_id) const {
  Statement select(*database_, std::string(kSelectMeasurement) +
                                   "JOIN trial t ON t.id = m.trial_id WHERE t.sweep_id = ? "
                                   "ORDER BY m.trial_id, attempt");
  select.bind(1, sweep_id);
  return measurements_of(select);
}

}  // namespace moetune::store

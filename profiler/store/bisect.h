// Rows of a hunt (`moetune bisect`): what was asked, the commits it chooses from, and every
// measurement, so that the same command goes on where it was killed. Written and read by Store.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "profiler/store/search_status.h"

namespace moetune::store {

/// One hunt. `config_hash` is its identity: the same hash resumes the same row.
struct BisectRow {
  int64_t id = 0;
  std::string config_hash;
  std::string config_json;
  std::string repository;
  std::string good;
  std::string bad;
  std::string metric;
  SearchStatus status = SearchStatus::running;
  std::string verdict;  ///< culprit, no_change, environment_changed, unresolved, or empty
  std::string result_json = "{}";  ///< shown by the report (reports/hunt_result.h)
  std::string command_line;
  std::string tool_version;
  std::string tool_commit;
  std::string started_at;  ///< UTC, ISO 8601 with milliseconds; set by the store
  std::string ended_at;    ///< empty while it runs
};

/// One commit that a hunt may blame; position 0 is the good end.
struct BisectCommitRow {
  int position = 0;
  std::string commit_id;
  std::string subject;
  std::string author;
  std::string author_date;  ///< ISO 8601
};

/// One measurement. What is not a finite number is stored and comes back as no value; seconds that
/// are none come back as 0.
struct BisectRunRow {
  int64_t ordinal = 0;  ///< 1, 2, ...
  int position = 0;
  std::string key;      ///< commit, spec, machine, driver, clocks: what it may be reused for
  std::string purpose;  ///< what it was made for, such as "verify" or "search"
  std::string status;   ///< ok, build_failed, crashed, oom, hung, no_metric, interrupted
  std::optional<double> value;
  std::string metrics_json = "{}";
  std::string message;  ///< why there is no value
  double build_seconds = 0;
  double run_seconds = 0;
  std::string started_at;  ///< empty: the time of storing it
};

}  // namespace moetune::store

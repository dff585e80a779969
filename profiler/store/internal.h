// Small things that the files of the store share and nobody else needs.
#pragma once

#include <string>
#include <vector>

#include "profiler/store/db.h"
#include "profiler/store/store.h"

namespace moetune::store {

/// Columns of a row, one after another.
class Columns {
 public:
  explicit Columns(const Statement& row) : row_(row) {}
  int64_t integer() { return row_.get_int(column_++); }
  int32_t small() { return static_cast<int32_t>(integer()); }
  bool boolean() { return integer() != 0; }
  double real() { return row_.get_double(column_++); }
  std::string text() { return row_.get_text(column_++); }
  std::optional<int64_t> optional_integer() { return row_.get_optional_int(column_++); }
  std::optional<double> optional_real() { return row_.get_optional_double(column_++); }

 private:
  const Statement& row_;
  int column_ = 0;
};

/// "[12,13]": numbers that are not negative.
std::string list_text(const std::vector<int64_t>& values);
/// The numbers of such a text; none when it is anything else.
std::vector<int64_t> list_from(const std::string& text);

/// Writes the run of a trial that ended; what was measured in environments that cannot be compared
/// with its own does not count any more. Returns its attempt. Within a transaction of the caller.
int64_t write_measurement(Database& database, int64_t trial_id, const std::string& started_at,
                          const TrialResult& result, const std::string& status,
                          const std::string& reason);

/// Replaces the knobs and predictions of a trial. Within a transaction of the caller.
void write_knobs(Database& database, int64_t trial_id, const std::vector<NamedText>& knobs);
void write_predictions(Database& database, int64_t trial_id,
                       const std::vector<PredictionRow>& predictions);
void write_memory_predictions(Database& database, int64_t trial_id,
                              const std::vector<MemoryPrediction>& memory);
/// Writes what a shard held under the trial. Rows that break the schema throw ConstraintError.
void ingest_shard(Database& database, int64_t trial_id, const ShardContents& contents,
                  bool keeps_trace);
/// Traces of a process, whose (step, rank) are new (ConstraintError else). More records than a
/// trial keeps become a note in its texts.
void write_traces(Database& database, int64_t trial_id,
                  const std::vector<profiler::StepTrace>& traces);
/// Traces of a trial, ordered by step and rank. Throws base::Error for damaged data.
std::vector<profiler::StepTrace> read_traces_of(Database& database, int64_t trial_id);
/// Fills the temporary table trace_record (trace_columns.h) of the connection.
void unpack_last_step(Database& database, int64_t trial_id);
/// From the table trace_record of version 4 to trace_blob, which is there and empty.
void pack_version_4(Database& database);
void write_metrics(Database& database, int64_t trial_id, const std::vector<MetricRow>& metrics);
void append_texts(Database& database, int64_t trial_id, const std::vector<NamedText>& texts);

}  // namespace moetune::store

// Small things that the files of the store share and nobody else needs.
#pragma once

#include <string>
#include <vector>

#include "profiler/store/store.h"

namespace moetune::store {

/// UTC, ISO 8601 with milliseconds: "2026-01-31T12:34:56.789Z".
std::string now_utc();

/// Replaces the knobs and predictions of a trial. Within a transaction of the caller.
void write_knobs(Database& database, int64_t trial_id, const std::vector<NamedText>& knobs);
void write_predictions(Database& database, int64_t trial_id,
                       const std::vector<PredictionRow>& predictions);
void write_memory_predictions(Database& database, int64_t trial_id,
                              const std::vector<MemoryPrediction>& memory);
/// Writes what a shard held under the trial. Rows that break the schema throw ConstraintError.
void ingest_shard(Database& database, int64_t trial_id, const ShardContents& contents,
                  bool keeps_trace);
void write_metrics(Database& database, int64_t trial_id, const std::vector<MetricRow>& metrics);
void append_texts(Database& database, int64_t trial_id, const std::vector<NamedText>& texts);

}  // namespace moetune::store

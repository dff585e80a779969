// Reads the outcome of a trial for the strategy back from the store. New and earlier trials are
// read the same way, so that replaying a stored sweep repeats every decision bit by bit.
#pragma once

#include <optional>
#include <vector>

#include "profiler/store/store.h"
#include "tuner/strategy.h"

namespace moetune::sweeps {

/// One measurement of `trial` as stored; with the first one come the trial's own steps, operations
/// and wall.
tuner::TrialOutcome read_outcome(const store::Store& store, const store::TrialRow& trial,
                                 const store::MeasurementRow& measurement);

/// By all measurements that count and ended well; none with fewer than two of them, as the trial's
/// own numbers are then those of its run. `tokens_per_step` 0: not known.
std::optional<store::TrialSpeed> speed_of(const std::vector<store::MeasurementRow>& measurements,
                                          double tokens_per_step);

/// The row that a request becomes, knobs and predictions included; status and results stay empty.
store::TrialRow trial_row(const tuner::TrialRequest& request, int64_t sweep_id);
std::vector<store::PredictionRow> prediction_rows(const tuner::Prediction& prediction);
std::vector<store::MemoryPrediction> memory_predictions(const tuner::Prediction& prediction);

}  // namespace moetune::sweeps

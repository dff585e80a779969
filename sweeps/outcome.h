// What a strategy is told about a trial, read back from the store. A fresh trial and one of an
// earlier run take the same way, so that replaying a stored sweep repeats every decision bit by
// bit.
#pragma once

#include <vector>

#include "profiler/store/store.h"
#include "tuner/strategy.h"

namespace moetune::sweeps {

/// `trial` as stored, with its steps, operations and wall.
tuner::TrialOutcome read_outcome(const store::Store& store, const store::TrialRow& trial);

/// The row that a request becomes, knobs and predictions included; status and results stay empty.
store::TrialRow trial_row(const tuner::TrialRequest& request, int64_t sweep_id);
std::vector<store::PredictionRow> prediction_rows(const tuner::Prediction& prediction);
std::vector<store::MemoryPrediction> memory_predictions(const tuner::Prediction& prediction);

}  // namespace moetune::sweeps

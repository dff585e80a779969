// Calls the tuner's makers and models, so that nothing else of the sweep includes them.
#include "sweeps/strategies.h"

#include "tuner/prediction.h"
#include "tuner/strategies/strategies.h"

namespace moetune::sweeps {

std::unique_ptr<tuner::Strategy> make_strategy(const spec::SweepSpec& sweep) {
  return tuner::make_strategy(sweep.strategy, sweep);
}

tuner::Prediction predict_memory(const spec::TrialSpec& spec) {
  tuner::Prediction prediction;
  tuner::put_memory(tuner::estimate_memory(spec, {}), prediction);
  return prediction;
}

tuner::Prediction predict(const spec::TrialSpec& spec) {
  tuner::Prediction prediction = predict_memory(spec);
  tuner::put_time(tuner::CostModel().estimate(spec), prediction);
  return prediction;
}

}  // namespace moetune::sweeps

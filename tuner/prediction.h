// From what the models estimate to a prediction as it is stored.
#pragma once

#include "tuner/cost_model.h"
#include "tuner/memory_model.h"
#include "tuner/strategy.h"

namespace moetune::tuner {

void put_memory(const MemoryEstimate& memory, Prediction& prediction);
void put_time(CostEstimate step, Prediction& prediction);

}  // namespace moetune::tuner

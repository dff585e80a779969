// The part of label_bench whose steps the engine runs.
#pragma once

namespace moetune::tuner::testing {

/// Prints the table.
void run_emulated_labels();

}  // namespace moetune::tuner::testing

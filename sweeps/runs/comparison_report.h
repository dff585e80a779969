// Two runs side by side as the data of their HTML page, which knows nothing of logs and traces.
#pragma once

#include <string>

#include "reports/comparison_page.h"
#include "sweeps/runs/compared_runs.h"
#include "sweeps/runs/diagnosed_run.h"

namespace moetune::sweeps {

/// A run as it is named and read.
struct NamedRun {
  std::string path;
  const RunDiagnosis& diagnosis;
};

/// `comparison` is that of these two.
reports::ComparisonPage comparison_page(const RunComparison& comparison, const NamedRun& before,
                                        const NamedRun& after);

}  // namespace moetune::sweeps

// A diagnosis as the data of its HTML page, which knows nothing of logs and traces.
#pragma once

#include <string>

#include "reports/diagnosis_page.h"
#include "sweeps/runs/diagnosed_run.h"

namespace moetune::sweeps {

/// `name`: of the run, such as that of its folder.
reports::DiagnosisPage diagnosis_page(const RunDiagnosis& diagnosis, const std::string& name);

}  // namespace moetune::sweeps

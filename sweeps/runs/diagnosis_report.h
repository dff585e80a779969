// A diagnosis as the data of its HTML page, which knows nothing of logs and traces.
#pragma once

#include <string>

#include "reports/diagnosis_page.h"
#include "sweeps/runs/diagnosed_run.h"

namespace moetune::sweeps {

/// The last part of a path, also of "run/" and ".".
std::string name_of_run(const std::string& path);
/// The time of day on a page: "2026-01-31 12:34 UTC".
std::string date_of_page();
/// One window of a trace, or one made of several.
reports::DiagnosedBar diagnosed_bar(const profiler::ImportedTrace& trace,
                                    const DiagnosedWindow& window);

/// `name`: of the run, such as that of its folder.
reports::DiagnosisPage diagnosis_page(const RunDiagnosis& diagnosis, const std::string& name);

}  // namespace moetune::sweeps

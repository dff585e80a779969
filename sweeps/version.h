// Which build this is: stored with every sweep.
#pragma once

#include <string>
#include <vector>

#include "profiler/store/store.h"

namespace moetune::sweeps {

std::string version();
/// Commit of the sources at build time, "-dirty" appended when they differed from it; "unknown"
/// without git.
std::string commit();
/// "moetune 0.1.0 (commit 1234abcd)".
std::string version_line();

/// The machine and the build, for the provenance of a sweep: host, cpu, cores, memory, kernel,
/// compiler, versions.
std::vector<store::NamedText> environment_rows();

}  // namespace moetune::sweeps

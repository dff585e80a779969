// Traces of different runs have no verdict in common.
#pragma once

#include <span>

#include "profiler/imported_trace.h"

namespace moetune::profiler {

/// Throws base::UsageError, which names the files, where traces cannot be of the same steps of one
/// run: a rank occurs twice, or sizes of the world, numbers of steps or devices differ.
void check_one_run(std::span<const ImportedTrace> traces);

}  // namespace moetune::profiler

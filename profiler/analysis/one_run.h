// Traces of different runs have no verdict in common.
#pragma once

#include <span>

#include "profiler/imported_trace.h"

namespace moetune::profiler {

/// Whether one is a copy of the other: of two files of which not both say their rank, with the same
/// device work at the same times.
bool is_copy_of(const ImportedTrace& a, const ImportedTrace& b);

/// Throws base::UsageError, which names the files, where traces cannot be of the same steps of one
/// run: a rank occurs twice or one file is a copy of another, recorders, sizes of the world,
/// numbers of steps or devices differ, the same steps were recorded more than ten minutes apart, or
/// there are more traces or a higher rank than the world has.
void check_one_run(std::span<const ImportedTrace> traces);

}  // namespace moetune::profiler

// Kernels that work on experts' rows, known by names: how many rows a rank has follows from the
// router, where no file says how many there are.
#pragma once

#include <vector>

#include "profiler/imported_trace.h"

namespace moetune::profiler {

/// By row of the trace's ops: products of several groups of rows (grouped GEMM), and what is
/// launched between a dispatch and a combine of DeepEP or HybridEP. If attention is launched in
/// between, another micro-batch's work is there, too: then the names of products alone tell.
std::vector<bool> expert_kernels_of(const ImportedTrace& trace);

}  // namespace moetune::profiler

// Row lists for grouped GEMMs that know none: the listed rows are brought together, multiplied, and
// taken back.
#pragma once

#include <cstdint>
#include <functional>

#include "kernels/cuda/ops.h"

namespace moetune::kernels::cuda {

/// Device memory that run_compact needs for a call with a row list.
int64_t compact_rows_bytes(const GroupedGemmArgs& args);

/// Does what `args`, which has a row list and is no wgrad, says by one call of `run` without a
/// list. `memory`: compact_rows_bytes of device memory, 256-byte aligned, in use until the work is
/// done.
void run_compact(Stream stream, const GroupedGemmArgs& args, void* memory,
                 const std::function<void(const GroupedGemmArgs&)>& run);

}  // namespace moetune::kernels::cuda

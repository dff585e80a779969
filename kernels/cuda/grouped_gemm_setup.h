// What a pointer-array grouped GEMM reads from device memory, and the kernel that writes it from
// the experts' offsets, so that token counts never visit the host.
#pragma once

#include <cstdint>

#include "kernels/cuda/ops.h"

namespace moetune::kernels::cuda {

/// One expert's product: d [m,n] = a [m,k] * b [k,n]. Three ints, as the GEMM reads them.
struct GroupedProblem {
  int32_t m;
  int32_t n;
  int32_t k;
};

/// Arrays in device memory, one entry per expert. Strides are in elements, between rows of the
/// matrix as it lies in memory.
struct GroupedProblems {
  GroupedProblem* shapes = nullptr;
  const void** a = nullptr;
  const void** b = nullptr;
  void** d = nullptr;
  int64_t* stride_a = nullptr;
  int64_t* stride_b = nullptr;
  int64_t* stride_d = nullptr;
};

/// Bytes of the arrays for this many experts.
int64_t grouped_problems_bytes(int64_t num_experts);

/// The arrays laid out one after the other from `memory` (256-byte aligned), each aligned to 256.
GroupedProblems carve_grouped_problems(void* memory, int64_t num_experts);

/// Fills the arrays from args.offsets:
///   forward: a = x rows, b = W_e,    d = y rows;  m rows, n = out, k = in
///   dgrad:   a = y rows, b = W_e,    d = x rows;  m rows, n = in,  k = out
///   wgrad:   a = y rows, b = x rows, d = W_e;     m = out, n = in, k rows
/// An expert without rows gets m = 0: nothing is done, and its weight gradient stays as it is.
void setup_grouped_problems(Stream stream, const GroupedGemmArgs& args,
                            const GroupedProblems& problems);

}  // namespace moetune::kernels::cuda

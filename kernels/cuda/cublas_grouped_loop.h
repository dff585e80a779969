// The experts' GEMM as one dense product per expert: the reference that the grouped kernels are
// compared with, on the card, in results and in speed.
#pragma once

#include <cstdint>

#include "kernels/cuda/cublaslt_gemm.h"

namespace moetune::kernels::cuda {

/// What GroupedGemmArgs says, without a row list. Reads the offsets on the host and therefore waits
/// for the stream: tests and benchmarks only. Throws base::Error on a row list or on offsets that
/// are not ascending within the activations.
void cublas_grouped_loop(Stream stream, CublasLtGemm& gemm, const GroupedGemmArgs& args,
                         void* workspace, int64_t workspace_size);

}  // namespace moetune::kernels::cuda

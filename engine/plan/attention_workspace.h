// Device memory that attention's kernels take beside the buffers of the table, where it grows with
// the sequence: at 16K tokens it is half a gigabyte, too much for a prediction to leave out.
#pragma once

#include <cstdint>

#include "engine/plan/buffers.h"

namespace moetune::plan {

/// One graph of attention's backward pass: in each of `batch` sequences `queries` rows at
/// consecutive positions, which see `keys` keys.
struct AttentionRun {
  int64_t batch = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t queries = 0;
  int64_t keys = 0;
};

/// Workspace of cuDNN's backward pass of bf16 on compute capability 9.0, where it need not be
/// deterministic: dq summed up in f32, the row sums of dout * out in f32, and where heads share
/// keys the dk and dv of every head in bf16. The tensors are those of cudnn-frontend
/// (scaled_dot_product_flash_attention.h: dQ_accum, softmax_sum, dK_fullhead, dV_fullhead); the
/// 256 bytes are the library's own. tests/cuda_libs/plans asks the library.
int64_t cudnn_backward_bytes(const AttentionRun& run);

/// The most that one call of attention asks the CUDA backend for on the rank that
/// `dims` are of, in bf16 on compute capability 9.0. That is a backward pass: the forward
/// pass of a run takes less. 0 where a plain kernel does it (kernels/cuda/cudnn_attention).
int64_t attention_workspace_bytes(const LayerDims& dims);

}  // namespace moetune::plan

// Sums over all rows, cut over many blocks. A launcher that is given scratch lets the blocks leave
// their parts there and adds them up in a fixed order by a second, small kernel; without scratch
// the blocks add their parts to the result by atomics, in whatever order they end. Both read the
// rows once.
#pragma once

#include "kernels/cuda/ops.h"

namespace moetune::kernels::cuda {

/// Device memory that nothing else uses until the launched work is done.
struct Scratch {
  float* data = nullptr;
  int64_t bytes = 0;
};

/// What rms_norm_backward needs for a weight of `cols` columns.
int64_t rms_norm_backward_scratch_bytes(int64_t cols);

/// As in ops.h; with enough scratch the weight's gradient has the same bits each time.
void rms_norm_backward(Stream stream, const RmsNormBackwardArgs& args, Scratch scratch);

/// sums[c] += sum over the rows of x[:, c] (f32 or bf16), in a fixed order.
void add_column_sums(Stream stream, const Tensor& x, float* sums);

}  // namespace moetune::kernels::cuda

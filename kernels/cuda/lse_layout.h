// Row statistics of attention between our order, [rows, heads], and the one that libraries
// document, [batch, heads, rows].
#pragma once

#include "kernels/cuda/ops.h"

namespace moetune::kernels::cuda {

/// by_head [batch, heads, num_rows] from (or, with `to_rows`, into) rows [first_row, first_row +
/// num_rows) of each of the `batch` sequences in by_row [batch * rows_per_sequence, heads].
struct LseLayoutArgs {
  Tensor by_row;  ///< f32
  float* by_head = nullptr;
  int64_t batch = 1;
  int64_t first_row = 0;
  int64_t num_rows = 0;
  bool to_rows = false;
};

void lse_layout(Stream stream, const LseLayoutArgs& args);

}  // namespace moetune::kernels::cuda

// The kernels that move row statistics between the two orders. One thread per value, neighbours
// along the by-head order: the other side's accesses are strided, but a whole layer's statistics
// fit the second-level cache many times over.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/lse_layout.h"

namespace moetune::kernels::cuda {
namespace {

constexpr int64_t kThreads = 256;

struct Shape {
  int64_t batch;
  int64_t heads;
  int64_t rows;
  int64_t rows_per_sequence;
  int64_t first_row;
  int64_t ld;

  __host__ __device__ int64_t count() const { return batch * heads * rows; }
};

__global__ void lse_layout_kernel(float* by_row, float* by_head, Shape shape, bool to_rows) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (int64_t i = first; i < shape.count(); i += step) {
    const int64_t row = i % shape.rows;
    const int64_t head = i / shape.rows % shape.heads;
    const int64_t sequence = i / shape.rows / shape.heads;
    const int64_t place =
        (sequence * shape.rows_per_sequence + shape.first_row + row) * shape.ld + head;
    if (to_rows) {
      by_row[place] = by_head[i];
    } else {
      by_head[i] = by_row[place];
    }
  }
}

}  // namespace

void lse_layout(Stream stream, const LseLayoutArgs& args) {
  const Shape shape{args.batch,     args.by_row.cols,
                    args.num_rows,  args.batch > 0 ? args.by_row.rows / args.batch : 0,
                    args.first_row, args.by_row.ld};
  launch(lse_layout_kernel,
         {grid_of(ceil_div(shape.count(), kThreads)), dim3(static_cast<unsigned>(kThreads))},
         stream, static_cast<float*>(args.by_row.data), args.by_head, shape, args.to_rows);
}

}  // namespace moetune::kernels::cuda

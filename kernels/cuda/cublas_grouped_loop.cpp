// Reads the experts' offsets back to the host and calls the dense product for each expert: slow,
// and hard to get wrong.
#include "kernels/cuda/cublas_grouped_loop.h"

#include <cuda_runtime_api.h>

#include <vector>

#include "kernels/base/error.h"

namespace moetune::kernels::cuda {
namespace {

std::vector<int32_t> read_offsets(Stream stream, const Tensor& offsets) {
  std::vector<int32_t> host(static_cast<size_t>(offsets.rows));
  cudaError_t status = cudaMemcpyAsync(host.data(), offsets.data, host.size() * sizeof(int32_t),
                                       cudaMemcpyDeviceToHost, stream);
  if (status == cudaSuccess) status = cudaStreamSynchronize(stream);
  MOETUNE_CHECK(status == cudaSuccess, "grouped GEMM: reading the offsets failed: {}",
                cudaGetErrorString(status));
  return host;
}

}  // namespace

void cublas_grouped_loop(Stream stream, CublasLtGemm& gemm, const GroupedGemmArgs& args,
                         void* workspace, int64_t workspace_size) {
  MOETUNE_CHECK(args.rows.is_null(), "grouped GEMM: the loop over experts takes no row list");
  const std::vector<int32_t> offsets = read_offsets(stream, args.offsets);
  const int64_t out = args.y.cols;
  for (size_t expert = 0; expert + 1 < offsets.size(); ++expert) {
    const int64_t begin = offsets[expert];
    const int64_t count = offsets[expert + 1] - begin;
    MOETUNE_CHECK(begin >= 0 && count >= 0 && begin + count <= args.x.rows,
                  "grouped GEMM: expert {} has rows {} to {} of {}", expert, begin, begin + count,
                  args.x.rows);
    const Tensor x = args.x.row_range(begin, count);
    const Tensor y = args.y.row_range(begin, count);
    const Tensor w = args.w.row_range(static_cast<int64_t>(expert) * out, out);
    GemmArgs product;
    switch (args.mode) {
      case GroupedGemmMode::forward:
        product = {.a = x, .b = w, .c = y, .trans_b = true};
        break;
      case GroupedGemmMode::dgrad:
        product = {.a = y, .b = w, .c = x};
        break;
      case GroupedGemmMode::wgrad:
        product = {.a = y, .b = x, .c = w, .trans_a = true, .accumulate = true};
        break;
    }
    gemm.run(stream, product, workspace, workspace_size);
  }
}

}  // namespace moetune::kernels::cuda

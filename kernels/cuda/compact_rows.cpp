#include "kernels/cuda/compact_rows.h"

#include "kernels/base/error.h"

namespace moetune::kernels::cuda {
namespace {

constexpr int64_t kAlignment = 256;

int64_t bytes_of(int64_t rows, const Tensor& like) {
  const int64_t bytes = rows * like.cols * base::size_of(like.dtype);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

int64_t compact_rows_bytes(const GroupedGemmArgs& args) {
  return bytes_of(args.rows.rows, args.x) + bytes_of(args.rows.rows, args.y);
}

void run_compact(Stream stream, const GroupedGemmArgs& args, void* memory,
                 const std::function<void(const GroupedGemmArgs&)>& run) {
  MOETUNE_CHECK(!args.rows.is_null() && args.mode != GroupedGemmMode::wgrad,
                "grouped GEMM: no row list to bring together");
  const int64_t num_rows = args.rows.rows;
  GroupedGemmArgs compact = args;
  compact.rows = {};
  compact.x = Tensor::matrix(memory, args.x.dtype, num_rows, args.x.cols);
  compact.y = Tensor::matrix(static_cast<char*>(memory) + bytes_of(num_rows, args.x), args.y.dtype,
                             num_rows, args.y.cols);
  const bool is_forward = args.mode == GroupedGemmMode::forward;
  const Tensor& input = is_forward ? args.x : args.y;
  const Tensor& output = is_forward ? args.y : args.x;
  gather_rows(stream, {input, is_forward ? compact.x : compact.y, args.rows, 1});
  run(compact);
  scatter_rows(stream, {is_forward ? compact.y : compact.x, output, args.rows});
}

}  // namespace moetune::kernels::cuda

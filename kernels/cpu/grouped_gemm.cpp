// The experts' GEMMs. The rows of an expert are read and written where they lie, through the row
// list. All three modes go through row_gemm, so that no bit of a row depends on which rows share
// the call, and a weight gradient cut into calls over consecutive rows is the same sum.
#include <cstring>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/row_gemm.h"
#include "kernels/cpu/scratch.h"

namespace moetune::kernels::cpu {
namespace {

// Rows [begin, end) of the list as one contiguous block: where they lie when they are neighbours,
// else a copy.
template <typename T>
const T* contiguous_rows(const Tensor& from, const int32_t* list, int64_t begin, int64_t end,
                         int slot, int64_t* ld) {
  *ld = from.ld;
  if (list == nullptr) return from.row<T>(begin);
  T* copy = scratch<T>(slot, (end - begin) * from.cols);
  for (int64_t i = begin; i < end; ++i) {
    std::memcpy(copy + (i - begin) * from.cols, from.row<T>(list[i]),
                static_cast<size_t>(from.cols) * sizeof(T));
  }
  *ld = from.cols;
  return copy;
}

template <typename T>
void multiply_rows(const Tensor& in, const Tensor& out, const T* weight, int64_t weight_ld,
                   bool transpose, const int32_t* list, int64_t begin, int64_t end) {
  const int64_t first = list == nullptr ? begin : 0;
  const int32_t* rows = list == nullptr ? nullptr : list + begin;
  row_gemm<T>(end - begin, out.cols, in.cols, {in.row<T>(first), in.ld, 1, rows}, weight, weight_ld,
              transpose, false, out.row<T>(first), out.ld, rows);
}

template <typename T>
void accumulate_weight(const GroupedGemmArgs& args, T* weight, const int32_t* list, int64_t begin,
                       int64_t end) {
  int64_t ldx = 0;
  int64_t ldy = 0;
  const T* x = contiguous_rows<T>(args.x, list, begin, end, 0, &ldx);
  const T* y = contiguous_rows<T>(args.y, list, begin, end, 1, &ldy);
  // The left operand is y transposed: its row o is a column of y.
  row_gemm<T>(args.y.cols, args.x.cols, end - begin, {y, 1, ldy, nullptr}, x, ldx, false, true,
              weight, args.w.ld, nullptr);
}

template <typename T>
void run(const GroupedGemmArgs& args) {
  const int64_t num_experts = args.offsets.rows - 1;
  const int64_t out = args.y.cols;
  MOETUNE_CHECK(args.w.rows == num_experts * out && args.w.cols == args.x.cols,
                "grouped_gemm: w [{},{}] does not hold {} experts of [{},{}]", args.w.rows,
                args.w.cols, num_experts, out, args.x.cols);
  const auto* offsets = args.offsets.row<int32_t>(0);
  const auto* list = args.rows.is_null() ? nullptr : args.rows.row<int32_t>(0);
  for (int64_t e = 0; e < num_experts; ++e) {
    const int64_t begin = offsets[e];
    const int64_t end = offsets[e + 1];
    if (begin == end) continue;
    T* weight = args.w.row<T>(e * out);
    switch (args.mode) {
      case GroupedGemmMode::forward:
        multiply_rows<T>(args.x, args.y, weight, args.w.ld, true, list, begin, end);
        break;
      case GroupedGemmMode::dgrad:
        multiply_rows<T>(args.y, args.x, weight, args.w.ld, false, list, begin, end);
        break;
      case GroupedGemmMode::wgrad:
        accumulate_weight<T>(args, weight, list, begin, end);
        break;
    }
  }
}

}  // namespace

void grouped_gemm(const GroupedGemmArgs& args) {
  if (args.offsets.rows <= 1) return;
  dispatch(args.x.dtype, [&]<typename T>(std::type_identity<T>) { run<T>(args); });
}

}  // namespace moetune::kernels::cpu

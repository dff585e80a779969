// Moving and adding rows: gather, scatter, combine, copy and the bias pair.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/scratch.h"

namespace moetune::kernels::cpu {
namespace {

void check_row(const char* op, int64_t row, int64_t num_rows) {
  MOETUNE_CHECK(row >= 0 && row < num_rows, "{}: row {} is not in [0, {})", op, row, num_rows);
}

template <typename T>
void copy_row(const T* from, T* to, int64_t cols) {
  std::memcpy(to, from, static_cast<size_t>(cols) * sizeof(T));
}

template <typename T>
void add_row(const T* __restrict from, T* __restrict to, int64_t cols) {
  for (int64_t i = 0; i < cols; ++i) to[i] += from[i];
}

}  // namespace

void gather_rows(const GatherRowsArgs& args) {
  const int64_t count = args.index.rows;
  if (count == 0) return;
  const auto* index = args.index.row<int32_t>(0);
  // Rows are only moved, so four-byte elements cover i32 as well as f32.
  const auto run = [&]<typename T>(std::type_identity<T>) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = index[i] / args.divisor;
      check_row("gather_rows", row, args.x.rows);
      copy_row(args.x.row<T>(row), args.out.row<T>(i), args.x.cols);
    }
  };
  if (args.x.dtype == DType::i32) return run(std::type_identity<int32_t>{});
  dispatch(args.x.dtype, run);
}

void scatter_rows(const ScatterRowsArgs& args) {
  const int64_t count = args.index.rows;
  if (count == 0) return;
  const auto* index = args.index.row<int32_t>(0);
  const auto run = [&]<typename T>(std::type_identity<T>) {
    for (int64_t i = 0; i < count; ++i) {
      check_row("scatter_rows", index[i], args.out.rows);
      copy_row(args.x.row<T>(i), args.out.row<T>(index[i]), args.x.cols);
    }
  };
  if (args.x.dtype == DType::i32) return run(std::type_identity<int32_t>{});
  dispatch(args.x.dtype, run);
}

void combine_rows(const CombineRowsArgs& args) {
  if (args.out.rows == 0) return;
  MOETUNE_CHECK(args.position.rows == args.out.rows * args.topk,
                "combine_rows: {} positions for {} tokens of top-{}", args.position.rows,
                args.out.rows, args.topk);
  const auto* position = args.position.row<int32_t>(0);
  dispatch(args.x.dtype, [&]<typename T>(std::type_identity<T>) {
    for (int64_t t = 0; t < args.out.rows; ++t) {
      for (int64_t k = 0; k < args.topk; ++k) {
        const int64_t row = position[t * args.topk + k];
        check_row("combine_rows", row, args.x.rows);
        add_row(args.x.row<T>(row), args.out.row<T>(t), args.x.cols);
      }
    }
  });
}

void copy(const CopyArgs& args) {
  MOETUNE_CHECK(args.x.rows == args.y.rows && args.x.cols == args.y.cols,
                "copy: x [{},{}] and y [{},{}] differ", args.x.rows, args.x.cols, args.y.rows,
                args.y.cols);
  if (args.x.numel() == 0) return;
  const auto run = [&]<typename T>(std::type_identity<T>) {
    for (int64_t r = 0; r < args.x.rows; ++r) {
      if (args.accumulate) {
        add_row(args.x.row<T>(r), args.y.row<T>(r), args.x.cols);
      } else {
        copy_row(args.x.row<T>(r), args.y.row<T>(r), args.x.cols);
      }
    }
  };
  if (args.x.dtype == args.y.dtype) {
    if (args.x.dtype == DType::i32) return run(std::type_identity<int32_t>{});
    return dispatch(args.x.dtype, run);
  }
  MOETUNE_CHECK(args.x.dtype == DType::i32 && !args.accumulate,
                "copy: {} to {}{} is not done on the CPU", base::name_of(args.x.dtype),
                base::name_of(args.y.dtype), args.accumulate ? " (added)" : "");
  dispatch(args.y.dtype, [&]<typename T>(std::type_identity<T>) {
    for (int64_t r = 0; r < args.x.rows; ++r) {
      const int32_t* from = args.x.row<int32_t>(r);
      std::transform(from, from + args.x.cols, args.y.row<T>(r),
                     [](int32_t value) { return static_cast<T>(value); });
    }
  });
}

void add_bias(const Tensor& y, const Tensor& bias) {
  MOETUNE_CHECK(bias.rows == 1 && bias.cols == y.cols && bias.dtype == y.dtype,
                "a bias [{},{}] for {} columns", bias.rows, bias.cols, y.cols);
  dispatch(y.dtype, [&]<typename T>(std::type_identity<T>) {
    for (int64_t r = 0; r < y.rows; ++r) add_row(bias.row<T>(0), y.row<T>(r), y.cols);
  });
}

void bias_backward(const BiasBackwardArgs& args) {
  const int64_t cols = args.dy.cols;
  double* total = scratch<double>(0, cols);
  std::fill_n(total, cols, 0.0);
  dispatch(args.dy.dtype, [&]<typename T>(std::type_identity<T>) {
    for (int64_t r = 0; r < args.dy.rows; ++r) {
      const T* dy = args.dy.row<T>(r);
      for (int64_t i = 0; i < cols; ++i) total[i] += static_cast<double>(dy[i]);
    }
    T* dbias = args.dbias.row<T>(0);
    for (int64_t i = 0; i < cols; ++i) dbias[i] += static_cast<T>(total[i]);
  });
}

}  // namespace moetune::kernels::cpu

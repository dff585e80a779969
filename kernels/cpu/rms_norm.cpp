// Root mean square normalisation (Zhang & Sennrich 2019), over whole rows or over each head of a
// row.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/vector_math.h"

namespace moetune::kernels::cpu {
namespace {

template <typename T>
void forward(const RmsNormArgs& args) {
  const int64_t d = args.weight.cols;
  const T* weight = args.weight.row<T>(0);
  for (int64_t r = 0; r < args.x.rows; ++r) {
    for (int64_t head = 0; head < args.heads; ++head) {
      const T* x = args.x.row<T>(r) + head * d;
      T* out = args.out.row<T>(r) + head * d;
      const double mean_square = dot(x, x, d) / static_cast<double>(d);
      const T rstd = static_cast<T>(1.0 / std::sqrt(mean_square + args.eps));
      args.rstd.row<T>(r)[head] = rstd;
#pragma GCC ivdep
      for (int64_t i = 0; i < d; ++i) out[i] = x[i] * rstd * weight[i];
    }
  }
}

// With n = x * rstd and g = dy * w: dx = rstd * (g - n * mean(g * n)), dw += dy * n.
template <typename T>
void backward(const RmsNormBackwardArgs& args) {
  const int64_t d = args.weight.cols;
  const T* weight = args.weight.row<T>(0);
  T* g = scratch<T>(0, d);
  double* dweight_sum = scratch<double>(1, d);
  std::fill_n(dweight_sum, d, 0.0);
  for (int64_t r = 0; r < args.x.rows; ++r) {
    for (int64_t head = 0; head < args.heads; ++head) {
      const T* x = args.x.row<T>(r) + head * d;
      const T* dy = args.dy.row<T>(r) + head * d;
      T* dx = args.dx.row<T>(r) + head * d;
      const T rstd = args.rstd.row<T>(r)[head];
#pragma GCC ivdep
      for (int64_t i = 0; i < d; ++i) {
        g[i] = dy[i] * weight[i];
        dweight_sum[i] += static_cast<double>(dy[i] * (x[i] * rstd));
      }
      const T mean =
          static_cast<T>(dot(g, x, d) * static_cast<double>(rstd) / static_cast<double>(d));
      if (args.accumulate_dx) {
#pragma GCC ivdep
        for (int64_t i = 0; i < d; ++i) dx[i] += rstd * (g[i] - x[i] * rstd * mean);
      } else {
#pragma GCC ivdep
        for (int64_t i = 0; i < d; ++i) dx[i] = rstd * (g[i] - x[i] * rstd * mean);
      }
    }
  }
  T* dweight = args.dweight.row<T>(0);
  for (int64_t i = 0; i < d; ++i) dweight[i] += static_cast<T>(dweight_sum[i]);
}

void check_shape(const Tensor& x, const Tensor& weight, const Tensor& rstd, int64_t heads) {
  MOETUNE_CHECK(x.cols == heads * weight.cols && rstd.rows == x.rows && rstd.cols == heads,
                "rms_norm: x [{},{}], weight [1,{}], rstd [{},{}], heads {}", x.rows, x.cols,
                weight.cols, rstd.rows, rstd.cols, heads);
}

}  // namespace

void rms_norm(const RmsNormArgs& args) {
  check_shape(args.x, args.weight, args.rstd, args.heads);
  dispatch(args.x.dtype, [&]<typename T>(std::type_identity<T>) { forward<T>(args); });
}

void rms_norm_backward(const RmsNormBackwardArgs& args) {
  check_shape(args.x, args.weight, args.rstd, args.heads);
  dispatch(args.x.dtype, [&]<typename T>(std::type_identity<T>) { backward<T>(args); });
}

}  // namespace moetune::kernels::cpu

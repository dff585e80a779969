// The optimizer's arithmetic: AdamW over flat slices, and the gradient norm that clipping needs.
#include <cmath>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/vector_math.h"

namespace moetune::kernels::cpu {
namespace {

template <typename T>
void update(const AdamWArgs& args, const AdamWArgs::Slice& slice) {
  const auto step = static_cast<double>(args.step);
  const T beta1 = static_cast<T>(args.beta1);
  const T beta2 = static_cast<T>(args.beta2);
  const T one_minus_beta1 = static_cast<T>(1.0 - args.beta1);
  const T one_minus_beta2 = static_cast<T>(1.0 - args.beta2);
  const T step_size = static_cast<T>(args.lr / (1.0 - std::pow(args.beta1, step)));
  const T v_scale = static_cast<T>(1.0 / (1.0 - std::pow(args.beta2, step)));
  const T keep = static_cast<T>(slice.use_decay ? 1.0 - args.lr * args.weight_decay : 1.0);
  const T eps = static_cast<T>(args.eps);
  const T grad_scale = static_cast<T>(args.grad_scale);
  auto* weight = static_cast<T*>(slice.weight);
  auto* master = static_cast<T*>(slice.master);
  auto* m = static_cast<T*>(slice.m);
  auto* v = static_cast<T*>(slice.v);
  const auto* grad = static_cast<const T*>(slice.grad);
  // ivdep, not restrict: weight and master may be the same memory.
#pragma GCC ivdep
  for (int64_t i = 0; i < slice.numel; ++i) {
    const T g = grad[i] * grad_scale;
    const T new_m = beta1 * m[i] + one_minus_beta1 * g;
    const T new_v = beta2 * v[i] + one_minus_beta2 * g * g;
    const T updated = master[i] * keep - step_size * new_m / (std::sqrt(new_v * v_scale) + eps);
    m[i] = new_m;
    v[i] = new_v;
    master[i] = updated;
    weight[i] = updated;
  }
}

}  // namespace

void adamw(const AdamWArgs& args) {
  MOETUNE_CHECK(args.step >= 1, "adamw: step {} must count from 1", args.step);
  dispatch(args.dtype, [&]<typename T>(std::type_identity<T>) {
    for (const AdamWArgs::Slice& slice : args.slices) update<T>(args, slice);
  });
}

void squared_norm(const SquaredNormArgs& args) {
  double total = 0.0;
  dispatch(args.dtype, [&]<typename T>(std::type_identity<T>) {
    for (const SquaredNormArgs::Slice& slice : args.slices) {
      const auto* data = static_cast<const T*>(slice.data);
      total += dot(data, data, slice.numel);
    }
  });
  *args.result = total;
}

}  // namespace moetune::kernels::cpu

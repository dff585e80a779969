// The optimizer's arithmetic: AdamW over flat slices, and the gradient norm that clipping needs.
#include <bit>
#include <cmath>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/stochastic_round.h"

namespace moetune::kernels::cpu {
namespace {

// What one step does to every element of a slice.
template <typename T>
struct Update {
  T beta1;
  T beta2;
  T one_minus_beta1;
  T one_minus_beta2;
  T step_size;
  T v_scale;
  T keep;
  T eps;
  T grad_scale;

  Update(const AdamWArgs& args, const AdamWArgs::Slice& slice)
      : beta1(static_cast<T>(args.beta1)),
        beta2(static_cast<T>(args.beta2)),
        one_minus_beta1(static_cast<T>(1.0 - args.beta1)),
        one_minus_beta2(static_cast<T>(1.0 - args.beta2)),
        step_size(
            static_cast<T>(args.lr / (1.0 - std::pow(args.beta1, static_cast<double>(args.step))))),
        v_scale(static_cast<T>(1.0 / (1.0 - std::pow(args.beta2, static_cast<double>(args.step))))),
        keep(static_cast<T>(slice.use_decay ? 1.0 - args.lr * args.weight_decay : 1.0)),
        eps(static_cast<T>(args.eps)),
        grad_scale(static_cast<T>(args.grad_scale)) {}

  // m and v become the new ones; returns the new master.
  T operator()(T master, T grad, T& m, T& v) const {
    const T g = grad * grad_scale;
    m = beta1 * m + one_minus_beta1 * g;
    v = beta2 * v + one_minus_beta2 * g * g;
    return master * keep - step_size * m / (std::sqrt(v * v_scale) + eps);
  }
};

template <typename T>
void update(const AdamWArgs& args, const AdamWArgs::Slice& slice) {
  const Update<T> step(args, slice);
  auto* weight = static_cast<T*>(slice.weight);
  auto* master = static_cast<T*>(slice.master);
  auto* m = static_cast<T*>(slice.m);
  auto* v = static_cast<T*>(slice.v);
  const auto* grad = static_cast<const T*>(slice.grad);
  // ivdep, not restrict: weight and master may be the same memory.
#pragma GCC ivdep
  for (int64_t i = 0; i < slice.numel; ++i) {
    T new_m = m[i];
    T new_v = v[i];
    const T updated = step(master[i], grad[i], new_m, new_v);
    m[i] = new_m;
    v[i] = new_v;
    master[i] = updated;
    weight[i] = updated;
  }
}

float float_of_bf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16U); }

// The same with moments of bf16.
void update_narrow(const AdamWArgs& args, const AdamWArgs::Slice& slice) {
  const Update<float> step(args, slice);
  const uint64_t key = rounding_key(args.rounding_seed, args.step);
  auto* weight = static_cast<float*>(slice.weight);
  auto* master = static_cast<float*>(slice.master);
  auto* m = static_cast<uint16_t*>(slice.m);
  auto* v = static_cast<uint16_t*>(slice.v);
  const auto* grad = static_cast<const float*>(slice.grad);
#pragma GCC ivdep
  for (int64_t i = 0; i < slice.numel; ++i) {
    float new_m = float_of_bf16(m[i]);
    float new_v = float_of_bf16(v[i]);
    const float updated = step(master[i], grad[i], new_m, new_v);
    const uint64_t bits = rounding_bits(key, slice.first_element + i);
    m[i] = stochastic_bf16(std::bit_cast<uint32_t>(new_m), draw_of_m(bits));
    v[i] = stochastic_bf16(std::bit_cast<uint32_t>(new_v), draw_of_v(bits));
    master[i] = updated;
    weight[i] = updated;
  }
}

}  // namespace

void adamw(const AdamWArgs& args) {
  MOETUNE_CHECK(args.step >= 1, "adamw: step {} must count from 1", args.step);
  if (args.moment_dtype == DType::bf16) {
    MOETUNE_CHECK(args.dtype == DType::f32, "adamw: moments of bf16 beside a master of {}, not f32",
                  base::name_of(args.dtype));
    for (const AdamWArgs::Slice& slice : args.slices) update_narrow(args, slice);
    return;
  }
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

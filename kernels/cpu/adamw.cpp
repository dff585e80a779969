// The optimizer's arithmetic: AdamW over flat slices, and the gradient norm that clipping needs.
#include <bit>
#include <cmath>
#include <type_traits>

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

// A moment as it is computed with, and as it is kept: as it is, or as bf16, narrower by the draw.
template <typename T>
T wide(T value) {
  return value;
}
float wide(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16U); }

template <typename Kept, typename T>
Kept kept(T value, uint32_t draw) {
  if constexpr (std::is_same_v<Kept, T>) {
    return value;
  } else {
    return stochastic_bf16(std::bit_cast<uint32_t>(value), draw);
  }
}

template <typename T, typename M, typename V>
void update(const AdamWArgs& args, const AdamWArgs::Slice& slice) {
  constexpr bool kDraws = !std::is_same_v<M, T> || !std::is_same_v<V, T>;
  const Update<T> step(args, slice);
  const uint64_t key = rounding_key(args.rounding_seed, args.step);
  auto* weight = static_cast<T*>(slice.weight);
  auto* master = static_cast<T*>(slice.master);
  auto* m = static_cast<M*>(slice.m);
  auto* v = static_cast<V*>(slice.v);
  const auto* grad = static_cast<const T*>(slice.grad);
  // ivdep, not restrict: weight and master may be the same memory.
#pragma GCC ivdep
  for (int64_t i = 0; i < slice.numel; ++i) {
    T new_m = wide(m[i]);
    T new_v = wide(v[i]);
    const T updated = step(master[i], grad[i], new_m, new_v);
    const uint64_t bits = kDraws ? rounding_bits(key, slice.first_element + i) : 0;
    m[i] = kept<M>(new_m, draw_of_m(bits));
    v[i] = kept<V>(new_v, draw_of_v(bits));
    master[i] = updated;
    weight[i] = updated;
  }
}

// body(std::type_identity<M>) with a moment's type beside f32.
template <typename Body>
void with_moment(DType dtype, const Body& body) {
  if (dtype == DType::bf16) {
    body(std::type_identity<uint16_t>{});
  } else {
    body(std::type_identity<float>{});
  }
}

}  // namespace

void adamw(const AdamWArgs& args) {
  MOETUNE_CHECK(args.step >= 1, "adamw: step {} must count from 1", args.step);
  for (const DType moment : {args.m_dtype, args.v_dtype}) {
    const bool is_narrow = moment == DType::bf16 && args.dtype == DType::f32;
    MOETUNE_CHECK(moment == args.dtype || is_narrow, "adamw: moments of {} beside a master of {}",
                  base::name_of(moment), base::name_of(args.dtype));
  }
  const auto run = [&]<typename T, typename M, typename V>(
                       std::type_identity<T>, std::type_identity<M>, std::type_identity<V>) {
    for (const AdamWArgs::Slice& slice : args.slices) update<T, M, V>(args, slice);
  };
  if (args.dtype == DType::f64) {
    constexpr std::type_identity<double> kDouble;
    return run(kDouble, kDouble, kDouble);
  }
  with_moment(args.m_dtype, [&](auto m) {
    with_moment(args.v_dtype, [&](auto v) { run(std::type_identity<float>{}, m, v); });
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

// Gated activations (SwiGLU and relatives, Shazeer 2020), optionally weighted by the router's
// probability per row.
#include <cmath>
#include <numbers>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/vector_math.h"

namespace moetune::kernels::cpu {
namespace {

// Each activation gives its value and its derivative at g.
template <typename T>
struct Point {
  T value;
  T slope;
};

struct Silu {
  template <typename T>
  static Point<T> at(T g) {
    const T sigmoid = T{1} / (T{1} + fast_exp(-g));
    return {g * sigmoid, sigmoid * (T{1} + g * (T{1} - sigmoid))};
  }
};

struct Gelu {
  template <typename T>
  static Point<T> at(T g) {
    constexpr T kInvSqrt2 = T{0.5} * std::numbers::sqrt2_v<T>;
    constexpr T kInvSqrt2Pi = T{0.5} * std::numbers::sqrt2_v<T> * std::numbers::inv_sqrtpi_v<T>;
    const T cdf = T{0.5} * std::erfc(-g * kInvSqrt2);  // 1 + erf() would cancel far below zero
    return {g * cdf, cdf + g * kInvSqrt2Pi * fast_exp(T{-0.5} * g * g)};
  }
};

struct GeluTanh {
  template <typename T>
  static Point<T> at(T g) {
    constexpr T kScale = std::numbers::sqrt2_v<T> * std::numbers::inv_sqrtpi_v<T>;
    constexpr T kCubic = static_cast<T>(0.044715);
    // (1 + tanh(x)) / 2 as the sigmoid of 2 x: the sum would cancel far below zero.
    const T twice = T{2} * kScale * (g + kCubic * g * g * g);
    const T slope = T{2} * kScale * (T{1} + T{3} * kCubic * g * g);
    const T sigmoid = T{1} / (T{1} + fast_exp(-twice));
    return {g * sigmoid, sigmoid + sigmoid * (T{1} - sigmoid) * g * slope};
  }
};

struct Relu {
  template <typename T>
  static Point<T> at(T g) {
    return {g > T{0} ? g : T{0}, g > T{0} ? T{1} : T{0}};
  }
};

template <typename T, typename Act>
void forward(const GatedActArgs& args) {
  const int64_t f = args.out.cols;
  const auto* rows = args.rows.is_null() ? nullptr : args.rows.row<int32_t>(0);
  const int64_t count = rows == nullptr ? args.x.rows : args.rows.rows;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t r = rows == nullptr ? i : rows[i];
    const T* __restrict gate = args.x.row<T>(r);
    const T* __restrict up = gate + f;
    T* __restrict out = args.out.row<T>(r);
    const T prob = args.probs.is_null() ? T{1} : *args.probs.row<T>(r);
    for (int64_t j = 0; j < f; ++j) out[j] = Act::at(gate[j]).value * up[j] * prob;
  }
}

template <typename T, typename Act>
void backward(const GatedActBackwardArgs& args) {
  const GatedActArgs& saved = args.forward;
  const int64_t f = args.dout.cols;
  const auto* rows = saved.rows.is_null() ? nullptr : saved.rows.row<int32_t>(0);
  const int64_t count = rows == nullptr ? saved.x.rows : saved.rows.rows;
  const bool has_probs = !saved.probs.is_null();
  T* __restrict product = scratch<T>(0, f);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t r = rows == nullptr ? i : rows[i];
    const T* __restrict gate = saved.x.row<T>(r);
    const T* __restrict up = gate + f;
    const T* __restrict dout = args.dout.row<T>(r);
    T* __restrict dgate = args.dx.row<T>(r);
    T* __restrict dup = dgate + f;
    const T prob = has_probs ? *saved.probs.row<T>(r) : T{1};
#pragma GCC ivdep
    for (int64_t j = 0; j < f; ++j) {
      const Point<T> act = Act::at(gate[j]);
      const T weighted = dout[j] * prob;
      dgate[j] = weighted * up[j] * act.slope;
      dup[j] = weighted * act.value;
      product[j] = act.value * up[j];
    }
    if (has_probs && !args.dprobs.is_null()) {
      *args.dprobs.row<T>(r) = static_cast<T>(dot<T>(dout, product, f));
    }
  }
}

template <typename Body>
void with_activation(Activation activation, Body&& body) {
  switch (activation) {
    case Activation::silu:
      return body(Silu{});
    case Activation::gelu:
      return body(Gelu{});
    case Activation::gelu_tanh:
      return body(GeluTanh{});
    case Activation::relu:
      return body(Relu{});
  }
}

}  // namespace

void gated_act(const GatedActArgs& args) {
  MOETUNE_CHECK(args.x.cols == 2 * args.out.cols, "gated_act: x has {} columns, out {}",
                args.x.cols, args.out.cols);
  dispatch(args.x.dtype, [&]<typename T>(std::type_identity<T>) {
    with_activation(args.activation, [&]<typename Act>(Act) { forward<T, Act>(args); });
  });
}

void gated_act_backward(const GatedActBackwardArgs& args) {
  MOETUNE_CHECK(args.forward.x.cols == 2 * args.dout.cols && args.dx.cols == args.forward.x.cols,
                "gated_act_backward: x has {} columns, dx {}, dout {}", args.forward.x.cols,
                args.dx.cols, args.dout.cols);
  dispatch(args.dout.dtype, [&]<typename T>(std::type_identity<T>) {
    with_activation(args.forward.activation, [&]<typename Act>(Act) { backward<T, Act>(args); });
  });
}

}  // namespace moetune::kernels::cpu

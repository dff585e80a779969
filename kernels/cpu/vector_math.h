// Loops over contiguous rows that the compiler turns into vector instructions: reductions with a
// fixed order of summation and an exponential without branches. Every function gives the same bits
// for the same row, whatever its address and whatever was computed before it, so that splitting
// rows over calls changes nothing.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace moetune::kernels::cpu {

/// exp(x) for softmax and activations. float: within 2 ulp; below -87.3 it gives 0 (no subnormals),
/// above 88.37 infinity; NaN stays NaN. Range reduction x = n ln2 + r with ln2 split in two (Cody &
/// Waite 1980), then the Taylor polynomial of degree 7 on |r| <= ln2 / 2, whose remainder is below
/// 6e-9 relative. double: the library's.
inline float fast_exp(float x) {
  constexpr float kLog2e = 1.44269504088896341F;
  constexpr float kLn2High = 0.693359375F;
  constexpr float kLn2Low = -2.12194440e-4F;
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it leaves round(x) in the low bits
  constexpr float kLowest = -87.3F;
  constexpr float kHighest = 88.5F;
  float clamped = x < kLowest ? kLowest : x;
  clamped = clamped > kHighest ? kHighest : clamped;
  const float shifted = clamped * kLog2e + kRound;
  const float n = shifted - kRound;
  const float r = (clamped - n * kLn2High) - n * kLn2Low;
  float p = 1.0F / 5040.0F;
  p = p * r + 1.0F / 720.0F;
  p = p * r + 1.0F / 120.0F;
  p = p * r + 1.0F / 24.0F;
  p = p * r + 1.0F / 6.0F;
  p = p * r + 0.5F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  const uint32_t exponent = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kRound);
  const float result = p * std::bit_cast<float>((exponent + 127U) << 23U);
  return x < kLowest ? 0.0F : result;
}

inline double fast_exp(double x) { return std::exp(x); }

namespace detail {

/// Eight values of T: a 512-bit register of doubles, a 256-bit register of floats.
template <typename T>
struct Pack {
  using Type __attribute__((vector_size(8 * sizeof(T)))) = T;
};

template <typename T>
using PackOf = typename Pack<T>::Type;

inline constexpr int64_t kPack = 8;

/// Sums term(pack of doubles from a, pack from b) over n elements in double. The tail goes through
/// the same lanes, padded with zeros.
template <typename T, typename Term>
double reduce(const T* a, const T* b, int64_t n, Term term) {
  PackOf<double> total = {};
  int64_t i = 0;
  for (; i + kPack <= n; i += kPack) {
    PackOf<T> x;
    PackOf<T> y;
    std::memcpy(&x, a + i, sizeof x);
    std::memcpy(&y, b + i, sizeof y);
    const auto wide_x = __builtin_convertvector(x, PackOf<double>);
    const auto wide_y = __builtin_convertvector(y, PackOf<double>);
    term(total, wide_x, wide_y);
  }
  if (i < n) {
    PackOf<T> x = {};
    PackOf<T> y = {};
    std::memcpy(&x, a + i, static_cast<size_t>(n - i) * sizeof(T));
    std::memcpy(&y, b + i, static_cast<size_t>(n - i) * sizeof(T));
    const auto wide_x = __builtin_convertvector(x, PackOf<double>);
    const auto wide_y = __builtin_convertvector(y, PackOf<double>);
    term(total, wide_x, wide_y);
  }
  return ((total[0] + total[4]) + (total[1] + total[5])) +
         ((total[2] + total[6]) + (total[3] + total[7]));
}

}  // namespace detail

/// Sum of a[i], accumulated in double.
template <typename T>
double sum(const T* a, int64_t n) {
  return detail::reduce(a, a, n, [](auto& total, const auto& x, const auto&) { total += x; });
}

/// Sum of a[i] * b[i], accumulated in double.
template <typename T>
double dot(const T* a, const T* b, int64_t n) {
  return detail::reduce(a, b, n, [](auto& total, const auto& x, const auto& y) { total += x * y; });
}

/// Largest of n >= 1 values. A NaN among them may or may not be the result; the sums that follow
/// will show it.
template <typename T>
T max(const T* a, int64_t n) {
  constexpr int64_t kLanes = 2 * detail::kPack;
  T best = a[0];
  int64_t i = 0;
  if (n >= kLanes) {
    detail::PackOf<T> low;
    detail::PackOf<T> high;
    std::memcpy(&low, a, sizeof low);
    std::memcpy(&high, a + detail::kPack, sizeof high);
    for (i = kLanes; i + kLanes <= n; i += kLanes) {
      detail::PackOf<T> x;
      detail::PackOf<T> y;
      std::memcpy(&x, a + i, sizeof x);
      std::memcpy(&y, a + i + detail::kPack, sizeof y);
      low = x > low ? x : low;
      high = y > high ? y : high;
    }
    low = low > high ? low : high;
    for (int64_t lane = 0; lane < detail::kPack; ++lane) best = low[lane] > best ? low[lane] : best;
  }
  for (; i < n; ++i) best = a[i] > best ? a[i] : best;
  return best;
}

/// x[i] = exp(x[i] - shift).
template <typename T>
void exp_shifted(T* x, int64_t n, T shift) {
  for (int64_t i = 0; i < n; ++i) x[i] = fast_exp(x[i] - shift);
}

/// x[i] *= factor.
template <typename T>
void scale(T* x, int64_t n, T factor) {
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

/// Turns n >= 1 logits into exp(x - max) and returns the log of the sum of exp(x); the sum itself
/// goes to *total.
template <typename T>
T exp_and_lse(T* x, int64_t n, double* total) {
  const T largest = max(x, n);
  exp_shifted(x, n, largest);
  *total = sum(x, n);
  return largest + static_cast<T>(std::log(*total));
}

}  // namespace moetune::kernels::cpu

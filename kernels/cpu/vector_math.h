// Loops over contiguous rows that the compiler turns into vector instructions: reductions with a
// fixed order of summation and an exponential without branches. Every function gives the same bits
// for the same row, whatever its address and whatever was computed before it, so that splitting
// rows over calls changes nothing.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

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
  const float shifted = x * kLog2e + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float p = 1.0F / 5040.0F;
  p = p * r + 1.0F / 720.0F;
  p = p * r + 1.0F / 120.0F;
  p = p * r + 1.0F / 24.0F;
  p = p * r + 1.0F / 6.0F;
  p = p * r + 0.5F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  const uint32_t exponent = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kRound);
  const float inside = p * std::bit_cast<float>((exponent + 127U) << 23U);
  const float bounded = x > kHighest ? std::numeric_limits<float>::infinity() : inside;
  return x < kLowest ? 0.0F : bounded;
}

inline double fast_exp(double x) { return std::exp(x); }

namespace detail {

/// Four doubles fill a 256-bit register. A wider sum would live in memory wherever no register is
/// as wide: every step of the loop would write it and wait to read it back, ten times slower.
using Pack __attribute__((vector_size(4 * sizeof(double)))) = double;

inline constexpr int64_t kPack = 4;

// Packs go in and out by reference: by value they have another calling convention where they are
// no registers. Written as a list, a conversion is one instruction; __builtin_convertvector is
// five.
template <typename T>
void load_wide(const T* from, Pack& to) {
  to = Pack{static_cast<double>(from[0]), static_cast<double>(from[1]),
            static_cast<double>(from[2]), static_cast<double>(from[3])};
}

/// The first `count` values, 1 to 3, and zeros.
template <typename T>
void load_wide(const T* from, int64_t count, Pack& to) {
  to = Pack{static_cast<double>(from[0]), count > 1 ? static_cast<double>(from[1]) : 0.0,
            count > 2 ? static_cast<double>(from[2]) : 0.0, 0.0};
}

/// Sums over n elements in eight lanes of double: element i goes into lane i % 8, also at the end.
/// term(pack of sums, pack of doubles from a, pack from b) adds to four lanes; zeros add nothing.
template <typename T, typename Term>
double reduce(const T* a, const T* b, int64_t n, Term term) {
  Pack low = {};
  Pack high = {};
  Pack x;
  Pack y;
  const auto add_whole = [&](int64_t from, Pack& lanes) {
    load_wide(a + from, x);
    load_wide(b + from, y);
    term(lanes, x, y);
  };
  int64_t i = 0;
  for (; i + 2 * kPack <= n; i += 2 * kPack) {
    add_whole(i, low);
    add_whole(i + kPack, high);
  }
  const bool ends_high = i + kPack <= n;
  if (ends_high) {
    add_whole(i, low);
    i += kPack;
  }
  if (i < n) {
    load_wide(a + i, n - i, x);
    load_wide(b + i, n - i, y);
    if (ends_high) {
      term(high, x, y);
    } else {
      term(low, x, y);
    }
  }
  low += high;
  return (low[0] + low[1]) + (low[2] + low[3]);
}

}  // namespace detail

/// Sum of a[i], accumulated in double.
template <typename T>
double sum(const T* a, int64_t n) {
  return detail::reduce(a, a, n, [](auto& lanes, const auto& x, const auto&) { lanes += x; });
}

/// Sum of a[i] * b[i], accumulated in double.
template <typename T>
double dot(const T* a, const T* b, int64_t n) {
  return detail::reduce(a, b, n, [](auto& lanes, const auto& x, const auto& y) { lanes += x * y; });
}

/// Largest of n >= 1 values. A NaN among them may or may not be the result; the sums that follow
/// will show it.
template <typename T>
T max(const T* a, int64_t n) {
  constexpr int64_t kLanes = 32 / sizeof(T);
  using Vector __attribute__((vector_size(32))) = T;
  T best = a[0];
  int64_t i = 0;
  if (n >= kLanes) {
    Vector lanes;
    std::memcpy(&lanes, a, sizeof lanes);
    for (i = kLanes; i + kLanes <= n; i += kLanes) {
      Vector x;
      std::memcpy(&x, a + i, sizeof x);
      lanes = x > lanes ? x : lanes;
    }
    for (int64_t lane = 0; lane < kLanes; ++lane) best = lanes[lane] > best ? lanes[lane] : best;
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

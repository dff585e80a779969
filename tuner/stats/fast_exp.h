// An exponential without branches or calls, so that a compiler makes loops over it into vector
// code: the sums over grids of levels and noises are made of little else.
#pragma once

#include <bit>
#include <cstdint>

namespace moetune::tuner {

/// exp(x) to within 1e-15 of itself for -300 <= x <= 700. Below -300 (and for NaN) exp(-300), so
/// that the product of two is never denormal, which is slow.
inline double fast_exp(double x) {
  // x = k ln 2 + r with |r| <= ln 2 / 2. Added to 1.5 * 2^52, k stands in the lowest bits; ln 2 is
  // cut in two so that k times the first part is exact (Cody and Waite 1980).
  constexpr double kLeast = -300.0;
  constexpr double kToLowestBits = 0x1.8p52;
  constexpr double kInverseLn2 = 0x1.71547652b82fep0;
  constexpr double kLn2High = 0x1.62e42fee00000p-1;
  constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  x = x > kLeast ? x : kLeast;
  const double shifted = x * kInverseLn2 + kToLowestBits;
  const double k = shifted - kToLowestBits;
  const double r = (x - k * kLn2High) - k * kLn2Low;
  // Taylor's series: the first term left out is below 2e-16.
  double sum = 1.0 / 479001600;
  sum = sum * r + 1.0 / 39916800;
  sum = sum * r + 1.0 / 3628800;
  sum = sum * r + 1.0 / 362880;
  sum = sum * r + 1.0 / 40320;
  sum = sum * r + 1.0 / 5040;
  sum = sum * r + 1.0 / 720;
  sum = sum * r + 1.0 / 120;
  sum = sum * r + 1.0 / 24;
  sum = sum * r + 1.0 / 6;
  sum = sum * r + 1.0 / 2;
  sum = sum * r + 1.0;
  sum = sum * r + 1.0;
  // 2^k: k plus the exponent's bias, in the exponent's place.
  constexpr uint64_t kBias = 1023;
  constexpr int kExponentBit = 52;
  return sum * std::bit_cast<double>((std::bit_cast<uint64_t>(shifted) + kBias) << kExponentBit);
}

}  // namespace moetune::tuner

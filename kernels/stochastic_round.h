// Stochastic rounding to bf16: up with a probability equal to the fraction that is cut off, so that
// the mean of many roundings is the number itself. The random numbers are counted, not drawn one
// after another: who rounds an element, and when, changes no bit. Plain C++ of constants only, so
// that the device's compiler takes the same code and both get the same bits.
#pragma once

#include <cstdint>

namespace moetune::kernels {

namespace detail {

inline constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;

/// The output function of SplitMix64 (Steele, Lea & Flood, OOPSLA 2014): a bijection whose every
/// output bit depends on every input bit.
constexpr uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EB;
  return x ^ (x >> 31U);
}

}  // namespace detail

/// Selects the draws of one step: steps next to each other, and seeds, have unlike ones.
constexpr uint64_t rounding_key(uint64_t seed, int64_t step) {
  return detail::mix(detail::mix(seed + detail::kGolden) + static_cast<uint64_t>(step));
}

/// 64 random bits for an element, the element-th number of a SplitMix64 sequence: enough for four
/// independent roundings of 16 bits each.
constexpr uint64_t rounding_bits(uint64_t key, int64_t element) {
  return detail::mix(key + (static_cast<uint64_t>(element) + 1) * detail::kGolden);
}

/// The two roundings of AdamW's moments from one element's random bits.
constexpr uint32_t draw_of_m(uint64_t bits) { return static_cast<uint32_t>(bits >> 48U); }
constexpr uint32_t draw_of_v(uint64_t bits) { return static_cast<uint32_t>(bits >> 32U) & 0xFFFFU; }

/// The bits of a bf16 from those of a float and a draw in [0, 65536): of the draws, as many round
/// up (away from zero) as the lower half of the float's bits says. NaN stays NaN; what has no bf16
/// on its far side becomes infinite.
constexpr uint16_t stochastic_bf16(uint32_t float_bits, uint32_t draw) {
  constexpr uint32_t kExponent = 0x7F800000;
  constexpr uint32_t kQuiet = 0x00400000;
  if ((float_bits & kExponent) == kExponent) {
    const bool is_nan = (float_bits & ~(kExponent | 0x80000000U)) != 0;
    return static_cast<uint16_t>((is_nan ? float_bits | kQuiet : float_bits) >> 16U);
  }
  return static_cast<uint16_t>((float_bits + draw) >> 16U);
}

}  // namespace moetune::kernels

// Counter-based random numbers: the value at an index does not depend on who asks, so any sharding
// of a parameter starts from identical weights.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>

#include "kernels/base/fnv.h"

namespace moetune::engine {

/// Philox-4x32-10 (Salmon et al., SC'11): 128 random bits from a 128-bit counter and a 64-bit key.
inline std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, uint64_t key) {
  auto k0 = static_cast<uint32_t>(key);
  auto k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ k0, static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return counter;
}

/// A seed and a name as a key.
inline uint64_t philox_key(uint64_t seed, std::string_view name) {
  return base::fnv_of(name, base::kFnvStart ^ (seed * 0x9E3779B97F4A7C15));
}

/// Uniform integer in [0, bound) for a key and an index.
inline uint64_t philox_uniform(uint64_t key, uint64_t index, uint64_t bound) {
  const auto bits =
      philox({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0, 1}, key);
  const uint64_t wide = (uint64_t{bits[0]} << 32) | bits[1];
  return static_cast<uint64_t>((static_cast<unsigned __int128>(wide) * bound) >> 64);
}

/// Standard normal number for a key and an index (Box-Muller).
inline double philox_normal(uint64_t key, uint64_t index) {
  const auto bits =
      philox({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0, 0}, key);
  const double u1 = (static_cast<double>(bits[0]) + 1.0) / 4294967297.0;
  const double u2 = (static_cast<double>(bits[1]) + 0.5) / 4294967296.0;
  return std::sqrt(-2.0 * std::log(u1)) * std::cos(2.0 * std::numbers::pi * u2);
}

}  // namespace moetune::engine

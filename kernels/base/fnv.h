// 64-bit FNV-1a (Fowler, Noll, Vo): a hash that is the same on every machine, without cryptographic
// strength.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace moetune::base {

/// Of nothing.
inline constexpr uint64_t kFnvStart = 0xcbf29ce484222325;

/// With one more byte, or whatever takes the place of one.
constexpr uint64_t fnv_with(uint64_t hash, uint64_t value) {
  return (hash ^ value) * 0x100000001b3;
}

constexpr uint64_t fnv_of(std::string_view bytes, uint64_t start = kFnvStart) {
  uint64_t hash = start;
  for (const char c : bytes) hash = fnv_with(hash, static_cast<unsigned char>(c));
  return hash;
}

/// fnv_of as 16 hexadecimal digits.
std::string fnv_digits(std::string_view bytes);

}  // namespace moetune::base

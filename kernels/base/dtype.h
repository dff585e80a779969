// Element types of device memory.
#pragma once

#include <bit>
#include <cstdint>

namespace moetune::base {

enum class DType : uint8_t { f32, f64, i32, bf16 };

constexpr int64_t size_of(DType dtype) {
  if (dtype == DType::bf16) return 2;
  return dtype == DType::f64 ? 8 : 4;
}

constexpr const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::f64:
      return "f64";
    case DType::i32:
      return "i32";
    case DType::bf16:
      return "bf16";
  }
  return "?";
}

/// The nearest bf16, ties to even; its bits. NaN stays NaN.
inline uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<uint16_t>((bits >> 16U) | 0x40U);
  return static_cast<uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U);
}

inline float from_bf16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16U);
}

}  // namespace moetune::base

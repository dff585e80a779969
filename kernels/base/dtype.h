// Element types of device memory.
#pragma once

#include <cstdint>

namespace moetune::base {

enum class DType : uint8_t { f32, f64, i32 };

constexpr int64_t size_of(DType dtype) { return dtype == DType::f64 ? 8 : 4; }

constexpr const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::f64:
      return "f64";
    case DType::i32:
      return "i32";
  }
  return "?";
}

}  // namespace moetune::base

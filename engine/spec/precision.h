// Which element type each class of device memory has, from a trial's dtype.
#pragma once

#include <string>

#include "kernels/base/dtype.h"

namespace moetune::spec {

/// What a buffer holds, which decides its type.
enum class Content : uint8_t {
  element,  ///< activations: operands and results of the products
  stat,     ///< row statistics, everything of the router, probabilities: reduced over long rows
  index,    ///< i32
};

/// Mixed precision as Megatron-LM trains: bf16 products, fp32 statistics, gradients and master
/// weights; AdamW's moments in bf16. With f32 and f64 everything has that type.
struct Precision {
  base::DType element = base::DType::f32;  ///< activations and weights
  base::DType stat = base::DType::f32;     ///< statistics, gradients of weights, master weights
  base::DType moment = base::DType::f32;   ///< AdamW's m and v

  [[nodiscard]] base::DType of(Content content) const {
    if (content == Content::index) return base::DType::i32;
    return content == Content::stat ? stat : element;
  }
};

/// `dtype` is f32, f64 or bf16.
inline Precision precision_of(const std::string& dtype) {
  using base::DType;
  if (dtype == "f64") return {DType::f64, DType::f64, DType::f64};
  if (dtype == "bf16") return {DType::bf16, DType::f32, DType::bf16};
  return {};
}

}  // namespace moetune::spec

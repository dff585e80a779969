// Which element type each class of device memory has, from a trial's dtype and knobs.
#pragma once

#include "engine/spec/knobs.h"
#include "kernels/base/dtype.h"

namespace moetune::spec {

/// What a buffer holds, which decides its type.
enum class Content : uint8_t {
  element,  ///< activations: operands and results of the products
  stat,     ///< row statistics, everything of the router, probabilities: reduced over long rows
  index,    ///< i32
};

/// Mixed precision as Megatron-LM trains: bf16 products, fp32 statistics, gradients and master
/// weights. With f32 and f64 everything has that type. AdamW's moments are as wide as the master
/// weights, or bf16 where a knob says so.
struct Precision {
  base::DType element = base::DType::f32;  ///< activations and weights
  base::DType stat = base::DType::f32;     ///< statistics, gradients of weights, master weights
  base::DType m = base::DType::f32;        ///< AdamW's first moment
  base::DType v = base::DType::f32;        ///< and its second

  [[nodiscard]] base::DType of(Content content) const {
    if (content == Content::index) return base::DType::i32;
    return content == Content::stat ? stat : element;
  }
};

/// `dtype` is f32, f64 or bf16.
inline Precision precision_of(base::DType dtype, const Knobs& knobs) {
  using base::DType;
  Precision precision;
  if (dtype == DType::f64) precision.element = precision.stat = DType::f64;
  if (dtype == DType::bf16) precision.element = DType::bf16;
  const auto moment = [&](MomentType type) {
    return type == MomentType::bf16 ? DType::bf16 : precision.stat;
  };
  precision.m = moment(knobs.exp_avg_dtype);
  precision.v = moment(knobs.exp_avg_sq_dtype);
  return precision;
}

}  // namespace moetune::spec

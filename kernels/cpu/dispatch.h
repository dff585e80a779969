// Picks the float or double instance of an operation from a run-time dtype.
#pragma once

#include <type_traits>

#include "kernels/base/dtype.h"
#include "kernels/base/error.h"

namespace moetune::kernels::cpu {

/// Calls body(std::type_identity<T>{}) with T = float or double.
template <typename Body>
void dispatch(base::DType dtype, Body&& body) {
  MOETUNE_CHECK(dtype == base::DType::f32 || dtype == base::DType::f64,
                "the CPU computes in f32 and f64, not in {}", base::name_of(dtype));
  if (dtype == base::DType::f64) {
    body(std::type_identity<double>{});
  } else {
    body(std::type_identity<float>{});
  }
}

}  // namespace moetune::kernels::cpu

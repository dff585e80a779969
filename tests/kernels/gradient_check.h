// Central differences in double precision: the independent witness of every backward operation.
#pragma once

#include <functional>

#include "tests/kernels/kernel_fixture.h"

namespace moetune::kernels {

/// d loss / d x by central differences, element by element. `loss` reads x afresh at each call. The
/// error of the difference is about eps^2 (curvature) plus 1e-16 / eps (rounding), so eps 1e-5
/// leaves about 1e-10.
inline Matrix<double> numeric_gradient(const std::function<double()>& loss, Matrix<double>& x,
                                       double eps = 1e-5) {
  Matrix<double> gradient(x.rows(), x.cols());
  for (int64_t r = 0; r < x.rows(); ++r) {
    for (int64_t c = 0; c < x.cols(); ++c) {
      const double kept = x(r, c);
      x(r, c) = kept + eps;
      const double above = loss();
      x(r, c) = kept - eps;
      const double below = loss();
      x(r, c) = kept;
      gradient(r, c) = (above - below) / (2.0 * eps);
    }
  }
  return gradient;
}

/// Relative distance of an analytic gradient from the numeric one.
inline double gradient_error(const std::function<double()>& loss, Matrix<double>& x,
                             const Matrix<double>& analytic) {
  return relative_error(analytic, numeric_gradient(loss, x));
}

}  // namespace moetune::kernels

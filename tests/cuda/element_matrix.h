// On top of the fixture: matrices between element types, and NaN counted.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "tests/cuda/cuda_fixture.h"

namespace moetune::kernels {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// f32 values in T, rounded to nearest even, with row distance `ld` (0: none but the columns).
template <typename T>
Matrix<T> narrowed(const Matrix<float>& values, int64_t ld = 0) {
  Matrix<T> matrix(values.rows(), values.cols(), ld);
  for (int64_t r = 0; r < values.rows(); ++r) {
    for (int64_t c = 0; c < values.cols(); ++c) matrix(r, c) = static_cast<T>(values(r, c));
  }
  return matrix;
}

/// Random values that T can hold, in f32.
template <typename T>
Matrix<float> random_values(int64_t rows, int64_t cols, uint64_t seed, double low = -1.0,
                            double high = 1.0) {
  return widened(random_matrix<T>(rows, cols, seed, 0, low, high));
}

/// The relative L2 error of a result in any element type.
template <typename T>
double error_of(const Matrix<T>& result, const Matrix<float>& expected) {
  return relative_error(widened(result), expected);
}

template <typename T>
int64_t num_nan(const Matrix<T>& matrix) {
  int64_t found = 0;
  for (int64_t r = 0; r < matrix.rows(); ++r) {
    for (int64_t c = 0; c < matrix.cols(); ++c) {
      found += std::isnan(static_cast<float>(matrix(r, c))) ? 1 : 0;
    }
  }
  return found;
}

/// A double in device memory.
inline double* number_on(OnDevice& device, const Matrix<double>& number) {
  return static_cast<double*>(device(number).data);
}

inline Matrix<double> number(double value) { return Matrix<double>(1, 1).fill(value); }

}  // namespace moetune::kernels

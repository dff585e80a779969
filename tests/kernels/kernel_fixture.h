// What the kernel tests share: matrices in backend memory, reproducible random numbers and the
// finite-difference check of a backward operation.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <random>
#include <vector>

#include "kernels/backend.h"
#include "kernels/tensor.h"

namespace moetune::kernels {

template <typename T>
constexpr DType kDTypeOf = DType::f32;
template <>
inline constexpr DType kDTypeOf<double> = DType::f64;
template <>
inline constexpr DType kDTypeOf<int32_t> = DType::i32;

/// A matrix owned by a test. Fresh elements are NaN (or -1), so an output that is not written
/// shows.
template <typename T>
class Matrix {
 public:
  Matrix(int64_t rows, int64_t cols, int64_t ld = 0)
      : rows_(rows), cols_(cols), ld_(ld == 0 ? cols : ld), data_(rows * ld_) {
    if (!data_.empty()) std::memset(data_.data(), 0xFF, data_.size() * sizeof(T));
  }

  T& operator()(int64_t r, int64_t c) { return data_[r * ld_ + c]; }
  const T& operator()(int64_t r, int64_t c) const { return data_[r * ld_ + c]; }
  [[nodiscard]] int64_t rows() const { return rows_; }
  [[nodiscard]] int64_t cols() const { return cols_; }
  std::vector<T>& data() { return data_; }

  [[nodiscard]] Tensor tensor() const {
    return {const_cast<T*>(data_.data()), kDTypeOf<T>, rows_, cols_, ld_};
  }
  operator Tensor() const { return tensor(); }  // NOLINT: tests read better

  Matrix& fill(T value) {
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = 0; c < cols_; ++c) (*this)(r, c) = value;
    }
    return *this;
  }

  /// Uniform in [low, high), the same for the same seed in float and double.
  Matrix& fill_random(uint64_t seed, double low = -1.0, double high = 1.0) {
    std::mt19937_64 generator(seed);
    std::uniform_real_distribution<double> uniform(low, high);
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = 0; c < cols_; ++c) (*this)(r, c) = static_cast<T>(uniform(generator));
    }
    return *this;
  }

  /// True when every element has the same bits.
  [[nodiscard]] bool same_bits(const Matrix& other) const {
    if (rows_ != other.rows_ || cols_ != other.cols_) return false;
    if (cols_ == 0) return true;  // no element has an address
    for (int64_t r = 0; r < rows_; ++r) {
      if (std::memcmp(&(*this)(r, 0), &other(r, 0), static_cast<size_t>(cols_) * sizeof(T)) != 0) {
        return false;
      }
    }
    return true;
  }

 private:
  int64_t rows_;
  int64_t cols_;
  int64_t ld_;
  std::vector<T> data_;
};

inline Matrix<int32_t> column_of(std::initializer_list<int32_t> values) {
  Matrix<int32_t> matrix(static_cast<int64_t>(values.size()), 1);
  matrix.data() = values;
  return matrix;
}

inline Matrix<int32_t> column_of(const std::vector<int32_t>& values) {
  Matrix<int32_t> matrix(static_cast<int64_t>(values.size()), 1);
  matrix.data() = values;
  return matrix;
}

/// |a - b| / |b| over all elements (|a| when b is zero). NaN anywhere gives NaN, which fails every
/// comparison.
template <typename A, typename B>
double relative_error(const Matrix<A>& a, const Matrix<B>& b) {
  double difference = 0.0;
  double norm = 0.0;
  for (int64_t r = 0; r < b.rows(); ++r) {
    for (int64_t c = 0; c < b.cols(); ++c) {
      const auto x = static_cast<double>(a(r, c));
      const auto y = static_cast<double>(b(r, c));
      difference += (x - y) * (x - y);
      norm += y * y;
    }
  }
  return std::sqrt(difference) / (norm > 0.0 ? std::sqrt(norm) : 1.0);
}

/// op(a) * op(b) + (accumulate ? c : 0) by plain loops in double.
template <typename T>
Matrix<double> naive_product(const Matrix<T>& a, bool trans_a, const Matrix<T>& b, bool trans_b,
                             const Matrix<T>& c, bool accumulate) {
  Matrix<double> product(c.rows(), c.cols());
  for (int64_t i = 0; i < c.rows(); ++i) {
    for (int64_t j = 0; j < c.cols(); ++j) {
      double total = accumulate ? static_cast<double>(c(i, j)) : 0.0;
      for (int64_t p = 0; p < (trans_a ? a.rows() : a.cols()); ++p) {
        total += static_cast<double>(trans_a ? a(p, i) : a(i, p)) *
                 static_cast<double>(trans_b ? b(j, p) : b(p, j));
      }
      product(i, j) = total;
    }
  }
  return product;
}

/// Sum of weights .* values: a scalar loss whose gradient with respect to `values` is `weights`.
template <typename T>
double weighted_sum(const Matrix<T>& weights, const Matrix<T>& values) {
  double total = 0.0;
  for (int64_t r = 0; r < values.rows(); ++r) {
    for (int64_t c = 0; c < values.cols(); ++c) {
      total += static_cast<double>(weights(r, c)) * static_cast<double>(values(r, c));
    }
  }
  return total;
}

/// The tolerance of a forward result against naive loops.
template <typename T>
constexpr double kForwardTolerance = sizeof(T) == 8 ? 1e-13 : 1e-6;

/// The tolerance of gradients against central differences in double.
inline constexpr double kGradientTolerance = 1e-6;

struct BackendFixture {
  std::unique_ptr<Backend> backend = make_cpu_backend();
};

}  // namespace moetune::kernels

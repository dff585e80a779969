// A non-owning view of a matrix in device memory. Everything in the engine is a matrix: [rows,
// cols] with a row stride, rows being tokens wherever there are tokens; heads and experts are
// folded into cols or rows.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"

namespace moetune::kernels {

using base::DType;

/// Row-major view. `ld` is the distance between rows in elements. A null view has data == nullptr
/// and no elements.
struct Tensor {
  void* data = nullptr;
  DType dtype = DType::f32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t ld = 0;

  static Tensor matrix(void* data, DType dtype, int64_t rows, int64_t cols) {
    return {data, dtype, rows, cols, cols};
  }

  [[nodiscard]] int64_t numel() const { return rows * cols; }
  [[nodiscard]] int64_t bytes() const { return numel() * base::size_of(dtype); }
  [[nodiscard]] bool is_null() const { return data == nullptr; }
  [[nodiscard]] bool is_contiguous() const { return ld == cols || rows <= 1; }

  template <typename T>
  [[nodiscard]] T* row(int64_t r) const {
    assert(sizeof(T) == static_cast<size_t>(base::size_of(dtype)));
    return static_cast<T*>(data) + r * ld;
  }

  /// Columns [begin, begin + count) of every row.
  [[nodiscard]] Tensor columns(int64_t begin, int64_t count) const {
    assert(begin >= 0 && begin + count <= cols);
    return {static_cast<char*>(data) + begin * base::size_of(dtype), dtype, rows, count, ld};
  }

  /// Rows [begin, begin + count).
  [[nodiscard]] Tensor row_range(int64_t begin, int64_t count) const {
    assert(begin >= 0 && begin + count <= rows);
    return {static_cast<char*>(data) + begin * ld * base::size_of(dtype), dtype, count, cols, ld};
  }

  /// The same elements seen as [new_rows, new_cols]; needs a contiguous view.
  [[nodiscard]] Tensor reshape(int64_t new_rows, int64_t new_cols) const {
    assert(is_contiguous() && new_rows * new_cols == numel());
    return {data, dtype, new_rows, new_cols, new_cols};
  }
};

}  // namespace moetune::kernels

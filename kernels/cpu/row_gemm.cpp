// Register-blocked loops on the compiler's vector types, one chain of multiply-adds for each
// element. Compiled with fused multiply-adds.
#include "kernels/cpu/row_gemm.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <experimental/simd>

#include "kernels/cpu/scratch.h"

namespace moetune::kernels::cpu {
namespace {

// The tile of c that stays in registers: kRows x two vectors. 8 x 2 of the 32 registers of AVX-512,
// 6 x 2 of the 16 that AVX2 has.
template <typename T>
struct Tile {
  static constexpr int64_t kLanes = std::experimental::native_simd<T>::size();
  static constexpr int64_t kRows = kLanes * sizeof(T) == 64 ? 8 : 6;
  static constexpr int64_t kCols = 2 * kLanes;
  using Vector __attribute__((vector_size(kLanes * sizeof(T)))) = T;
};

template <typename T>
using RowPointers = std::array<const T*, Tile<T>::kRows>;

// One tile: c[m][0..kCols) = (accumulate ? c : 0) + sum over k of a[m][k * step] * b[k * ldb +
// 0..kCols).
template <typename T>
void multiply_tile(int64_t k, const RowPointers<T>& a, int64_t step, const T* b, int64_t ldb,
                   bool accumulate, const std::array<T*, Tile<T>::kRows>& c) {
  using Vector = typename Tile<T>::Vector;
  constexpr int64_t kRows = Tile<T>::kRows;
  constexpr int64_t kLanes = Tile<T>::kLanes;
  // Every loop over rows is unrolled, also those that run once: the sums then have a register each
  // from the first to the last. An array of them would be filled, read and stored through memory.
  Vector low[kRows];
  Vector high[kRows];
#pragma GCC unroll 8
  for (int64_t m = 0; m < kRows; ++m) low[m] = high[m] = Vector{};
  if (accumulate) {
#pragma GCC unroll 8
    for (int64_t m = 0; m < kRows; ++m) {
      std::memcpy(&low[m], c[m], sizeof(Vector));
      std::memcpy(&high[m], c[m] + kLanes, sizeof(Vector));
    }
  }
  for (int64_t p = 0; p < k; ++p, b += ldb) {
    Vector b_low;
    Vector b_high;
    std::memcpy(&b_low, b, sizeof(Vector));
    std::memcpy(&b_high, b + kLanes, sizeof(Vector));
#pragma GCC unroll 8
    for (int64_t m = 0; m < kRows; ++m) {
      const T factor = a[m][p * step];
      low[m] += factor * b_low;
      high[m] += factor * b_high;
    }
  }
#pragma GCC unroll 8
  for (int64_t m = 0; m < kRows; ++m) {
    std::memcpy(c[m], &low[m], sizeof(Vector));
    std::memcpy(c[m] + kLanes, &high[m], sizeof(Vector));
  }
}

// Eight rows of eight values become eight columns. Each half of the columns is loaded with row i
// beside row i + 4, so that the rest are two blocks of four by four, side by side: shuffles that do
// not cross 128 bits of four floats, which AVX2 has as single instructions.
template <typename T>
void transpose_8x8(const T* from, int64_t from_ld, T* to, int64_t to_ld) {
  using Four __attribute__((vector_size(4 * sizeof(T)))) = T;
  using Eight __attribute__((vector_size(8 * sizeof(T)))) = T;
#pragma GCC unroll 2
  for (int64_t first = 0; first < 8; first += 4) {
    Eight rows[4];
#pragma GCC unroll 4
    for (int64_t i = 0; i < 4; ++i) {
      Four upper;
      Four lower;
      std::memcpy(&upper, from + i * from_ld + first, sizeof(Four));
      std::memcpy(&lower, from + (i + 4) * from_ld + first, sizeof(Four));
      rows[i] = __builtin_shufflevector(upper, lower, 0, 1, 2, 3, 4, 5, 6, 7);
    }
    const Eight low_01 = __builtin_shufflevector(rows[0], rows[1], 0, 8, 1, 9, 4, 12, 5, 13);
    const Eight low_23 = __builtin_shufflevector(rows[2], rows[3], 0, 8, 1, 9, 4, 12, 5, 13);
    const Eight high_01 = __builtin_shufflevector(rows[0], rows[1], 2, 10, 3, 11, 6, 14, 7, 15);
    const Eight high_23 = __builtin_shufflevector(rows[2], rows[3], 2, 10, 3, 11, 6, 14, 7, 15);
    const Eight columns[4] = {
        __builtin_shufflevector(low_01, low_23, 0, 1, 8, 9, 4, 5, 12, 13),
        __builtin_shufflevector(low_01, low_23, 2, 3, 10, 11, 6, 7, 14, 15),
        __builtin_shufflevector(high_01, high_23, 0, 1, 8, 9, 4, 5, 12, 13),
        __builtin_shufflevector(high_01, high_23, 2, 3, 10, 11, 6, 7, 14, 15),
    };
#pragma GCC unroll 4
    for (int64_t i = 0; i < 4; ++i) {
      std::memcpy(to + (first + i) * to_ld, &columns[i], sizeof(Eight));
    }
  }
}

// The part of b that one column of tiles needs: b(p, n) for p < k and n < count, as [k, kCols]
// padded with zeros.
template <typename T>
void pack_panel(const T* b, int64_t ldb, bool trans_b, int64_t k, int64_t count, T* panel) {
  constexpr int64_t kCols = Tile<T>::kCols;
  if (count < kCols) std::fill_n(panel, k * kCols, T{0});
  if (!trans_b) {
    for (int64_t p = 0; p < k; ++p) {
      std::memcpy(panel + p * kCols, b + p * ldb, static_cast<size_t>(count) * sizeof(T));
    }
    return;
  }
  const int64_t whole_k = k / 8 * 8;
  const int64_t whole_count = count / 8 * 8;
  for (int64_t n = 0; n < whole_count; n += 8) {
    for (int64_t p = 0; p < whole_k; p += 8) {
      transpose_8x8(b + n * ldb + p, ldb, panel + p * kCols + n, kCols);
    }
  }
  for (int64_t n = 0; n < count; ++n) {
    for (int64_t p = n < whole_count ? whole_k : 0; p < k; ++p) {
      panel[p * kCols + n] = b[n * ldb + p];
    }
  }
}

// Where the rows of c lie.
template <typename T>
struct ResultRows {
  T* data;
  int64_t ld;
  const int32_t* list;

  [[nodiscard]] T* row(int64_t m) const { return data + (list == nullptr ? m : list[m]) * ld; }
};

// Columns [first_col, first_col + num_cols) of c, num_cols <= kCols, from a packed or wide enough
// panel of b.
template <typename T>
void multiply_panel(int64_t num_rows, int64_t k, const LeftRows<T>& a, const T* panel,
                    int64_t panel_ld, bool accumulate, const ResultRows<T>& c, int64_t first_col,
                    int64_t num_cols) {
  constexpr int64_t kRows = Tile<T>::kRows;
  constexpr int64_t kCols = Tile<T>::kCols;
  alignas(64) T edge[kRows][kCols] = {};
  for (int64_t first_row = 0; first_row < num_rows; first_row += kRows) {
    const int64_t count = std::min(kRows, num_rows - first_row);
    RowPointers<T> a_rows;
    std::array<T*, kRows> c_rows;
    for (int64_t m = 0; m < kRows; ++m) {
      // Rows beyond the last repeat it; their results land in `edge` and are dropped.
      const int64_t row = first_row + std::min(m, count - 1);
      a_rows[m] = a.data + (a.list == nullptr ? row : a.list[row]) * a.ld;
      const bool is_edge = m >= count || num_cols < kCols;
      c_rows[m] = is_edge ? edge[m] : c.row(row) + first_col;
      if (is_edge && accumulate) {
        std::memcpy(edge[m], c.row(row) + first_col, static_cast<size_t>(num_cols) * sizeof(T));
      }
    }
    // The next tile of c is fetched while this one is summed up. Gradients of weights come from
    // memory, and rows of c lie too far apart for the processor to guess the next.
    for (int64_t m = first_row + kRows; m < std::min(first_row + 2 * kRows, num_rows); ++m) {
      __builtin_prefetch(c.row(m) + first_col, 1);
      __builtin_prefetch(c.row(m) + first_col + Tile<T>::kLanes, 1);
    }
    multiply_tile<T>(k, a_rows, a.step, panel, panel_ld, accumulate, c_rows);
    if (num_cols == kCols) continue;
    for (int64_t m = 0; m < count; ++m) {
      std::memcpy(c.row(first_row + m) + first_col, edge[m],
                  static_cast<size_t>(num_cols) * sizeof(T));
    }
  }
}

// k is cut so that a panel stays in the first-level cache. Storing c and loading it again between
// cuts is exact.
constexpr int64_t kBlockDepth = 256;
// A panel is also copied when its rows lie far apart (they would evict each other) and the copy is
// used often enough.
constexpr int64_t kFarStride = 512;
constexpr int64_t kManyRows = 128;

}  // namespace

template <typename T>
void row_gemm(int64_t num_rows, int64_t n, int64_t k, const LeftRows<T>& a, const T* b, int64_t ldb,
              bool trans_b, bool accumulate, T* c, int64_t ldc, const int32_t* c_list) {
  constexpr int64_t kCols = Tile<T>::kCols;
  const ResultRows<T> result{c, ldc, c_list};
  if (k == 0 && !accumulate) {
    for (int64_t m = 0; m < num_rows; ++m) std::fill_n(result.row(m), n, T{0});
  }
  T* panel = scratch<T>(kGemmScratchSlot, std::min(k, kBlockDepth) * kCols);
  for (int64_t first_k = 0; first_k < k; first_k += kBlockDepth) {
    const int64_t depth = std::min(kBlockDepth, k - first_k);
    LeftRows<T> a_block = a;
    a_block.data += first_k * a.step;
    for (int64_t first_col = 0; first_col < n; first_col += kCols) {
      const int64_t num_cols = std::min(kCols, n - first_col);
      const T* b_block = trans_b ? b + first_col * ldb + first_k : b + first_k * ldb + first_col;
      const bool is_far = ldb >= kFarStride && num_rows >= kManyRows;
      const bool packed = trans_b || num_cols < kCols || is_far;
      if (packed) pack_panel(b_block, ldb, trans_b, depth, num_cols, panel);
      multiply_panel<T>(num_rows, depth, a_block, packed ? panel : b_block, packed ? kCols : ldb,
                        accumulate || first_k > 0, result, first_col, num_cols);
    }
  }
}

template void row_gemm<float>(int64_t, int64_t, int64_t, const LeftRows<float>&, const float*,
                              int64_t, bool, bool, float*, int64_t, const int32_t*);
template void row_gemm<double>(int64_t, int64_t, int64_t, const LeftRows<double>&, const double*,
                               int64_t, bool, bool, double*, int64_t, const int32_t*);

}  // namespace moetune::kernels::cpu

// How matrices are cut over threads when each element is used once: threads along x share a row,
// each with a few units (packs or single elements), and a block holds several rows along y.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"

namespace moetune::kernels::cuda {

/// Units of one row that a thread has in flight at a time.
inline constexpr int kUnitsInFlight = 4;

inline constexpr int kTileThreads = 256;

/// Threads for a row of `units` at `per_thread` each: a power of two within a warp, so that rows
/// can share it, else whole warps.
inline int row_threads(int64_t units, int64_t per_thread) {
  const int64_t wanted = ceil_div(units, per_thread);
  if (wanted > kWarp) return static_cast<int>(ceil_div(wanted, kWarp) * kWarp);
  int threads = 1;
  while (threads < wanted) threads *= 2;
  return threads;
}

/// Blocks of 256 threads for rows of `units`: rows over x, and what does not fit into a block of a
/// row over y.
inline LaunchShape tile_rows(int64_t rows, int64_t units) {
  const int threads = std::min(row_threads(units, kUnitsInFlight), kTileThreads);
  const int per_block = kTileThreads / threads;
  const int64_t columns = ceil_div(units, int64_t{threads} * kUnitsInFlight);
  LaunchShape shape;
  shape.grid = dim3(static_cast<unsigned>(std::min<int64_t>(ceil_div(rows, per_block), INT32_MAX)),
                    static_cast<unsigned>(std::min<int64_t>(columns, UINT16_MAX)));
  shape.block = dim3(static_cast<unsigned>(threads), static_cast<unsigned>(per_block));
  return shape;
}

/// The calling thread's rows and, within a row, its units.
struct RowTile {
  __device__ static int64_t first_row() {
    return static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  }
  __device__ static int64_t row_step() { return static_cast<int64_t>(gridDim.x) * blockDim.y; }
  __device__ static int64_t first_unit() {
    return static_cast<int64_t>(blockIdx.y) * blockDim.x * kUnitsInFlight + threadIdx.x;
  }
  /// From one batch of kUnitsInFlight units, blockDim.x apart, to the next.
  __device__ static int64_t unit_step() {
    return static_cast<int64_t>(gridDim.y) * blockDim.x * kUnitsInFlight;
  }
};

/// A matrix whose pointer and row distance a kernel gets.
template <typename T>
struct Rows {
  T* data;
  int64_t ld;

  explicit Rows(const Tensor& tensor) : data(static_cast<T*>(tensor.data)), ld(tensor.ld) {}
  __device__ T* at(int64_t row) const { return data + row * ld; }
};

/// A list of row numbers; null stands for 0, 1, 2, ...
inline const int32_t* index_of(const Tensor& list) {
  return static_cast<const int32_t*>(list.data);
}

/// Stops the kernel, and with it the context, when a row from a list does not exist: going on would
/// train on somebody else's memory.
__device__ inline void check_row(int64_t row, int64_t num_rows) {
  if (row < 0 || row >= num_rows) __trap();
}

/// Moves rows without looking into them: y[to[i], :] = x[from[i] / divisor, :] for i < count, where
/// a null list stands for i itself. Both tensors have the same columns and elements of one size. x
/// may be some of the rows that the list can name, from `first` of `total` on: rows that it does
/// not have are zeros.
struct RowMove {
  Tensor x;
  Tensor y;
  const int32_t* from = nullptr;
  const int32_t* to = nullptr;
  int64_t count = 0;
  int64_t divisor = 1;
  int64_t first = 0;
  int64_t total = 0;  ///< 0: x has all of them
};
void move_rows(Stream stream, const RowMove& move);

}  // namespace moetune::kernels::cuda

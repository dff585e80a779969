// Copies between element types, sums of columns, and the bias pair. A copy that changes nothing
// moves bytes, whatever its elements are.
#include "kernels/cuda/row_tiles.cuh"
#include "kernels/cuda/scratch.h"

namespace moetune::kernels::cuda {
namespace {

constexpr int kColumnThreads = 1024;
constexpr int kRowsInFlight = 4;  ///< of a thread that sums columns
constexpr int kWide = 8;  ///< elements per thread where types differ: 16 bytes of bf16, 32 of f32

template <typename From, typename To, int N>
__global__ void __launch_bounds__(kTileThreads)
    convert(Rows<const From> x, Rows<To> y, int64_t rows, int64_t packs, bool accumulate) {
  const int64_t apart = blockDim.x;
  for (int64_t row = RowTile::first_row(); row < rows; row += RowTile::row_step()) {
    for (int64_t unit = RowTile::first_unit(); unit < packs; unit += RowTile::unit_step()) {
      Pack<From, N> held[kUnitsInFlight] = {};
      Pack<To, N> to[kUnitsInFlight] = {};
#pragma unroll
      for (int k = 0; k < kUnitsInFlight; ++k) {
        const int64_t pack = unit + k * apart;
        if (pack >= packs) continue;
        held[k] = load_pack<From, N>(x.at(row) + pack * N);
        if (accumulate) to[k] = load_pack<To, N>(y.at(row) + pack * N);
      }
#pragma unroll
      for (int k = 0; k < kUnitsInFlight; ++k) {
        const int64_t pack = unit + k * apart;
        if (pack >= packs) continue;
        for (int i = 0; i < N; ++i) {
          const float value = to_float(held[k].at[i]);
          to[k].at[i] = from_float<To>(accumulate ? to_float(to[k].at[i]) + value : value);
        }
        store_pack<To, N>(y.at(row) + pack * N, to[k]);
      }
    }
  }
}

template <typename From, typename To>
void convert_rows(Stream stream, const CopyArgs& args) {
  Tensor x = args.x;
  Tensor y = args.y;
  if (x.is_contiguous() && y.is_contiguous()) {
    x = x.reshape(1, x.numel());
    y = y.reshape(1, y.numel());
  }
  const auto run = [&]<int N>(std::integral_constant<int, N>) {
    launch(convert<From, To, N>, tile_rows(x.rows, x.cols / N), stream, Rows<const From>(x),
           Rows<To>(y), x.rows, x.cols / N, args.accumulate);
  };
  if (x.cols % kWide == 0 && is_divisible(x) && is_divisible(y)) {
    run(std::integral_constant<int, kWide>{});
  } else {
    run(std::integral_constant<int, 1>{});
  }
}

template <typename T, int N>
__global__ void __launch_bounds__(kTileThreads)
    add_to_rows(Rows<T> y, const T* bias, int64_t rows, int64_t packs) {
  const int64_t step = static_cast<int64_t>(gridDim.y) * blockDim.x;
  for (int64_t pack = static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x; pack < packs;
       pack += step) {
    const auto added = load_pack<T, N>(bias + pack * N);
    const int64_t apart = RowTile::row_step();
    for (int64_t first = RowTile::first_row(); first < rows; first += kUnitsInFlight * apart) {
      Pack<T, N> held[kUnitsInFlight] = {};
#pragma unroll
      for (int k = 0; k < kUnitsInFlight; ++k) {
        if (first + k * apart < rows) held[k] = load_pack<T, N>(y.at(first + k * apart) + pack * N);
      }
#pragma unroll
      for (int k = 0; k < kUnitsInFlight; ++k) {
        if (first + k * apart >= rows) continue;
        for (int i = 0; i < N; ++i) {
          held[k].at[i] = from_float<T>(to_float(held[k].at[i]) + to_float(added.at[i]));
        }
        store_pack<T, N>(y.at(first + k * apart) + pack * N, held[k]);
      }
    }
  }
}

/// Each block owns a strip of columns and reads all rows of it, one pack of a row per thread.
template <typename T, int N>
__global__ void __launch_bounds__(kColumnThreads)
    column_sums(Rows<const T> x, float* sums, int64_t rows, int64_t packs) {
  const int64_t pack = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  float own[N] = {};
  if (pack < packs) {
    const int64_t apart = blockDim.y;
    const auto load = [&](int64_t row) { return load_pack<T, N>(x.at(row) + pack * N); };
    const auto add = [&](const Pack<T, N>& part) {
      for (int i = 0; i < N; ++i) own[i] += to_float(part.at[i]);
    };
    int64_t row = threadIdx.y;
    // Without a condition between them all loads of a turn are under way together.
    for (; row + (kRowsInFlight - 1) * apart < rows; row += kRowsInFlight * apart) {
      Pack<T, N> held[kRowsInFlight];
#pragma unroll
      for (int k = 0; k < kRowsInFlight; ++k) held[k] = load(row + k * apart);
#pragma unroll
      for (int k = 0; k < kRowsInFlight; ++k) add(held[k]);
    }
    for (; row < rows; row += apart) add(load(row));
  }
  // Element i of all threads lies together, so that no two lanes of a warp meet in a bank.
  auto* const totals = block_shared<float>() + thread_rank();
  const int apart = block_threads();
  for (int i = 0; i < N; ++i) totals[i * apart] = own[i];
  for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.y >= half) continue;
    for (int i = 0; i < N; ++i) {
      totals[i * apart] += totals[i * apart + static_cast<int>(half * blockDim.x)];
    }
  }
  if (threadIdx.y != 0 || pack >= packs) return;
  for (int i = 0; i < N; ++i) sums[pack * N + i] += totals[i * apart];
}

}  // namespace

void copy(Stream stream, const CopyArgs& args) {
  const Tensor& x = args.x;
  const Tensor& y = args.y;
  MOETUNE_CHECK(x.rows == y.rows && x.cols == y.cols, "copy: x [{},{}] and y [{},{}] differ",
                x.rows, x.cols, y.rows, y.cols);
  if (x.numel() == 0) return;
  if (x.dtype == y.dtype && !args.accumulate) {
    const bool is_flat = x.is_contiguous() && y.is_contiguous();
    const Tensor from = is_flat ? x.reshape(1, x.numel()) : x;
    const Tensor to = is_flat ? y.reshape(1, y.numel()) : y;
    return move_rows(stream, {from, to, nullptr, nullptr, from.rows});
  }
  dispatch_float(y.dtype, [&]<typename To>(std::type_identity<To>) {
    if (x.dtype == DType::i32) return convert_rows<int32_t, To>(stream, args);
    dispatch_float(x.dtype, [&]<typename From>(std::type_identity<From>) {
      convert_rows<From, To>(stream, args);
    });
  });
}

void add_bias(Stream stream, const Tensor& y, const Tensor& bias) {
  if (y.numel() == 0) return;
  MOETUNE_CHECK(bias.rows == 1 && bias.cols == y.cols && bias.dtype == y.dtype,
                "a bias [{},{}] of {} for {} columns of {}", bias.rows, bias.cols,
                base::name_of(bias.dtype), y.cols, base::name_of(y.dtype));
  dispatch_float(y.dtype, [&]<typename T>(std::type_identity<T>) {
    const auto run = [&]<int N>(std::integral_constant<int, N>) {
      const int64_t packs = y.cols / N;
      const int threads = std::min(row_threads(packs, 1), kTileThreads);
      const int per_block = kTileThreads / threads;
      const int64_t row_blocks = ceil_div(y.rows, int64_t{per_block} * kUnitsInFlight);
      const int64_t columns = std::min<int64_t>(ceil_div(packs, threads), UINT16_MAX);
      launch(add_to_rows<T, N>,
             {dim3(static_cast<unsigned>(row_blocks), static_cast<unsigned>(columns)),
              dim3(static_cast<unsigned>(threads), static_cast<unsigned>(per_block))},
             stream, Rows<T>(y), static_cast<const T*>(bias.data), y.rows, packs);
    };
    if (is_divisible(y) && is_divisible(bias)) {
      run(std::integral_constant<int, kPackOf<T>>{});
    } else {
      run(std::integral_constant<int, 1>{});
    }
  });
}

void add_column_sums(Stream stream, const Tensor& x, float* sums) {
  if (x.numel() == 0) return;
  dispatch_float(x.dtype, [&]<typename T>(std::type_identity<T>) {
    const auto run = [&]<int N>(std::integral_constant<int, N>) {
      const int64_t packs = x.cols / N;
      // 128 bytes of a row per block, or 64, as much as memory reads at a time, where that would
      // leave much of the card idle.
      const unsigned width = (ceil_div(packs, 8) < kNumSms ? 4 : 8) * (N == 1 ? 4 : 1);
      unsigned height = 1;
      while (height < kColumnThreads / width && height * 2 < x.rows) height *= 2;
      launch(column_sums<T, N>,
             {grid_of(ceil_div(packs, width), INT32_MAX), dim3(width, height),
              width * height * N * sizeof(float)},
             stream, Rows<const T>(x), sums, x.rows, packs);
    };
    if (is_divisible(x)) {
      run(std::integral_constant<int, kPackOf<T>>{});
    } else {
      run(std::integral_constant<int, 1>{});
    }
  });
}

void bias_backward(Stream stream, const BiasBackwardArgs& args) {
  add_column_sums(stream, args.dy, static_cast<float*>(args.dbias.data));
}

}  // namespace moetune::kernels::cuda

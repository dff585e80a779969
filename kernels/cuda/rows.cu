// Moving rows by lists of row numbers, and bringing a token's expert rows back together.
#include "kernels/cuda/row_tiles.cuh"

namespace moetune::kernels::cuda {
namespace {

struct Lists {
  const int32_t* from;
  const int32_t* to;
  int64_t count;
  int32_t divisor;
  int64_t x_first;
  int64_t x_rows;
  int64_t x_total;
  int64_t y_rows;
};

template <typename Word>
__global__ void __launch_bounds__(kTileThreads)
    move(Rows<const Word> x, Rows<Word> y, int64_t words, Lists lists) {
  for (int64_t i = RowTile::first_row(); i < lists.count; i += RowTile::row_step()) {
    const int64_t source = lists.from == nullptr ? i : lists.from[i] / lists.divisor;
    const int64_t target = lists.to == nullptr ? i : lists.to[i];
    check_row(source, lists.x_total);
    check_row(target, lists.y_rows);
    const int64_t row = source - lists.x_first;
    const bool is_here = row >= 0 && row < lists.x_rows;
    const Word* from = is_here ? x.at(row) : nullptr;
    Word* to = y.at(target);
    const int64_t apart = blockDim.x;
    for (int64_t unit = RowTile::first_unit(); unit < words; unit += RowTile::unit_step()) {
      Word held[kUnitsInFlight] = {};
#pragma unroll
      for (int k = 0; k < kUnitsInFlight; ++k) {
        if (is_here && unit + k * apart < words) held[k] = from[unit + k * apart];
      }
#pragma unroll
      for (int k = 0; k < kUnitsInFlight; ++k) {
        if (unit + k * apart < words) to[unit + k * apart] = held[k];
      }
    }
  }
}

/// The same rows, counted in words.
template <typename Word>
Tensor in_words(Tensor tensor) {
  const int64_t size = base::size_of(tensor.dtype);
  tensor.cols = tensor.cols * size / static_cast<int64_t>(sizeof(Word));
  tensor.ld = tensor.ld * size / static_cast<int64_t>(sizeof(Word));
  return tensor;
}

template <typename Word>
void move_words(Stream stream, const RowMove& move_args) {
  const Tensor x = in_words<Word>(move_args.x);
  const Tensor y = in_words<Word>(move_args.y);
  const Lists lists{move_args.from,
                    move_args.to,
                    move_args.count,
                    static_cast<int32_t>(move_args.divisor),
                    move_args.first,
                    x.rows,
                    move_args.total == 0 ? x.rows : move_args.total,
                    y.rows};
  launch(move<Word>, tile_rows(move_args.count, x.cols), stream, Rows<const Word>(x), Rows<Word>(y),
         x.cols, lists);
}

/// Each row of x to its `copies` places: it is read once, which a gather in the order of the places
/// does only while the cache holds all of x.
template <typename Word>
__global__ void __launch_bounds__(kTileThreads)
    spread(Rows<const Word> x, Rows<Word> y, int64_t words, const int32_t* position, int copies,
           int64_t x_rows, int64_t y_rows) {
  const int64_t apart = blockDim.x;
  for (int64_t row = RowTile::first_row(); row < x_rows; row += RowTile::row_step()) {
    const int32_t* places = position + row * copies;
    const Word* from = x.at(row);
    for (int64_t unit = RowTile::first_unit(); unit < words; unit += RowTile::unit_step()) {
      Word held[kUnitsInFlight] = {};
#pragma unroll
      for (int k = 0; k < kUnitsInFlight; ++k) {
        if (unit + k * apart < words) held[k] = from[unit + k * apart];
      }
      for (int copy = 0; copy < copies; ++copy) {
        check_row(places[copy], y_rows);
        Word* to = y.at(places[copy]);
#pragma unroll
        for (int k = 0; k < kUnitsInFlight; ++k) {
          if (unit + k * apart < words) to[unit + k * apart] = held[k];
        }
      }
    }
  }
}

template <typename T, int N>
__global__ void __launch_bounds__(kTileThreads)
    combine(Rows<const T> x, Rows<T> out, const int32_t* position, int topk, int64_t num_tokens,
            int64_t packs, int64_t x_rows) {
  const int64_t apart = blockDim.x;
  for (int64_t token = RowTile::first_row(); token < num_tokens; token += RowTile::row_step()) {
    const int32_t* places = position + token * topk;
    for (int64_t unit = RowTile::first_unit(); unit < packs; unit += RowTile::unit_step()) {
      for (int64_t pack = unit; pack < packs && pack < unit + kUnitsInFlight * apart;
           pack += apart) {
        T* to = out.at(token) + pack * N;
        auto held = load_pack<T, N>(to);
        float sums[N];
        for (int i = 0; i < N; ++i) sums[i] = to_float(held.at[i]);
        for (int first = 0; first < topk; first += kUnitsInFlight) {
          // Places, then rows, then sums: one wait for all rows of a batch.
          int32_t rows[kUnitsInFlight] = {};
          Pack<T, N> parts[kUnitsInFlight] = {};
#pragma unroll
          for (int k = 0; k < kUnitsInFlight; ++k) {
            if (first + k < topk) rows[k] = places[first + k];
          }
#pragma unroll
          for (int k = 0; k < kUnitsInFlight; ++k) check_row(rows[k], x_rows);
#pragma unroll
          for (int k = 0; k < kUnitsInFlight; ++k) {
            if (first + k < topk) parts[k] = load_pack<T, N>(x.at(rows[k]) + pack * N);
          }
          // Rows that are not there are zeros.
#pragma unroll
          for (int k = 0; k < kUnitsInFlight; ++k) {
            for (int i = 0; i < N; ++i) sums[i] += to_float(parts[k].at[i]);
          }
        }
        for (int i = 0; i < N; ++i) held.at[i] = from_float<T>(sums[i]);
        store_pack<T, N>(to, held);
      }
    }
  }
}

}  // namespace

void move_rows(Stream stream, const RowMove& args) {
  MOETUNE_CHECK(args.x.cols == args.y.cols && args.x.dtype == args.y.dtype,
                "rows of {} {} cannot become rows of {} {}", args.x.cols,
                base::name_of(args.x.dtype), args.y.cols, base::name_of(args.y.dtype));
  if (args.count == 0 || args.x.cols == 0) return;
  if (is_divisible(args.x) && is_divisible(args.y)) return move_words<uint4>(stream, args);
  if (is_divisible(args.x, 4) && is_divisible(args.y, 4)) return move_words<uint32_t>(stream, args);
  move_words<uint16_t>(stream, args);
}

void gather_rows(Stream stream, const GatherRowsArgs& args) {
  const bool is_spread = args.divisor > 1 && !args.position.is_null() && args.x.rows > 0 &&
                         is_divisible(args.x) && is_divisible(args.out) &&
                         args.x.dtype == args.out.dtype && args.x.cols == args.out.cols;
  if (is_spread) {
    MOETUNE_CHECK(
        args.position.rows == args.index.rows && args.position.rows == args.x.rows * args.divisor,
        "gather_rows: {} positions for {} rows of which each is used {} times", args.position.rows,
        args.x.rows, args.divisor);
    const Tensor x = in_words<uint4>(args.x);
    const Tensor out = in_words<uint4>(args.out);
    return launch(spread<uint4>, tile_rows(x.rows, x.cols), stream, Rows<const uint4>(x),
                  Rows<uint4>(out), x.cols, index_of(args.position), static_cast<int>(args.divisor),
                  x.rows, out.rows);
  }
  move_rows(stream,
            {args.x, args.out, index_of(args.index), nullptr, args.index.rows, args.divisor});
}

void scatter_rows(Stream stream, const ScatterRowsArgs& args) {
  move_rows(stream, {args.x, args.out, nullptr, index_of(args.index), args.index.rows});
}

void combine_rows(Stream stream, const CombineRowsArgs& args) {
  if (args.out.rows == 0 || args.out.cols == 0) return;
  MOETUNE_CHECK(args.position.rows == args.out.rows * args.topk,
                "combine_rows: {} positions for {} tokens of top-{}", args.position.rows,
                args.out.rows, args.topk);
  dispatch_float(args.out.dtype, [&]<typename T>(std::type_identity<T>) {
    const auto run = [&]<int N>(std::integral_constant<int, N>) {
      const int64_t packs = args.out.cols / N;
      launch(combine<T, N>, tile_rows(args.out.rows, packs), stream, Rows<const T>(args.x),
             Rows<T>(args.out), index_of(args.position), static_cast<int>(args.topk), args.out.rows,
             packs, args.x.rows);
    };
    if (is_divisible(args.x) && is_divisible(args.out)) {
      run(std::integral_constant<int, kPackOf<T>>{});
    } else {
      run(std::integral_constant<int, 1>{});
    }
  });
}

}  // namespace moetune::kernels::cuda

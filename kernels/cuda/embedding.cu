// Token embedding: a table lookup and its transpose. In the backward pass the block of a token's
// first occurrence owns the token's row of the table: it finds all other occurrences and adds them
// up in their order, so the gradient has the same bits each time and needs no atomics on floats.
// Finding them reads the list of tokens once per block, from the L1 cache, until an earlier
// occurrence is found.
#include "kernels/cuda/row_tiles.cuh"

namespace moetune::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kSegment = 4096;  ///< tokens looked through before the found ones are added
constexpr int kWide = 8;        ///< columns per thread

/// Shared memory: how many were found, where (in any order), and where in rising order.
struct Found {
  int count;
  uint16_t places[kSegment];
  uint16_t sorted[kSegment];
};

/// Which rows of the vocabulary a table holds.
struct Shard {
  int64_t first;
  int64_t count;
  int64_t vocabulary;
};

Shard shard_of(const Tensor& table, int64_t first_row, int64_t vocabulary) {
  const Shard shard{first_row, table.rows, vocabulary == 0 ? table.rows : vocabulary};
  MOETUNE_CHECK(shard.first >= 0 && shard.first + shard.count <= shard.vocabulary,
                "embedding: a table of rows {} to {} for a vocabulary of {}", shard.first,
                shard.first + shard.count - 1, shard.vocabulary);
  return shard;
}

__device__ void sort_found(Found& found) {
  for (int i = static_cast<int>(threadIdx.x); i < found.count; i += kThreads) {
    int rank = 0;
    for (int j = 0; j < found.count; ++j) rank += found.places[j] < found.places[i] ? 1 : 0;
    found.sorted[rank] = found.places[i];
  }
  __syncthreads();
}

/// How often the calling thread finds `token` among those of [begin, end) that are its share.
__device__ int count_of(const int32_t* tokens, int32_t token, int begin, int end) {
  constexpr int kQuad = 4;  ///< tokens of one access
  int count = 0;
  const auto look = [&](int t) { count += tokens[t] == token ? 1 : 0; };
  const auto thread = static_cast<int>(threadIdx.x);
  const auto is_aligned = [&](int t) {
    return reinterpret_cast<uintptr_t>(tokens + t) % kPackBytes == 0;
  };
  int first = begin;
  while (first < end && !is_aligned(first)) ++first;
  const int num_quads = (end - first) / kQuad;
  if (thread < first - begin) look(begin + thread);
#pragma unroll 4
  for (int q = thread; q < num_quads; q += kThreads) {
    const auto quad = load_pack<int32_t, kQuad>(tokens + first + q * kQuad);
    for (int i = 0; i < kQuad; ++i) count += quad.at[i] == token ? 1 : 0;
  }
  if (first + num_quads * kQuad + thread < end) look(first + num_quads * kQuad + thread);
  return count;
}

template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    add_rows(Rows<float> dtable, Shard shard, const int32_t* tokens, Rows<const T> dout,
             int num_tokens, int64_t cols) {
  auto& found = *block_shared<Found>();
  const auto thread = static_cast<int>(threadIdx.x);
  const auto own = static_cast<int>(blockIdx.x);
  const int32_t token = tokens[own];
  check_row(token, shard.vocabulary);
  const int64_t row = token - shard.first;
  if (row < 0 || row >= shard.count) return;  // another rank's
  for (int begin = 0; begin < own; begin += kSegment) {
    const int end = min(begin + kSegment, own);
    if (__syncthreads_or(count_of(tokens, token, begin, end)) != 0) return;
  }

  const int64_t col = (static_cast<int64_t>(blockIdx.y) * kThreads + thread) * N;
  const bool is_inside = col < cols;
  float* const to = dtable.at(row) + col;
  Pack<float, N> sums{};
  if (is_inside) sums = load_pack<float, N>(to);
  // Nearly all tokens occur once in a large vocabulary.
  if (__syncthreads_or(count_of(tokens, token, own + 1, num_tokens)) == 0) {
    if (!is_inside) return;
    const auto part = load_pack<T, N>(dout.at(own) + col);
    for (int k = 0; k < N; ++k) sums.at[k] += to_float(part.at[k]);
    store_pack<float, N>(to, sums);
    return;
  }
  for (int begin = own; begin < num_tokens; begin += kSegment) {
    const int end = min(begin + kSegment, num_tokens);
    if (thread == 0) found.count = 0;
    __syncthreads();
#pragma unroll 8
    for (int t = begin + thread; t < end; t += kThreads) {
      if (tokens[t] == token) {
        found.places[atomicAdd(&found.count, 1)] = static_cast<uint16_t>(t - begin);
      }
    }
    __syncthreads();
    sort_found(found);
#pragma unroll 4
    for (int i = 0; i < found.count; ++i) {
      if (!is_inside) break;
      const auto part = load_pack<T, N>(dout.at(begin + found.sorted[i]) + col);
      for (int k = 0; k < N; ++k) sums.at[k] += to_float(part.at[k]);
    }
    __syncthreads();
  }
  if (is_inside) store_pack<float, N>(to, sums);
}

}  // namespace

void embedding(Stream stream, const EmbeddingArgs& args) {
  const Shard shard = shard_of(args.table, args.first_row, args.vocabulary);
  move_rows(stream, {args.table, args.out, index_of(args.tokens), nullptr, args.tokens.rows, 1,
                     shard.first, shard.vocabulary});
}

void embedding_backward(Stream stream, const EmbeddingBackwardArgs& args) {
  const int64_t num_tokens = args.tokens.rows;
  const int64_t cols = args.dtable.cols;
  if (num_tokens == 0 || cols == 0) return;
  MOETUNE_CHECK(args.dtable.dtype == DType::f32 && num_tokens < INT32_MAX,
                "embedding_backward: {} tokens, a table of {}", num_tokens,
                base::name_of(args.dtable.dtype));
  const Shard shard = shard_of(args.dtable, args.first_row, args.vocabulary);
  dispatch_float(args.dout.dtype, [&]<typename T>(std::type_identity<T>) {
    const auto run = [&]<int N>(std::integral_constant<int, N>) {
      const dim3 grid(static_cast<unsigned>(num_tokens),
                      static_cast<unsigned>(ceil_div(cols, kThreads * N)));
      launch(add_rows<T, N>, {grid, kThreads, sizeof(Found)}, stream, Rows<float>(args.dtable),
             shard, index_of(args.tokens), Rows<const T>(args.dout), static_cast<int>(num_tokens),
             cols);
    };
    if (cols % kWide == 0 && is_divisible(args.dtable) && is_divisible(args.dout)) {
      run(std::integral_constant<int, kWide>{});
    } else {
      run(std::integral_constant<int, 1>{});
    }
  });
}

}  // namespace moetune::kernels::cuda

// Causal grouped-query attention without tensor cores: the fallback beside cuDNN and what cuDNN is
// compared with. Forward with an online softmax (Milakov & Gimelshein 2018) over tiles of keys;
// backward recomputes the probabilities from the saved log-sum-exp (Dao et al. 2022), once by tiles
// of queries for dq and once by tiles of keys for dk and dv, so that each output has one owner and
// its bits do not depend on the order in which blocks run. All arithmetic is fp32.
#include <climits>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"

namespace moetune::kernels::cuda {
namespace {

constexpr int kTile = 32;       // queries and keys of a tile; a lane of a warp for each
constexpr int kThreads = 128;   // 8 x 16
constexpr int kAcross = 16;     // threads that share rows of a tile of scores: half a warp
constexpr int kOwnRows = 4;     // rows of one thread
constexpr int kOwnColumns = 2;  // its columns of scores: one, and the one kAcross further
constexpr int kQuad = 4;
constexpr int kMaxHeadDim = 256;
constexpr int kQuads = kMaxHeadDim / (kAcross * kQuad);  // of one thread in a row of outputs
constexpr int kScorePitch = kTile + kQuad;
constexpr float kLowest = -3.0e38F;  // finite: -infinity minus itself would be NaN
static_assert(kTile == kWarp && kThreads / kAcross * kOwnRows == kTile);

// One tensor: rows of tokens, heads side by side.
template <typename T>
struct Heads {
  T* data;
  int64_t ld;

  __device__ T* at(int64_t row, int64_t column) const { return data + row * ld + column; }
};

template <typename T>
struct Attention {
  Heads<const T> q;
  Heads<const T> k;
  Heads<const T> v;
  Heads<T> out;
  Heads<float> lse;
  const int32_t* positions;
  const int32_t* key_positions;  // rising; null: key i sits at position i
  int tq;
  int s;
  int d;
  int group;   // query heads per key head
  int window;  // keys seen; INT_MAX: all
  float scale;
  bool is_packed;  // 16-byte reads

  // Columns of a tile in shared memory: whole quads, and one more that spreads rows over banks.
  [[nodiscard]] __device__ int width() const { return (d + kQuad - 1) / kQuad * kQuad; }
  [[nodiscard]] __device__ int pitch() const { return width() + kQuad; }
  // Where a key sits; behind the last key beyond every query.
  [[nodiscard]] __device__ int key_position(int key) const {
    if (key >= s) return INT_MAX;
    return key_positions == nullptr ? key : key_positions[key];
  }
  [[nodiscard]] __device__ bool sees(int position, int key_at) const {
    return key_at <= position && position - key_at < window;
  }
  // The first key that sits at `position` or after it.
  [[nodiscard]] __device__ int key_from(int position) const {
    if (key_positions == nullptr) return min(max(position, 0), s);
    int low = 0;
    int high = s;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (key_positions[middle] < position) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }
};

template <typename T>
struct AttentionGradient {
  Attention<T> forward;
  Heads<const T> dout;
  Heads<T> dq;
  Heads<T> dk;
  Heads<T> dv;
  bool accumulate;
};

// The thread's place in a tile of scores.
struct Place {
  int row;     // first of kOwnRows
  int column;  // first of kOwnColumns
};

__device__ Place own_place() {
  return {static_cast<int>(threadIdx.x) / kAcross * kOwnRows,
          static_cast<int>(threadIdx.x) % kAcross};
}

// Over the threads that share a row, in each of them.
__device__ float sum_across(float value) { return sum_lanes(value, kAcross); }
__device__ float max_across(float value) { return max_lanes(value, kAcross); }

// The first num_rows of up to 32 rows of one head as floats, zeros below and beside; a barrier
// before and after.
template <typename T>
__device__ void load_tile(const Heads<const T>& from, int64_t row, int64_t column, int num_rows,
                          const Attention<T>& args, float* tile) {
  __syncthreads();
  const int width = args.width();
  const int each = args.is_packed ? kPackOf<T> : 1;
  for (int i = static_cast<int>(threadIdx.x) * each; i < kTile * width; i += kThreads * each) {
    const int r = i / width;
    const int c = i % width;
    float* to = tile + r * args.pitch() + c;
    if (r >= num_rows || c >= args.d) {
      for (int j = 0; j < each; ++j) to[j] = 0.0F;
    } else if (args.is_packed) {
      const auto pack = load_pack<T, kPackOf<T>>(from.at(row + r, column + c));
#pragma unroll
      for (int j = 0; j < kPackOf<T>; ++j) to[j] = to_float(pack.at[j]);
    } else {
      *to = to_float(*from.at(row + r, column + c));
    }
  }
  __syncthreads();
}

struct Scores {
  float at[kOwnRows][kOwnColumns];
};

// Products of the thread's rows of a with its rows of b.
template <typename T>
__device__ Scores row_products(const float* a, const float* b, const Attention<T>& args) {
  const Place own = own_place();
  const int width = args.width();
  const int pitch = args.pitch();
  Scores sum{};
  for (int c = 0; c < width; c += kQuad) {
    Pack<float, kQuad> y[kOwnColumns];
#pragma unroll
    for (int j = 0; j < kOwnColumns; ++j) {
      y[j] = load_pack<float, kQuad>(b + (own.column + j * kAcross) * pitch + c);
    }
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) {
      const auto x = load_pack<float, kQuad>(a + (own.row + i) * pitch + c);
#pragma unroll
      for (int j = 0; j < kOwnColumns; ++j) {
#pragma unroll
        for (int l = 0; l < kQuad; ++l) sum.at[i][j] += x.at[l] * y[j].at[l];
      }
    }
  }
  return sum;
}

// A tile of scores into shared memory. Only the half warp that writes a row reads it, so a warp's
// barrier is enough; between a tile's last reader and its next writer there is always a load_tile.
__device__ void share_scores(const Scores& scores, float* tile) {
  const Place own = own_place();
#pragma unroll
  for (int i = 0; i < kOwnRows; ++i) {
#pragma unroll
    for (int j = 0; j < kOwnColumns; ++j) {
      tile[(own.row + i) * kScorePitch + own.column + j * kAcross] = scores.at[i][j];
    }
  }
  __syncwarp();
}

// The thread's part of 32 rows of outputs: its rows, and in each a quad of every 64 columns.
struct Sums {
  float at[kOwnRows][kQuads][kQuad];

  __device__ static int column(int quad) {
    return own_place().column * kQuad + quad * kAcross * kQuad;
  }

  // += scores [32, 32] * x [32, d]
  __device__ void add_product(const float* scores, const float* x, int d, int pitch) {
    const Place own = own_place();
    for (int first = 0; first < kTile; first += kQuad) {
      Pack<float, kQuad> weights[kOwnRows];
#pragma unroll
      for (int i = 0; i < kOwnRows; ++i) {
        weights[i] = load_pack<float, kQuad>(scores + (own.row + i) * kScorePitch + first);
      }
#pragma unroll
      for (int l = 0; l < kQuad; ++l) {
#pragma unroll
        for (int g = 0; g < kQuads; ++g) {
          if (column(g) >= d) continue;
          const auto y = load_pack<float, kQuad>(x + (first + l) * pitch + column(g));
#pragma unroll
          for (int i = 0; i < kOwnRows; ++i) {
#pragma unroll
            for (int c = 0; c < kQuad; ++c) at[i][g][c] += weights[i].at[l] * y.at[c];
          }
        }
      }
    }
  }

  // Over what is there, or added to it.
  template <typename T>
  __device__ void store(const Heads<T>& to, int64_t row, int64_t first_column, int num_rows, int d,
                        bool accumulate) const {
    const Place own = own_place();
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) {
      if (own.row + i >= num_rows) continue;
      T* at_row = to.at(row + own.row + i, first_column);
#pragma unroll
      for (int g = 0; g < kQuads; ++g) {
        if (column(g) >= d) continue;
#pragma unroll
        for (int c = 0; c < kQuad; ++c) {
          if (column(g) + c >= d) continue;
          T& element = at_row[column(g) + c];
          element = from_float<T>(accumulate ? to_float(element) + at[i][g][c] : at[i][g][c]);
        }
      }
    }
  }
};

// A tile of queries of one head of one sequence, and the keys that at least one of them sees.
struct QueryTile {
  int64_t row;  // of the first query
  int num_rows;
  int position[kOwnRows];  // of the thread's rows; -1: no row
  int key_begin;
  int key_end;
};

// What lane i's query of the tile sits at; -1: there is no such query, and it sees no key.
template <typename T>
__device__ int lane_position(const Attention<T>& args, int first) {
  const int query = first + static_cast<int>(threadIdx.x) % kWarp;
  return query < args.tq ? args.positions[query] : -1;
}

template <typename T>
__device__ QueryTile query_tile(const Attention<T>& args, int first, int64_t batch) {
  QueryTile tile{};
  tile.row = batch * args.tq + first;
  tile.num_rows = min(kTile, args.tq - first);
  const int position = lane_position(args, first);
  const int lowest = __reduce_min_sync(kAllLanes, position < 0 ? INT_MAX : position);
  tile.key_end = args.key_from(__reduce_max_sync(kAllLanes, position) + 1);
  tile.key_begin = lowest < args.window ? 0 : args.key_from(lowest - args.window + 1);
#pragma unroll
  for (int i = 0; i < kOwnRows; ++i) {
    tile.position[i] = __shfl_sync(kAllLanes, position, own_place().row + i);
  }
  return tile;
}

// Tiles at the end of a sequence see most keys: they start first.
template <typename T>
__device__ QueryTile block_query_tile(const Attention<T>& args) {
  return query_tile(args, static_cast<int>(gridDim.x - 1 - blockIdx.x) * kTile, blockIdx.z);
}

template <typename T>
__global__ void __launch_bounds__(kThreads) attention_kernel(Attention<T> args) {
  const int pitch = args.pitch();
  auto* q = block_shared<float>();
  float* kv = q + kTile * pitch;
  float* probs = kv + kTile * pitch;
  const Place own = own_place();
  const QueryTile tile = block_query_tile(args);
  const int64_t head = blockIdx.y;
  const int64_t kv_column = head / args.group * args.d;
  load_tile(args.q, tile.row, head * args.d, tile.num_rows, args, q);

  Sums out{};
  float largest[kOwnRows];
  float total[kOwnRows] = {};  // over the thread's own columns
#pragma unroll
  for (int i = 0; i < kOwnRows; ++i) largest[i] = kLowest;
  for (int first = tile.key_begin; first < tile.key_end; first += kTile) {
    const int64_t key_row = int64_t{blockIdx.z} * args.s + first;
    const int num_keys = min(kTile, args.s - first);
    load_tile(args.k, key_row, kv_column, num_keys, args, kv);
    Scores scores = row_products(q, kv, args);
    int key_at[kOwnColumns];
#pragma unroll
    for (int j = 0; j < kOwnColumns; ++j) {
      key_at[j] = args.key_position(first + own.column + j * kAcross);
    }
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) {
      bool sees[kOwnColumns];
      float best = largest[i];
#pragma unroll
      for (int j = 0; j < kOwnColumns; ++j) {
        sees[j] = args.sees(tile.position[i], key_at[j]);
        scores.at[i][j] *= args.scale;
        if (sees[j]) best = max_or_nan(best, scores.at[i][j]);
      }
      best = max_across(best);
      const float shrink = expf(largest[i] - best);
      largest[i] = best;
      total[i] *= shrink;
#pragma unroll
      for (int j = 0; j < kOwnColumns; ++j) {
        scores.at[i][j] = sees[j] ? expf(scores.at[i][j] - best) : 0.0F;
        total[i] += scores.at[i][j];
      }
#pragma unroll
      for (int g = 0; g < kQuads; ++g) {
#pragma unroll
        for (int c = 0; c < kQuad; ++c) out.at[i][g][c] *= shrink;
      }
    }
    share_scores(scores, probs);
    load_tile(args.v, key_row, kv_column, num_keys, args, kv);
    out.add_product(probs, kv, args.d, pitch);
  }
#pragma unroll
  for (int i = 0; i < kOwnRows; ++i) {
    const float sum = sum_across(total[i]);
    const bool has_keys = sum != 0.0F;  // the largest of them adds 1
#pragma unroll
    for (int g = 0; g < kQuads; ++g) {
#pragma unroll
      for (int c = 0; c < kQuad; ++c) out.at[i][g][c] /= has_keys ? sum : 1.0F;
    }
    if (own.column == 0 && own.row + i < tile.num_rows) {
      *args.lse.at(tile.row + own.row + i, head) = has_keys ? largest[i] + logf(sum) : -INFINITY;
    }
  }
  out.store(args.out, tile.row, head * args.d, tile.num_rows, args.d, false);
}

// dout . out of each of the thread's rows; `dout` lies in shared memory.
template <typename T>
__device__ void row_deltas(const Attention<T>& args, int64_t row, int num_rows, int64_t column,
                           const float* dout, float (&delta)[kOwnRows]) {
  const Place own = own_place();
#pragma unroll
  for (int i = 0; i < kOwnRows; ++i) {
    float sum = 0.0F;
    if (own.row + i < num_rows) {
      const T* out = args.out.at(row + own.row + i, column);
      for (int c = own.column; c < args.d; c += kAcross) {
        sum += to_float(out[c]) * dout[(own.row + i) * args.pitch() + c];
      }
    }
    delta[i] = sum_across(sum);
  }
}

// With P the probabilities and D_i = dout_i . out_i: dS = P * (dout V^T - D) * scale, dQ = dS K.
// Four blocks at a time on a multiprocessor, as many as shared memory holds of 128 columns.
template <typename T>
__global__ void __launch_bounds__(kThreads, 4) attention_dq_kernel(AttentionGradient<T> gradient) {
  const Attention<T>& args = gradient.forward;
  const int pitch = args.pitch();
  auto* q = block_shared<float>();
  float* dout = q + kTile * pitch;
  float* kv = dout + kTile * pitch;
  float* shared_scores = kv + kTile * pitch;
  const Place own = own_place();
  const QueryTile tile = block_query_tile(args);
  const int64_t head = blockIdx.y;
  const int64_t column = head * args.d;
  const int64_t kv_column = head / args.group * args.d;
  load_tile(args.q, tile.row, column, tile.num_rows, args, q);
  load_tile(gradient.dout, tile.row, column, tile.num_rows, args, dout);
  float delta[kOwnRows];
  float lse[kOwnRows];
  row_deltas(args, tile.row, tile.num_rows, column, dout, delta);
#pragma unroll
  for (int i = 0; i < kOwnRows; ++i) {
    lse[i] = own.row + i < tile.num_rows ? *args.lse.at(tile.row + own.row + i, head) : 0.0F;
  }

  Sums dq{};
  for (int first = tile.key_begin; first < tile.key_end; first += kTile) {
    const int64_t key_row = int64_t{blockIdx.z} * args.s + first;
    const int num_keys = min(kTile, args.s - first);
    load_tile(args.v, key_row, kv_column, num_keys, args, kv);
    const Scores dprobs = row_products(dout, kv, args);
    load_tile(args.k, key_row, kv_column, num_keys, args, kv);
    Scores scores = row_products(q, kv, args);
    int key_at[kOwnColumns];
#pragma unroll
    for (int j = 0; j < kOwnColumns; ++j) {
      key_at[j] = args.key_position(first + own.column + j * kAcross);
    }
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) {
#pragma unroll
      for (int j = 0; j < kOwnColumns; ++j) {
        const bool sees = args.sees(tile.position[i], key_at[j]);
        const float prob = expf(scores.at[i][j] * args.scale - lse[i]);
        scores.at[i][j] = sees ? prob * (dprobs.at[i][j] - delta[i]) * args.scale : 0.0F;
      }
    }
    share_scores(scores, shared_scores);
    dq.add_product(shared_scores, kv, args.d, pitch);
  }
  dq.store(gradient.dq, tile.row, column, tile.num_rows, args.d, gradient.accumulate);
}

// dV = P^T dout and dK = dS^T Q over all queries of the key head's group that see the tile. Scores
// are transposed here: a thread's rows are keys.
template <typename T>
__global__ void __launch_bounds__(kThreads) attention_dkv_kernel(AttentionGradient<T> gradient) {
  const Attention<T>& args = gradient.forward;
  const int pitch = args.pitch();
  auto* k = block_shared<float>();
  float* v = k + kTile * pitch;
  float* rows = v + kTile * pitch;  // q or dout
  float* shared_scores = rows + kTile * pitch;
  float* deltas = shared_scores + kTile * kScorePitch;
  const Place own = own_place();
  const int first_key = static_cast<int>(blockIdx.x) * kTile;
  const int num_keys = min(kTile, args.s - first_key);
  const int64_t key_row = int64_t{blockIdx.z} * args.s + first_key;
  const int64_t kv_column = int64_t{blockIdx.y} * args.d;
  load_tile(args.k, key_row, kv_column, num_keys, args, k);
  load_tile(args.v, key_row, kv_column, num_keys, args, v);
  const int lowest_key_at = args.key_position(first_key);
  const int highest_key_at = args.key_position(first_key + num_keys - 1);
  int key_at[kOwnRows];
#pragma unroll
  for (int i = 0; i < kOwnRows; ++i) key_at[i] = args.key_position(first_key + own.row + i);

  Sums dk{};
  Sums dv{};
  for (int first = 0; first < args.tq; first += kTile) {
    const int lane_at = lane_position(args, first);
    // Keys with gaps between their positions may let a tile through that sees none: it adds zeros.
    const bool may_see = lane_at >= lowest_key_at && lane_at - highest_key_at < args.window;
    if (!__any_sync(kAllLanes, may_see)) continue;  // every warp finds the same
    const int64_t row = int64_t{blockIdx.z} * args.tq + first;
    const int num_rows = min(kTile, args.tq - first);
    int position[kOwnColumns];
#pragma unroll
    for (int j = 0; j < kOwnColumns; ++j) {
      position[j] = __shfl_sync(kAllLanes, lane_at, own.column + j * kAcross);
    }
    for (int h = 0; h < args.group; ++h) {
      const int64_t head = int64_t{blockIdx.y} * args.group + h;
      const int64_t column = head * args.d;
      load_tile(args.q, row, column, num_rows, args, rows);
      Scores probs = row_products(k, rows, args);
#pragma unroll
      for (int j = 0; j < kOwnColumns; ++j) {
        const int query = own.column + j * kAcross;
        const float lse = query < num_rows ? *args.lse.at(row + query, head) : 0.0F;
#pragma unroll
        for (int i = 0; i < kOwnRows; ++i) {
          const bool sees = args.sees(position[j], key_at[i]);
          probs.at[i][j] = sees ? expf(probs.at[i][j] * args.scale - lse) : 0.0F;
        }
      }
      load_tile(gradient.dout, row, column, num_rows, args, rows);
      share_scores(probs, shared_scores);
      dv.add_product(shared_scores, rows, args.d, pitch);
      Scores dscores = row_products(v, rows, args);
      float delta[kOwnRows];
      row_deltas(args, row, num_rows, column, rows, delta);
      if (own.column == 0) {
#pragma unroll
        for (int i = 0; i < kOwnRows; ++i) deltas[own.row + i] = delta[i];
      }
      load_tile(args.q, row, column, num_rows, args, rows);  // its barriers show deltas to all
#pragma unroll
      for (int j = 0; j < kOwnColumns; ++j) {
        const float own_delta = deltas[own.column + j * kAcross];
#pragma unroll
        for (int i = 0; i < kOwnRows; ++i) {
          const bool sees = args.sees(position[j], key_at[i]);
          const float difference = dscores.at[i][j] - own_delta;
          dscores.at[i][j] = sees ? probs.at[i][j] * difference * args.scale : 0.0F;
        }
      }
      share_scores(dscores, shared_scores);
      dk.add_product(shared_scores, rows, args.d, pitch);
    }
  }
  dk.store(gradient.dk, key_row, kv_column, num_keys, args.d, gradient.accumulate);
  dv.store(gradient.dv, key_row, kv_column, num_keys, args.d, gradient.accumulate);
}

template <typename T>
Heads<T> heads_of(const Tensor& tensor) {
  return {static_cast<T*>(tensor.data), tensor.ld};
}

template <typename T>
Attention<T> attention_of(const AttentionArgs& args, bool is_packed) {
  const bool has_window = args.window > 0 && args.window < INT_MAX;
  return {heads_of<const T>(args.q),
          heads_of<const T>(args.k),
          heads_of<const T>(args.v),
          heads_of<T>(args.out),
          heads_of<float>(args.lse),
          static_cast<const int32_t*>(args.positions.data),
          static_cast<const int32_t*>(args.key_positions.data),
          static_cast<int>(args.positions.rows),
          static_cast<int>(args.k.rows / args.batch),
          static_cast<int>(args.q.cols / args.heads),
          static_cast<int>(args.heads / args.kv_heads),
          has_window ? static_cast<int>(args.window) : INT_MAX,
          static_cast<float>(args.scale),
          is_packed};
}

void check_shape(const AttentionArgs& args) {
  const bool has_heads = args.batch > 0 && args.kv_heads > 0 && args.heads % args.kv_heads == 0;
  const int64_t d = has_heads ? args.q.cols / args.heads : 0;
  MOETUNE_CHECK(has_heads && args.q.cols == args.heads * d &&
                    args.q.rows == args.batch * args.positions.rows &&
                    args.k.rows % args.batch == 0 && args.v.rows == args.k.rows &&
                    args.k.cols == args.kv_heads * d && args.v.cols == args.k.cols,
                "attention: q [{},{}], k [{},{}], v [{},{}], batch {}, heads {}/{}, {} positions",
                args.q.rows, args.q.cols, args.k.rows, args.k.cols, args.v.rows, args.v.cols,
                args.batch, args.heads, args.kv_heads, args.positions.rows);
  MOETUNE_CHECK(args.key_positions.is_null() || args.key_positions.rows == args.k.rows / args.batch,
                "attention: {} positions for {} keys", args.key_positions.rows,
                args.k.rows / args.batch);
  MOETUNE_CHECK(d > 0 && d <= kMaxHeadDim, "attention: head dim {} is not in [1, {}] on CUDA", d,
                kMaxHeadDim);
}

// True when every head of every row begins and ends at a pack.
bool has_packs(const AttentionArgs& args) {
  const int64_t head_bytes = args.q.cols / args.heads * base::size_of(args.q.dtype);
  return head_bytes % kPackBytes == 0 && is_divisible(args.q) && is_divisible(args.k) &&
         is_divisible(args.v);
}

// `num_tiles` whole tiles of rows, tiles of scores and `extra` floats.
size_t shared_bytes(const AttentionArgs& args, int num_tiles, int extra) {
  const auto pitch = static_cast<size_t>(ceil_div(args.q.cols / args.heads, kQuad) * kQuad + kQuad);
  return (num_tiles * kTile * pitch + kTile * kScorePitch + extra) * sizeof(float);
}

dim3 grid_of_tiles(int64_t rows, int64_t heads, int64_t batch) {
  return dim3(static_cast<unsigned>(ceil_div(rows, kTile)), static_cast<unsigned>(heads),
              static_cast<unsigned>(batch));
}

}  // namespace

void attention(Stream stream, const AttentionArgs& args) {
  check_shape(args);
  const bool is_packed = has_packs(args);
  dispatch_float(args.q.dtype, [&]<typename T>(std::type_identity<T>) {
    launch(attention_kernel<T>,
           {grid_of_tiles(args.positions.rows, args.heads, args.batch), dim3(kThreads),
            shared_bytes(args, 2, 0)},
           stream, attention_of<T>(args, is_packed));
  });
}

void attention_backward(Stream stream, const AttentionBackwardArgs& args) {
  const AttentionArgs& saved = args.forward;
  check_shape(saved);
  const bool is_packed = has_packs(saved) && is_divisible(args.dout);
  dispatch_float(saved.q.dtype, [&]<typename T>(std::type_identity<T>) {
    const AttentionGradient<T> gradient{attention_of<T>(saved, is_packed),
                                        heads_of<const T>(args.dout),
                                        heads_of<T>(args.dq),
                                        heads_of<T>(args.dk),
                                        heads_of<T>(args.dv),
                                        args.accumulate};
    launch(attention_dq_kernel<T>,
           {grid_of_tiles(saved.positions.rows, saved.heads, saved.batch), dim3(kThreads),
            shared_bytes(saved, 3, 0)},
           stream, gradient);
    launch(attention_dkv_kernel<T>,
           {grid_of_tiles(saved.k.rows / saved.batch, saved.kv_heads, saved.batch), dim3(kThreads),
            shared_bytes(saved, 3, kTile)},
           stream, gradient);
  });
}

}  // namespace moetune::kernels::cuda

// Causal grouped-query attention, a block of query rows at a time: scores and products by row_gemm
// on strided views, softmax in between. Only the keys that a block can see are touched. The
// backward pass recomputes the probabilities from the saved log-sum-exp (Dao et al. 2022) instead
// of storing them.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/row_gemm.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/vector_math.h"

namespace moetune::kernels::cpu {
namespace {

constexpr int64_t kBlockRows = 64;

// Keys [begin, end).
struct Span {
  int64_t begin;
  int64_t end;

  [[nodiscard]] int64_t count() const { return end - begin; }
};

// The first key that sits at `position` or after it.
int64_t key_from(const AttentionArgs& args, int64_t position, int64_t num_keys) {
  if (args.key_positions.is_null()) return std::clamp<int64_t>(position, 0, num_keys);
  const auto* keys = args.key_positions.row<int32_t>(0);
  return std::lower_bound(keys, keys + num_keys, position) - keys;
}

// What a query at `position` sees.
Span seen_from(const AttentionArgs& args, int64_t position, int64_t num_keys) {
  const int64_t after = position + 1;
  return {args.window > 0 ? key_from(args, after - args.window, num_keys) : 0,
          key_from(args, after, num_keys)};
}

// Query rows [first, first + count) of every sequence, at consecutive positions, and the keys that
// at least one of them sees.
struct Block {
  int64_t first;
  int64_t count;
  int64_t position;  // of the first row
  Span keys;
};

// What row i of a block sees, relative to the block's first key.
Span span_of(const AttentionArgs& args, const Block& block, int64_t i, int64_t num_keys) {
  const Span seen = seen_from(args, block.position + i, num_keys);
  return {seen.begin - block.keys.begin, seen.end - block.keys.begin};
}

// A block ends where positions jump: a context-parallel shard is two distant runs, and a block
// across both would compute the later run's keys for the earlier run's rows.
Block block_at(const AttentionArgs& args, int64_t first, int64_t num_keys) {
  const auto* positions = args.positions.row<int32_t>(0);
  const int64_t limit = std::min(args.positions.rows, first + kBlockRows);
  int64_t last = first + 1;
  while (last < limit && positions[last] == positions[last - 1] + 1) ++last;
  const int64_t position = positions[first];
  const int64_t count = last - first;
  const bool has_keys = !args.key_positions.is_null() || position + count <= num_keys;
  MOETUNE_CHECK(position >= 0 && has_keys, "attention: positions {} to {} are not in [0, {})",
                position, position + count - 1, num_keys);
  return {first,
          count,
          position,
          {seen_from(args, position, num_keys).begin,
           seen_from(args, position + count - 1, num_keys).end}};
}

// How many of a block's scores to go through, from the first of `span`: a whole number of vectors
// where the block is wide enough. Up to seven masked scores are computed with then, which is faster
// than going through the last seen ones one by one; they are overwritten with zeros afterwards.
int64_t padded_count(const Span& span, int64_t num_scores) {
  constexpr int64_t kVector = 8;
  return std::min((span.count() + kVector - 1) / kVector * kVector, num_scores - span.begin);
}

// One tensor's columns of one head of one sequence.
template <typename T>
struct HeadView {
  T* data;
  int64_t ld;

  [[nodiscard]] T* row(int64_t r) const { return data + r * ld; }
  [[nodiscard]] LeftRows<T> rows() const { return {data, ld, 1, nullptr}; }
};

template <typename T>
HeadView<T> head_view(const Tensor& tensor, int64_t first_row, int64_t head, int64_t d) {
  return {tensor.row<T>(first_row) + head * d, tensor.ld};
}

struct Shape {
  int64_t tq;
  int64_t s;
  int64_t d;
  int64_t group;  // query heads per key head
};

Shape shape_of(const AttentionArgs& args) {
  const bool has_heads = args.batch > 0 && args.kv_heads > 0 && args.heads % args.kv_heads == 0;
  const Shape shape{args.positions.rows, has_heads ? args.k.rows / args.batch : 0,
                    has_heads ? args.q.cols / args.heads : 0,
                    has_heads ? args.heads / args.kv_heads : 0};
  MOETUNE_CHECK(has_heads && args.q.rows == args.batch * shape.tq &&
                    args.k.rows == args.batch * shape.s && args.v.rows == args.k.rows &&
                    args.k.cols == args.kv_heads * shape.d && args.v.cols == args.k.cols,
                "attention: q [{},{}], k [{},{}], v [{},{}], batch {}, heads {}/{}, {} positions",
                args.q.rows, args.q.cols, args.k.rows, args.k.cols, args.v.rows, args.v.cols,
                args.batch, args.heads, args.kv_heads, args.positions.rows);
  if (args.key_positions.is_null()) return shape;
  MOETUNE_CHECK(args.key_positions.rows == shape.s, "attention: {} positions for {} keys",
                args.key_positions.rows, shape.s);
  const auto* at = args.key_positions.row<int32_t>(0);
  for (int64_t key = 1; key < shape.s; ++key) {
    MOETUNE_CHECK(at[key - 1] < at[key], "attention: a key at position {} after one at {}", at[key],
                  at[key - 1]);
  }
  return shape;
}

// The softmax of one row is a chain: the largest score, the exponentials, their sum, the quotients.
// Where each link is done for a few rows, a processor need not wait for the end of one.
constexpr int64_t kRowsTogether = 4;

// Turns the scores of rows [begin, end) of a block, at most kRowsTogether, into probabilities.
template <typename T>
void softmax_rows(const AttentionArgs& args, const Shape& shape, const Block& block, int64_t begin,
                  int64_t end, T* scores, T* lse) {
  const int64_t n = block.keys.count();
  struct Row {
    Span span;
    T* seen;        // its first score that counts
    int64_t count;  // padded
    T largest;
    double total;
  };
  std::array<Row, kRowsTogether> rows;
  const int64_t num_rows = end - begin;
  for (int64_t i = 0; i < num_rows; ++i) {
    Row& row = rows[i];
    row.span = span_of(args, block, begin + i, shape.s);
    row.seen = scores + (begin + i) * n + row.span.begin;
    row.count = padded_count(row.span, n);
    row.largest = -std::numeric_limits<T>::infinity();
    if (row.count == 0) continue;
    scale(row.seen, row.count, static_cast<T>(args.scale));
    // Neither the largest score nor, as exp(-infinity) is 0, a bit of the sum.
    std::fill(row.seen + row.span.count(), row.seen + row.count, row.largest);
    row.largest = max(row.seen, row.count);
  }
  for (int64_t i = 0; i < num_rows; ++i) exp_shifted(rows[i].seen, rows[i].count, rows[i].largest);
  for (int64_t i = 0; i < num_rows; ++i) {
    rows[i].total = rows[i].count > 0 ? sum(rows[i].seen, rows[i].count) : 1.0;
  }
  for (int64_t i = 0; i < num_rows; ++i) {
    const Row& row = rows[i];
    T* all = scores + (begin + i) * n;
    scale(row.seen, row.count, static_cast<T>(1.0 / row.total));
    std::fill(all, all + row.span.begin, T{0});
    std::fill(all + row.span.end, all + n, T{0});
    lse[(begin + i) * args.lse.ld] = row.largest + static_cast<T>(std::log(row.total));
  }
}

template <typename T>
void forward_block(const AttentionArgs& args, const Shape& shape, const Block& block, int64_t b,
                   int64_t head, T* scores) {
  const int64_t query_row = b * shape.tq + block.first;
  const int64_t key_row = b * shape.s + block.keys.begin;
  const auto q = head_view<T>(args.q, query_row, head, shape.d);
  const auto k = head_view<T>(args.k, key_row, head / shape.group, shape.d);
  const auto v = head_view<T>(args.v, key_row, head / shape.group, shape.d);
  const auto out = head_view<T>(args.out, query_row, head, shape.d);
  const int64_t n = block.keys.count();
  row_gemm<T>(block.count, n, shape.d, q.rows(), k.data, k.ld, true, false, scores, n, nullptr);
  T* lse = args.lse.row<T>(query_row) + head;
  for (int64_t i = 0; i < block.count; i += kRowsTogether) {
    softmax_rows<T>(args, shape, block, i, std::min(i + kRowsTogether, block.count), scores, lse);
  }
  row_gemm<T>(block.count, shape.d, n, {scores, n, 1, nullptr}, v.data, v.ld, false, false,
              out.data, out.ld, nullptr);
}

template <typename T>
void forward(const AttentionArgs& args) {
  const Shape shape = shape_of(args);
  T* scores = scratch<T>(0, kBlockRows * shape.s);
  for (int64_t b = 0; b < args.batch; ++b) {
    for (int64_t head = 0; head < args.heads; ++head) {
      for (int64_t first = 0; first < shape.tq;) {
        const Block block = block_at(args, first, shape.s);
        forward_block(args, shape, block, b, head, scores);
        first += block.count;
      }
    }
  }
}

// With P the probabilities and D_i = dout_i . out_i: dV += P^T dout, dS = P * (dout V^T - D) *
// scale, dQ = dS K, dK += dS^T Q.
template <typename T>
void backward_block(const AttentionBackwardArgs& args, const Shape& shape, const Block& block,
                    int64_t b, int64_t head, T* probs, T* dscores) {
  const AttentionArgs& saved = args.forward;
  const int64_t query_row = b * shape.tq + block.first;
  const int64_t key_row = b * shape.s + block.keys.begin;
  const int64_t kv_head = head / shape.group;
  const auto q = head_view<T>(saved.q, query_row, head, shape.d);
  const auto k = head_view<T>(saved.k, key_row, kv_head, shape.d);
  const auto v = head_view<T>(saved.v, key_row, kv_head, shape.d);
  const auto out = head_view<T>(saved.out, query_row, head, shape.d);
  const auto dout = head_view<T>(args.dout, query_row, head, shape.d);
  const auto dq = head_view<T>(args.dq, query_row, head, shape.d);
  const auto dk = head_view<T>(args.dk, key_row, kv_head, shape.d);
  const auto dv = head_view<T>(args.dv, key_row, kv_head, shape.d);
  const T scale_factor = static_cast<T>(saved.scale);
  const int64_t n = block.keys.count();

  row_gemm<T>(block.count, n, shape.d, q.rows(), k.data, k.ld, true, false, probs, n, nullptr);
  row_gemm<T>(block.count, n, shape.d, dout.rows(), v.data, v.ld, true, false, dscores, n, nullptr);
  for (int64_t i = 0; i < block.count; ++i) {
    const Span span = span_of(saved, block, i, shape.s);
    const T lse = saved.lse.row<T>(query_row + i)[head];
    const T delta = static_cast<T>(dot<T>(dout.row(i), out.row(i), shape.d));
    const int64_t count = padded_count(span, n);
    T* __restrict p = probs + i * n + span.begin;
    T* __restrict ds = dscores + i * n + span.begin;
    scale(p, count, scale_factor);
    exp_shifted(p, count, lse);
    for (int64_t j = 0; j < count; ++j) ds[j] = p[j] * (ds[j] - delta) * scale_factor;
    for (T* row : {probs + i * n, dscores + i * n}) {
      std::fill(row, row + span.begin, T{0});
      std::fill(row + span.end, row + n, T{0});
    }
  }
  row_gemm<T>(n, shape.d, block.count, {probs, 1, n, nullptr}, dout.data, dout.ld, false, true,
              dv.data, dv.ld, nullptr);
  row_gemm<T>(block.count, shape.d, n, {dscores, n, 1, nullptr}, k.data, k.ld, false,
              args.accumulate, dq.data, dq.ld, nullptr);
  row_gemm<T>(n, shape.d, block.count, {dscores, 1, n, nullptr}, q.data, q.ld, false, true, dk.data,
              dk.ld, nullptr);
}

template <typename T>
void backward(const AttentionBackwardArgs& args) {
  const AttentionArgs& saved = args.forward;
  const Shape shape = shape_of(saved);
  T* probs = scratch<T>(0, kBlockRows * shape.s);
  T* dscores = scratch<T>(1, kBlockRows * shape.s);
  for (int64_t r = 0; r < saved.k.rows && !args.accumulate; ++r) {
    std::fill_n(args.dk.row<T>(r), args.dk.cols, T{0});
    std::fill_n(args.dv.row<T>(r), args.dv.cols, T{0});
  }
  // dk and dv of a key head are summed over its query heads in order, and over blocks in order.
  for (int64_t b = 0; b < saved.batch; ++b) {
    for (int64_t head = 0; head < saved.heads; ++head) {
      for (int64_t first = 0; first < shape.tq;) {
        const Block block = block_at(saved, first, shape.s);
        backward_block(args, shape, block, b, head, probs, dscores);
        first += block.count;
      }
    }
  }
}

}  // namespace

void attention(const AttentionArgs& args) {
  dispatch(args.q.dtype, [&]<typename T>(std::type_identity<T>) { forward<T>(args); });
}

void attention_backward(const AttentionBackwardArgs& args) {
  dispatch(args.forward.q.dtype, [&]<typename T>(std::type_identity<T>) { backward<T>(args); });
}

}  // namespace moetune::kernels::cpu

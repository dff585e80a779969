// Softmax cross-entropy with its gradient, in place on one chunk of logits: of the whole
// vocabulary, or of one shard of it together with what the other shards say of their columns.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/vector_math.h"

namespace moetune::kernels::cpu {
namespace {

template <typename T>
constexpr T kLowest = -std::numeric_limits<T>::infinity();

// From exp(logit - largest) to the gradient. `target` is a column, or -1: in another shard.
template <typename T>
void finish_row(T* x, int64_t cols, double total, int64_t target, double grad_scale) {
  scale(x, cols, static_cast<T>(grad_scale / total));
  if (target >= 0) x[target] -= static_cast<T>(grad_scale);
}

template <typename T>
void run_whole(const CrossEntropyArgs& args) {
  const int64_t vocabulary = args.logits.cols;
  const auto* targets = args.targets.row<int32_t>(0);
  for (int64_t r = 0; r < args.logits.rows; ++r) {
    const int64_t target = targets[r];
    MOETUNE_CHECK(target >= 0 && target < vocabulary, "cross_entropy: target {} is not in [0, {})",
                  target, vocabulary);
    T* x = args.logits.row<T>(r);
    const T target_logit = x[target];
    const T largest = max(x, vocabulary);
    exp_shifted(x, vocabulary, largest);
    const double total = sum(x, vocabulary);
    // Straight onto the caller's sum, row by row: the chunk size then changes no bit of the loss.
    *args.loss_sum += std::log(total) + static_cast<double>(largest - target_logit);
    finish_row(x, vocabulary, total, target, args.grad_scale);
  }
}

// A target's column among `cols` that begin at first_col, or -1. Where the vocabulary ends is not
// known to a shard.
int64_t column_of(int64_t target, int64_t first_col, int64_t cols) {
  MOETUNE_CHECK(target >= 0, "cross_entropy: target {} is negative", target);
  const int64_t column = target - first_col;
  return column >= 0 && column < cols ? column : -1;
}

// A row's softmax over all shards.
template <typename T>
struct RowSoftmax {
  T largest = kLowest<T>;
  double total = 0.0;  // of exp(logit - largest)
  T target_logit = kLowest<T>;
};

template <typename T>
RowSoftmax<T> row_softmax(const Tensor& stats, int64_t row, int64_t num_rows) {
  RowSoftmax<T> softmax;
  for (int64_t r = row; r < stats.rows; r += num_rows) {
    const T* shard = stats.row<T>(r);
    softmax.largest = std::max(softmax.largest, shard[0]);
    if (shard[2] != kLowest<T>) softmax.target_logit = shard[2];
  }
  for (int64_t r = row; r < stats.rows; r += num_rows) {
    const T* shard = stats.row<T>(r);
    softmax.total += static_cast<double>(shard[1]) *
                     std::exp(static_cast<double>(shard[0]) - static_cast<double>(softmax.largest));
  }
  return softmax;
}

template <typename T>
void run_shard(const CrossEntropyArgs& args) {
  const int64_t cols = args.logits.cols;
  const auto* targets = args.targets.row<int32_t>(0);
  for (int64_t r = 0; r < args.logits.rows; ++r) {
    const int64_t target = column_of(targets[r], args.first_col, cols);
    const auto softmax = row_softmax<T>(args.stats, r, args.logits.rows);
    if (target >= 0 || softmax.target_logit == kLowest<T>) {
      *args.loss_sum +=
          std::log(softmax.total) + static_cast<double>(softmax.largest - softmax.target_logit);
    }
    T* x = args.logits.row<T>(r);
    exp_shifted(x, cols, softmax.largest);
    finish_row(x, cols, softmax.total, target, args.grad_scale);
  }
}

template <typename T>
void write_stats(const CrossEntropyStatsArgs& args) {
  const int64_t cols = args.logits.cols;
  const auto* targets = args.targets.row<int32_t>(0);
  T* exps = scratch<T>(0, cols);
  for (int64_t r = 0; r < args.logits.rows; ++r) {
    const int64_t target = column_of(targets[r], args.first_col, cols);
    const T* x = args.logits.row<T>(r);
    const T largest = cols > 0 ? max(x, cols) : kLowest<T>;
    std::copy_n(x, cols, exps);
    // A row without a finite logit has the sum 0, not NaN: other shards may have some.
    exp_shifted(exps, cols, largest == kLowest<T> ? T{0} : largest);
    T* stats = args.stats.row<T>(r);
    stats[0] = largest;
    stats[1] = static_cast<T>(sum(exps, cols));
    stats[2] = target >= 0 ? x[target] : kLowest<T>;
  }
}

}  // namespace

void cross_entropy(const CrossEntropyArgs& args) {
  if (args.logits.numel() == 0) return;
  MOETUNE_CHECK(args.targets.rows == args.logits.rows, "cross_entropy: {} targets for {} rows",
                args.targets.rows, args.logits.rows);
  const bool is_whole = args.stats.is_null();
  MOETUNE_CHECK(is_whole || (args.stats.cols == 3 && args.stats.rows > 0 &&
                             args.stats.rows % args.logits.rows == 0 &&
                             args.stats.dtype == args.logits.dtype),
                "cross_entropy: stats [{},{}] of {} for {} rows of {}", args.stats.rows,
                args.stats.cols, base::name_of(args.stats.dtype), args.logits.rows,
                base::name_of(args.logits.dtype));
  dispatch(args.logits.dtype, [&]<typename T>(std::type_identity<T>) {
    is_whole ? run_whole<T>(args) : run_shard<T>(args);
  });
}

void cross_entropy_stats(const CrossEntropyStatsArgs& args) {
  if (args.logits.rows == 0) return;
  MOETUNE_CHECK(args.targets.rows == args.logits.rows && args.stats.rows == args.logits.rows &&
                    args.stats.cols == 3 && args.stats.dtype == args.logits.dtype,
                "cross_entropy_stats: {} targets, stats [{},{}] of {} for {} rows of {}",
                args.targets.rows, args.stats.rows, args.stats.cols,
                base::name_of(args.stats.dtype), args.logits.rows,
                base::name_of(args.logits.dtype));
  dispatch(args.logits.dtype, [&]<typename T>(std::type_identity<T>) { write_stats<T>(args); });
}

}  // namespace moetune::kernels::cpu

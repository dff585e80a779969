// Softmax top-k router with the statistics of the auxiliary loss, and the gradient of all three
// losses through it.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/vector_math.h"

namespace moetune::kernels::cpu {
namespace {

// The k largest of n values in falling order; equal ones keep the order of their indices. Always k
// different indices, also with NaN among the values.
template <typename T>
void select_top(const T* values, int64_t n, int64_t k, int32_t* indices) {
  int64_t filled = 0;
  for (int64_t e = 0; e < n; ++e) {
    const T value = values[e];
    if (filled == k && !(value > values[indices[k - 1]])) continue;
    int64_t place = filled < k ? filled++ : k - 1;
    for (; place > 0 && value > values[indices[place - 1]]; --place) {
      indices[place] = indices[place - 1];
    }
    indices[place] = static_cast<int32_t>(e);
  }
}

template <typename T>
void forward(const RouterArgs& args, int64_t num_seqs) {
  const int64_t num_experts = args.logits.cols;
  const int64_t topk = args.indices.cols;
  const int64_t tokens_per_seq = args.logits.rows / num_seqs;
  double* prob_sums = scratch<double>(0, num_experts);
  for (int64_t s = 0; s < num_seqs; ++s) {
    auto* counts = args.counts.row<int32_t>(s);
    std::fill_n(counts, num_experts, 0);
    std::fill_n(prob_sums, num_experts, 0.0);
    for (int64_t t = s * tokens_per_seq; t < (s + 1) * tokens_per_seq; ++t) {
      const T* logits = args.logits.row<T>(t);
      T* probs = args.probs.row<T>(t);
      if (probs != logits) {
        std::memcpy(probs, logits, static_cast<size_t>(num_experts) * sizeof(T));
      }
      double total = 0.0;
      *args.lse.row<T>(t) = exp_and_lse(probs, num_experts, &total);
      scale(probs, num_experts, static_cast<T>(1.0 / total));
      for (int64_t e = 0; e < num_experts; ++e) prob_sums[e] += static_cast<double>(probs[e]);

      auto* indices = args.indices.row<int32_t>(t);
      T* weights = args.weights.row<T>(t);
      select_top(probs, num_experts, topk, indices);
      T chosen = T{0};
      for (int64_t k = 0; k < topk; ++k) {
        weights[k] = probs[indices[k]];
        chosen += weights[k];
        ++counts[indices[k]];
      }
      if (args.normalize) {
        for (int64_t k = 0; k < topk; ++k) weights[k] /= chosen;
      }
    }
    T* sums = args.prob_sums.row<T>(s);
    for (int64_t e = 0; e < num_experts; ++e) sums[e] = static_cast<T>(prob_sums[e]);
  }
}

// Through the weights: w_k = p_k (raw) or p_k / sum p (normalised, so dp_k = (dw_k - sum_j dw_j
// w_j) / sum p). Through the softmax: dl_e = p_e (dp_e - sum_j p_j dp_j). The z loss adds z_scale *
// 2 * lse * p_e.
template <typename T>
void backward(const RouterBackwardArgs& args, int64_t num_seqs) {
  const int64_t num_experts = args.probs.cols;
  const int64_t topk = args.indices.cols;
  const int64_t tokens_per_seq = args.probs.rows / num_seqs;
  T* dprobs = scratch<T>(0, num_experts);
  const T z_scale = static_cast<T>(2.0 * args.z_scale);
  for (int64_t t = 0; t < args.probs.rows; ++t) {
    const T* probs = args.probs.row<T>(t);
    const auto* indices = args.indices.row<int32_t>(t);
    const T* weights = args.weights.row<T>(t);
    const T* dweights = args.dweights.row<T>(t);
    if (args.aux_scale.is_null()) {
      std::fill_n(dprobs, num_experts, T{0});
    } else {
      std::memcpy(dprobs, args.aux_scale.row<T>(t / tokens_per_seq),
                  static_cast<size_t>(num_experts) * sizeof(T));
    }
    T chosen = T{1};
    T shared = T{0};
    if (args.normalize) {
      chosen = T{0};
      for (int64_t k = 0; k < topk; ++k) {
        chosen += probs[indices[k]];
        shared += dweights[k] * weights[k];
      }
    }
    for (int64_t k = 0; k < topk; ++k) dprobs[indices[k]] += (dweights[k] - shared) / chosen;
    const T mean = static_cast<T>(dot<T>(probs, dprobs, num_experts));
    const T z = z_scale * *args.lse.row<T>(t);
    T* dlogits = args.dlogits.row<T>(t);
#pragma GCC ivdep
    for (int64_t e = 0; e < num_experts; ++e) dlogits[e] = probs[e] * (dprobs[e] - mean + z);
  }
}

}  // namespace

void router(const RouterArgs& args) {
  const int64_t num_seqs = args.counts.rows;
  MOETUNE_CHECK(num_seqs > 0 && args.logits.rows % num_seqs == 0 &&
                    args.prob_sums.rows == num_seqs && args.indices.cols <= args.logits.cols &&
                    args.weights.cols == args.indices.cols,
                "router: {} tokens of {} experts, top-{}, {} sequences", args.logits.rows,
                args.logits.cols, args.indices.cols, num_seqs);
  dispatch(args.logits.dtype,
           [&]<typename T>(std::type_identity<T>) { forward<T>(args, num_seqs); });
}

void router_backward(const RouterBackwardArgs& args) {
  if (args.probs.rows == 0) return;
  const int64_t num_seqs = args.aux_scale.is_null() ? 1 : args.aux_scale.rows;
  MOETUNE_CHECK(num_seqs > 0 && args.probs.rows % num_seqs == 0,
                "router_backward: {} tokens in {} sequences", args.probs.rows, num_seqs);
  dispatch(args.probs.dtype,
           [&]<typename T>(std::type_identity<T>) { backward<T>(args, num_seqs); });
}

}  // namespace moetune::kernels::cpu

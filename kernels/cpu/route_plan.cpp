// What follows from a routing decision: the order in which rows are sent, and the auxiliary losses.
#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/dispatch.h"

namespace moetune::kernels::cpu {
namespace {

/// The chunk c with begin(c) <= token < begin(c + 1), begin(c) = c * num_tokens / num_chunks.
int64_t chunk_of(int64_t token, int64_t num_chunks, int64_t num_tokens) {
  int64_t chunk = token * num_chunks / num_tokens;
  while ((chunk + 1) * num_tokens / num_chunks <= token) ++chunk;
  return chunk;
}

}  // namespace

void aux_loss(const AuxLossArgs& args) {
  if (!args.sums.is_null()) {
    const int64_t numel = args.sums.numel() / 2;
    dispatch(args.sums.dtype, [&]<typename T>(std::type_identity<T>) {
      const T* probs = args.sums.row<T>(0);
      T* tokens = args.sums.row<T>(args.sums.rows / 2);
      double products = 0;
      for (int64_t i = 0; i < numel; ++i) {
        const double gradient = args.scale * static_cast<double>(tokens[i]);
        products += gradient * static_cast<double>(probs[i]);
        tokens[i] = static_cast<T>(gradient);
      }
      if (args.load_balance != nullptr) *args.load_balance += args.loss_share * products;
    });
  }
  if (args.lse.is_null() || args.z_loss == nullptr) return;
  dispatch(args.lse.dtype, [&]<typename T>(std::type_identity<T>) {
    double sum = 0;
    for (int64_t t = 0; t < args.lse.rows; ++t) {
      const auto lse = static_cast<double>(*args.lse.row<T>(t));
      sum += lse * lse;
    }
    *args.z_loss += args.z_scale * sum;
  });
}

void route_plan(const RoutePlanArgs& args) {
  const int64_t num_tokens = args.indices.rows;
  const int64_t topk = args.indices.cols;
  const int64_t num_experts = args.counts.cols;
  MOETUNE_CHECK(args.counts.rows == args.num_chunks && args.num_chunks >= 1,
                "route_plan: counts has {} rows for {} chunks", args.counts.rows, args.num_chunks);
  MOETUNE_CHECK(args.offsets.is_null() || args.num_chunks == 1,
                "route_plan: offsets are those of one chunk, not of {}", args.num_chunks);
  int32_t* counts = args.counts.row<int32_t>(0);
  std::fill_n(counts, args.counts.numel(), 0);
  std::vector<int64_t> bucket_of(static_cast<size_t>(num_tokens * topk));
  for (int64_t slot = 0; slot < num_tokens * topk; ++slot) {
    const int64_t token = slot / topk;
    const int32_t expert = args.indices.row<int32_t>(token)[slot % topk];
    MOETUNE_CHECK(expert >= 0 && expert < num_experts, "route_plan: expert {} is not in [0, {})",
                  expert, num_experts);
    const int64_t bucket = chunk_of(token, args.num_chunks, num_tokens) * num_experts + expert;
    bucket_of[static_cast<size_t>(slot)] = bucket;
    ++counts[bucket];
  }
  std::vector<int32_t> next(static_cast<size_t>(args.counts.numel()));
  std::exclusive_scan(counts, counts + args.counts.numel(), next.begin(), 0);
  if (!args.offsets.is_null()) {
    int32_t* offsets = args.offsets.row<int32_t>(0);
    std::copy(next.begin(), next.end(), offsets);
    offsets[num_experts] = static_cast<int32_t>(num_tokens * topk);
  }
  int32_t* order = args.order.row<int32_t>(0);
  int32_t* position = args.position.row<int32_t>(0);
  for (int64_t slot = 0; slot < num_tokens * topk; ++slot) {
    const int32_t place = next[static_cast<size_t>(bucket_of[static_cast<size_t>(slot)])]++;
    order[place] = static_cast<int32_t>(slot);
    position[slot] = place;
  }
}

}  // namespace moetune::kernels::cpu

// Softmax top-k router with the statistics of the auxiliary losses, the gradient of all three
// losses through it, and the sums of the losses themselves. A warp owns a token. Everything is f32
// but dlogits; no sum of floats depends on the order in which blocks run.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/row_tiles.cuh"

namespace moetune::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTokensAtOnce = kThreads / kWarp;
constexpr int kMaxExperts = 4096;  // 4 bytes of each for every warp, and the counts
constexpr int64_t kMaxBlocks = kNumSms * 8;

struct Router {
  Rows<const float> logits;
  Rows<float> probs;
  Rows<float> lse;
  Rows<int32_t> indices;
  Rows<float> weights;
  Rows<int32_t> counts;
  int64_t tokens_per_seq;
  int num_experts;
  int topk;
  int blocks_per_seq;
  bool normalize;
};

__global__ void zero_kernel(Rows<int32_t> to, int64_t cols) {
  for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) to.at(blockIdx.x)[c] = 0;
}

// The candidate of a lane or a warp for the next place. NaN ranks below every probability, so that
// the chosen experts are k different ones whatever the logits are.
struct Candidate {
  float rank;
  int expert;

  __device__ bool is_before(const Candidate& other) const {
    return rank > other.rank || (rank == other.rank && expert < other.expert);
  }
};

constexpr float kNanRank = -1.0F;
constexpr float kTakenRank = -2.0F;
constexpr float kNobodyRank = -3.0F;

// The best of the lane's own probabilities; those chosen before are kTakenRank.
__device__ Candidate best_of_lane(const float* probs, int num_experts, int lane) {
  Candidate best{kNobodyRank, num_experts};
  for (int e = lane; e < num_experts; e += kWarp) {
    const float p = probs[e];
    const Candidate candidate{p == p ? p : kNanRank, e};
    if (candidate.is_before(best)) best = candidate;
  }
  return best;
}

__device__ Candidate best_of_warp(Candidate best) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    const Candidate other{__shfl_xor_sync(kAllLanes, best.rank, distance),
                          __shfl_xor_sync(kAllLanes, best.expert, distance)};
    if (other.is_before(best)) best = other;
  }
  return best;
}

// Probabilities of one token into `probs` (shared) and memory; returns log sum exp.
__device__ float softmax(const Router& args, int64_t token, float* probs, int lane) {
  const float* logits = args.logits.at(token);
  float largest = -INFINITY;
#pragma unroll 8
  for (int e = lane; e < args.num_experts; e += kWarp) {
    probs[e] = logits[e];
    largest = max_or_nan(largest, probs[e]);
  }
  largest = warp_max(largest);
  float total = 0.0F;
  for (int e = lane; e < args.num_experts; e += kWarp) {
    probs[e] = expf(probs[e] - largest);
    total += probs[e];
  }
  total = warp_sum(total);
  // Each lane writes what it read itself: probs may lie on the logits.
  for (int e = lane; e < args.num_experts; e += kWarp) {
    probs[e] /= total;
    args.probs.at(token)[e] = probs[e];
  }
  return largest + logf(total);
}

__device__ void choose(const Router& args, int64_t token, float* probs, int* counts, int lane) {
  Candidate best = best_of_lane(probs, args.num_experts, lane);
  int own_expert = 0;
  float own_weight = 0.0F;
  float chosen = 0.0F;
  for (int k = 0; k < args.topk; ++k) {
    const Candidate winner = best_of_warp(best);
    // The lane that had it looks for its next one.
    float weight = 0.0F;
    if (winner.expert % kWarp == lane) {
      weight = probs[winner.expert];
      probs[winner.expert] = kTakenRank;
      best = best_of_lane(probs, args.num_experts, lane);
    }
    weight = __shfl_sync(kAllLanes, weight, winner.expert % kWarp);
    chosen += weight;
    if (lane == k) {
      own_expert = winner.expert;
      own_weight = weight;
    }
  }
  if (lane >= args.topk) return;
  args.indices.at(token)[lane] = own_expert;
  args.weights.at(token)[lane] = args.normalize ? own_weight / chosen : own_weight;
  atomicAdd(counts + own_expert, 1);
}

// A block walks through tokens of one sequence. Counts are integers: atomics give the same sums in
// any order.
__global__ void __launch_bounds__(kThreads) router_kernel(Router args) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  int* counts = block_shared<int>();
  float* probs = reinterpret_cast<float*>(counts + args.num_experts) + warp * args.num_experts;
  for (int e = static_cast<int>(threadIdx.x); e < args.num_experts; e += kThreads) counts[e] = 0;
  __syncthreads();

  const int64_t seq = blockIdx.x / args.blocks_per_seq;
  const int64_t first = blockIdx.x % args.blocks_per_seq * kTokensAtOnce + warp;
  for (int64_t t = first; t < args.tokens_per_seq; t += args.blocks_per_seq * kTokensAtOnce) {
    const int64_t token = seq * args.tokens_per_seq + t;
    const float lse = softmax(args, token, probs, lane);
    if (lane == 0) *args.lse.at(token) = lse;
    choose(args, token, probs, counts, lane);
  }

  __syncthreads();
  for (int e = static_cast<int>(threadIdx.x); e < args.num_experts; e += kThreads) {
    if (counts[e] != 0) atomicAdd(args.counts.at(seq) + e, counts[e]);
  }
}

// prob_sums: a block owns eight experts of one sequence (a sector of each row), so that the order
// of the sum is fixed without working memory. The rows come from the cache that the router has just
// filled.
constexpr int kSumThreads = 1024;
constexpr int kSumColumns = 8;
constexpr int kSumRows = kSumThreads / kSumColumns;

__global__ void __launch_bounds__(kSumThreads)
    prob_sums_kernel(Rows<const float> probs, Rows<float> sums, int64_t tokens_per_seq,
                     int num_experts, int blocks_per_seq) {
  auto* partial = block_shared<float>();  // [kSumRows, kSumColumns]
  const int own = static_cast<int>(threadIdx.x);
  const int64_t seq = blockIdx.x / blocks_per_seq;
  const int expert =
      static_cast<int>(blockIdx.x) % blocks_per_seq * kSumColumns + own % kSumColumns;
  float sum = 0.0F;
  if (expert < num_experts) {
    const int64_t end = (seq + 1) * tokens_per_seq;
    int64_t t = seq * tokens_per_seq + own / kSumColumns;
#pragma unroll 8
    for (; t < end; t += kSumRows) sum += probs.at(t)[expert];
  }
  partial[own] = sum;
  for (int rows = kSumRows / 2; rows > 0; rows /= 2) {
    __syncthreads();
    if (own < rows * kSumColumns) partial[own] += partial[own + rows * kSumColumns];
  }
  if (own < kSumColumns && expert < num_experts) sums.at(seq)[expert] = partial[own];
}

template <typename T>
struct RouterGradient {
  Rows<const float> probs;
  Rows<const float> lse;
  Rows<const int32_t> indices;
  Rows<const float> weights;
  Rows<const float> dweights;
  Rows<const float> aux_scale;  // data null: none
  Rows<T> dlogits;
  int64_t num_tokens;
  int64_t tokens_per_seq;
  float z_scale;
  int num_experts;
  int topk;
  bool normalize;
};

// Through the weights: w_k = p_k (raw) or p_k / sum p (normalised, so dp_k = (dw_k - sum_j dw_j
// w_j) / sum p). Through the softmax: dl_e = p_e (dp_e - sum_j p_j dp_j). The z loss adds z_scale *
// 2 * lse * p_e.
template <typename T>
__global__ void __launch_bounds__(kThreads) router_backward_kernel(RouterGradient<T> args) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  float* dprobs = block_shared<float>() + warp * args.num_experts;
  for (int64_t token = int64_t{blockIdx.x} * kTokensAtOnce + warp; token < args.num_tokens;
       token += int64_t{gridDim.x} * kTokensAtOnce) {
    const float* probs = args.probs.at(token);
    const float* aux =
        args.aux_scale.data == nullptr ? nullptr : args.aux_scale.at(token / args.tokens_per_seq);
    for (int e = lane; e < args.num_experts; e += kWarp) {
      dprobs[e] = aux == nullptr ? 0.0F : aux[e];
    }
    __syncwarp();
    int expert = 0;
    float prob = 0.0F;
    float dweight = 0.0F;
    float shared = 0.0F;
    if (lane < args.topk) {
      expert = args.indices.at(token)[lane];
      prob = probs[expert];
      dweight = args.dweights.at(token)[lane];
      shared = dweight * args.weights.at(token)[lane];
    }
    float chosen = 1.0F;
    if (args.normalize) {
      chosen = warp_sum(prob);
      shared = warp_sum(shared);
    } else {
      shared = 0.0F;
    }
    // A token's experts are different ones: no two lanes meet.
    if (lane < args.topk) dprobs[expert] += (dweight - shared) / chosen;
    __syncwarp();
    float mean = 0.0F;
    for (int e = lane; e < args.num_experts; e += kWarp) mean += probs[e] * dprobs[e];
    const float shift = args.z_scale * *args.lse.at(token) - warp_sum(mean);
    // Each lane overwrites only what it read itself: dlogits may lie on probs.
    for (int e = lane; e < args.num_experts; e += kWarp) {
      args.dlogits.at(token)[e] = from_float<T>(probs[e] * (dprobs[e] + shift));
    }
    __syncwarp();
  }
}

// The sum over the block in the first thread, always in the same order.
__device__ double first_thread_sum(double value, double* partial) {
  const int own = static_cast<int>(threadIdx.x);
  partial[own] = value;
  for (int half = kSumThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (own < half) partial[own] += partial[own + half];
  }
  return partial[0];
}

// Block 0 does the load balance and block 1 the z loss; one block each keeps the order of the sums,
// and both inputs are small.
__global__ void __launch_bounds__(kSumThreads)
    aux_loss_kernel(Rows<float> sums, int64_t num_seqs, int64_t num_experts, Rows<const float> lse,
                    int64_t num_tokens, double scale, double loss_scale, double z_scale,
                    double* load_balance, double* z_loss) {
  auto* partial = block_shared<double>();
  double sum = 0.0;
  if (blockIdx.x == 0) {
    for (int64_t i = threadIdx.x; i < num_seqs * num_experts; i += kSumThreads) {
      const int64_t seq = i / num_experts;
      const int64_t expert = i % num_experts;
      float* tokens = sums.at(num_seqs + seq) + expert;
      sum += static_cast<double>(*tokens) * static_cast<double>(sums.at(seq)[expert]);
      *tokens = static_cast<float>(scale * static_cast<double>(*tokens));
    }
  } else {
#pragma unroll 4
    for (int64_t t = threadIdx.x; t < num_tokens; t += kSumThreads) {
      const double value = static_cast<double>(*lse.at(t));
      sum += value * value;
    }
  }
  sum = first_thread_sum(sum, partial);
  if (threadIdx.x != 0) return;
  if (blockIdx.x == 0) {
    if (num_seqs > 0 && load_balance != nullptr) *load_balance += loss_scale * sum;
  } else if (lse.data != nullptr && z_loss != nullptr) {
    *z_loss += z_scale * sum;
  }
}

}  // namespace

void router(Stream stream, const RouterArgs& args) {
  const int64_t num_seqs = args.counts.rows;
  const int64_t num_experts = args.logits.cols;
  const int64_t topk = args.indices.cols;
  MOETUNE_CHECK(num_seqs > 0 && args.logits.rows % num_seqs == 0 &&
                    args.prob_sums.rows == num_seqs && topk <= num_experts &&
                    args.weights.cols == topk,
                "router: {} tokens of {} experts, top-{}, {} sequences", args.logits.rows,
                num_experts, topk, num_seqs);
  MOETUNE_CHECK(num_experts <= kMaxExperts && topk <= kWarp,
                "router: {} experts and top-{} are more than {} and {} on CUDA", num_experts, topk,
                kMaxExperts, kWarp);
  MOETUNE_CHECK(args.logits.dtype == DType::f32 && args.probs.dtype == DType::f32,
                "router: logits are {} and probs {}, not f32", base::name_of(args.logits.dtype),
                base::name_of(args.probs.dtype));
  const int64_t tokens_per_seq = args.logits.rows / num_seqs;
  const int64_t wanted = ceil_div(tokens_per_seq, kTokensAtOnce);
  const int64_t allowed = ceil_div(kMaxBlocks, num_seqs);
  const auto blocks_per_seq = static_cast<int>(wanted < allowed ? wanted : allowed);
  launch(zero_kernel, {dim3(static_cast<unsigned>(num_seqs)), dim3(kThreads)}, stream,
         Rows<int32_t>(args.counts), num_experts);
  const Router kernel_args{Rows<const float>(args.logits),
                           Rows<float>(args.probs),
                           Rows<float>(args.lse),
                           Rows<int32_t>(args.indices),
                           Rows<float>(args.weights),
                           Rows<int32_t>(args.counts),
                           tokens_per_seq,
                           static_cast<int>(num_experts),
                           static_cast<int>(topk),
                           blocks_per_seq,
                           args.normalize};
  const auto row_bytes = static_cast<size_t>(num_experts) * sizeof(float);
  launch(router_kernel,
         {dim3(static_cast<unsigned>(num_seqs * blocks_per_seq)), dim3(kThreads),
          (1 + kTokensAtOnce) * row_bytes},
         stream, kernel_args);
  const int64_t sum_blocks = ceil_div(num_experts, kSumColumns);
  launch(prob_sums_kernel,
         {dim3(static_cast<unsigned>(num_seqs * sum_blocks)), dim3(kSumThreads),
          kSumThreads * sizeof(float)},
         stream, Rows<const float>(args.probs), Rows<float>(args.prob_sums), tokens_per_seq,
         static_cast<int>(num_experts), static_cast<int>(sum_blocks));
}

void router_backward(Stream stream, const RouterBackwardArgs& args) {
  const int64_t num_tokens = args.probs.rows;
  if (num_tokens == 0) return;
  const int64_t num_seqs = args.aux_scale.is_null() ? 1 : args.aux_scale.rows;
  MOETUNE_CHECK(num_seqs > 0 && num_tokens % num_seqs == 0,
                "router_backward: {} tokens in {} sequences", num_tokens, num_seqs);
  MOETUNE_CHECK(args.probs.cols <= kMaxExperts && args.indices.cols <= kWarp,
                "router_backward: {} experts and top-{} are more than {} and {} on CUDA",
                args.probs.cols, args.indices.cols, kMaxExperts, kWarp);
  dispatch_float(args.dlogits.dtype, [&]<typename T>(std::type_identity<T>) {
    const RouterGradient<T> kernel_args{Rows<const float>(args.probs),
                                        Rows<const float>(args.lse),
                                        Rows<const int32_t>(args.indices),
                                        Rows<const float>(args.weights),
                                        Rows<const float>(args.dweights),
                                        Rows<const float>(args.aux_scale),
                                        Rows<T>(args.dlogits),
                                        num_tokens,
                                        num_tokens / num_seqs,
                                        static_cast<float>(2.0 * args.z_scale),
                                        static_cast<int>(args.probs.cols),
                                        static_cast<int>(args.indices.cols),
                                        args.normalize};
    launch(router_backward_kernel<T>,
           {grid_of(ceil_div(num_tokens, kTokensAtOnce), kMaxBlocks), dim3(kThreads),
            kTokensAtOnce * static_cast<size_t>(args.probs.cols) * sizeof(float)},
           stream, kernel_args);
  });
}

void aux_loss(Stream stream, const AuxLossArgs& args) {
  if (args.sums.is_null() && args.lse.is_null()) return;
  MOETUNE_CHECK(args.sums.rows % 2 == 0, "aux_loss: sums has {} rows, not two per sequence",
                args.sums.rows);
  launch(aux_loss_kernel, {dim3(2), dim3(kSumThreads), kSumThreads * sizeof(double)}, stream,
         Rows<float>(args.sums), args.sums.rows / 2, args.sums.cols, Rows<const float>(args.lse),
         args.lse.rows, args.scale, args.loss_share * args.scale, args.z_scale, args.load_balance,
         args.z_loss);
}

}  // namespace moetune::kernels::cuda

// Microseconds of each operation but the GEMMs (gemm_bench) on the quick-start model's shapes, one
// thread: where a step spends its time outside the matrix products.
#include <fmt/format.h>

#include <random>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "tests/bench/stopwatch.h"

namespace moetune::bench {
namespace {

using kernels::DType;
using kernels::Tensor;

constexpr int64_t kTokens = 256;
constexpr int64_t kHidden = 128;
constexpr int64_t kHeads = 4;
constexpr int64_t kKvHeads = 2;
constexpr int64_t kHeadDim = 32;
constexpr int64_t kExperts = 8;
constexpr int64_t kTopk = 2;
constexpr int64_t kFfn = 128;
constexpr int64_t kVocabulary = 256;

// Device memory that lives as long as the bench.
class Pool {
 public:
  explicit Pool(kernels::Backend& backend) : backend_(backend) {}

  Tensor random(int64_t rows, int64_t cols) {
    Tensor tensor = Tensor::matrix(backend_.allocate(rows * cols * 4), DType::f32, rows, cols);
    std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
    for (int64_t i = 0; i < tensor.numel(); ++i) tensor.row<float>(0)[i] = uniform(generator_);
    return tensor;
  }

  // Row i holds i * factor % modulus.
  Tensor indices(int64_t rows, int64_t factor, int64_t modulus) {
    Tensor tensor = Tensor::matrix(backend_.allocate(rows * 4), DType::i32, rows, 1);
    for (int64_t i = 0; i < rows; ++i) {
      tensor.row<int32_t>(0)[i] = static_cast<int32_t>(i * factor % modulus);
    }
    return tensor;
  }

  Tensor integers(int64_t rows, int64_t cols) {
    return indices(rows * cols, 0, 1).reshape(rows, cols);
  }

 private:
  kernels::Backend& backend_;
  std::mt19937 generator_{1};
};

template <typename Body>
void print(const std::string& name, Body&& body) {
  fmt::print("{:28} {:9.2f}\n", name, median_ns(body) / 1000.0);
}

void bench_attention(kernels::Backend& backend, Pool& pool) {
  const int64_t q_width = kHeads * kHeadDim;
  const int64_t kv_width = kKvHeads * kHeadDim;
  kernels::AttentionArgs args;
  args.q = pool.random(kTokens, q_width);
  args.k = pool.random(kTokens, kv_width);
  args.v = pool.random(kTokens, kv_width);
  args.out = pool.random(kTokens, q_width);
  args.lse = pool.random(kTokens, kHeads);
  args.positions = pool.indices(kTokens, 1, kTokens);
  args.heads = kHeads;
  args.kv_heads = kKvHeads;
  args.scale = 0.18;
  const kernels::AttentionBackwardArgs backward{
      args, pool.random(kTokens, q_width), pool.random(kTokens, q_width),
      pool.random(kTokens, kv_width), pool.random(kTokens, kv_width)};
  print("attention", [&] { backend.attention(args); });
  print("attention_backward", [&] { backend.attention_backward(backward); });
}

void bench_norm_and_rope(kernels::Backend& backend, Pool& pool) {
  const Tensor x = pool.random(kTokens, kHidden);
  const Tensor y = pool.random(kTokens, kHidden);
  const Tensor weight = pool.random(1, kHidden);
  const Tensor dweight = pool.random(1, kHidden);
  const Tensor rstd = pool.random(kTokens, 1);
  const Tensor cos = pool.random(kTokens, kHeadDim / 2);
  const Tensor positions = pool.indices(kTokens, 1, kTokens);
  print("rms_norm", [&] { backend.rms_norm({x, weight, y, rstd}); });
  print("rms_norm_backward", [&] {
    backend.rms_norm_backward({x, weight, rstd, x, y, dweight, 1, false});
  });
  print("rope", [&] { backend.rope({y, cos, cos, positions, kHeads, false}); });
}

void bench_moe(kernels::Backend& backend, Pool& pool) {
  const int64_t slots = kTokens * kTopk;
  const Tensor logits = pool.random(kTokens, kExperts);
  const Tensor probs = pool.random(kTokens, kExperts);
  const Tensor lse = pool.random(kTokens, 1);
  const Tensor indices = pool.integers(kTokens, kTopk);
  const Tensor weights = pool.random(kTokens, kTopk);
  const Tensor counts = pool.integers(1, kExperts);
  const Tensor sums = pool.random(1, kExperts);
  const Tensor dlogits = pool.random(kTokens, kExperts);
  print("router", [&] {
    backend.router({logits, probs, lse, indices, weights, counts, sums, true});
  });
  print("router_backward", [&] {
    backend.router_backward({probs, lse, indices, weights, weights, sums, dlogits, 0.1, true});
  });
  const Tensor x = pool.random(kTokens, kHidden);
  const Tensor permuted = pool.random(slots, kHidden);
  const Tensor index = pool.indices(slots, 37, slots);
  print("gather_rows", [&] { backend.gather_rows({x, permuted, index, kTopk}); });
  print("combine_rows", [&] { backend.combine_rows({permuted, x, index, kTopk}); });
  const Tensor gates = pool.random(slots, 2 * kFfn);
  const Tensor slot_probs = pool.random(slots, 1);
  const Tensor dprobs = pool.random(slots, 1);
  const Tensor act = pool.random(slots, kFfn);
  const Tensor dgates = pool.random(slots, 2 * kFfn);
  const kernels::GatedActArgs args{gates, slot_probs, act, {}, kernels::Activation::silu};
  print("gated_act", [&] { backend.gated_act(args); });
  print("gated_act_backward", [&] { backend.gated_act_backward({args, act, dgates, dprobs}); });

  const Tensor offsets = pool.indices(kExperts + 1, slots / kExperts, slots + 1);
  const Tensor w = pool.random(kExperts * 2 * kFfn, kHidden);
  using kernels::GroupedGemmMode;
  for (const auto& [name, mode] : {std::pair{"forward", GroupedGemmMode::forward},
                                   {"dgrad", GroupedGemmMode::dgrad},
                                   {"wgrad", GroupedGemmMode::wgrad}}) {
    print(fmt::format("grouped_gemm {}", name), [&] {
      backend.grouped_gemm({mode, permuted, gates, w, index, offsets});
    });
  }
}

void bench_ends(kernels::Backend& backend, Pool& pool) {
  const Tensor logits = pool.random(kTokens, kVocabulary);
  const Tensor scores = pool.random(kTokens, kVocabulary);
  const Tensor targets = pool.indices(kTokens, 37, kVocabulary);
  double loss = 0.0;
  print("cross_entropy (with a copy)", [&] {
    backend.copy({scores, logits});
    backend.cross_entropy({logits, targets, 0.01, &loss});
  });
  constexpr int64_t kNumel = 1 << 18;
  const Tensor weight = pool.random(1, kNumel);
  const Tensor m = pool.random(1, kNumel);
  const Tensor v = pool.random(1, kNumel);
  const Tensor grad = pool.random(1, kNumel);
  backend.fill_zero(v.data, v.bytes());
  kernels::AdamWArgs args;
  args.slices = {{weight.data, weight.data, m.data, v.data, grad.data, kNumel, true}};
  print("adamw (262144 elements)", [&] { backend.adamw(args); });
  double norm = 0.0;
  print("squared_norm (262144)", [&] {
    backend.squared_norm({{{grad.data, kNumel}}, DType::f32, &norm});
  });
}

}  // namespace
}  // namespace moetune::bench

int main() {
  const auto backend = moetune::kernels::make_cpu_backend();
  moetune::bench::Pool pool(*backend);
  fmt::print("{:28} {:>9}\n", "operation", "us");
  moetune::bench::bench_norm_and_rope(*backend, pool);
  moetune::bench::bench_attention(*backend, pool);
  moetune::bench::bench_moe(*backend, pool);
  moetune::bench::bench_ends(*backend, pool);
}

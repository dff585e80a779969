// The products of gpu_bench: what NVIDIA's libraries do, beside the own plain kernels that stand in
// for them, and the linear cross-entropy that is made of them.
#include <fmt/format.h>

#include <cmath>

#include "kernels/cuda/cublas_grouped_loop.h"
#include "kernels/cuda/cublaslt_gemm.h"
#include "kernels/cuda/ops.h"
#include "tests/gpu/bench.h"

namespace moetune::bench {
namespace {

using kernels::CudaBackend;
using kernels::GroupedGemmArgs;
using kernels::GroupedGemmMode;

double flops_of(int64_t m, int64_t n, int64_t k) {
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

}  // namespace

void bench_dense(Bench& bench, CudaBackend& backend, Arena& arena) {
  const Scale& scaled = bench.scale();
  struct Shape {
    const char* name;
    int64_t m, n, k;
  };
  for (const Shape& s : {Shape{"qkv", scaled(16384), scaled(5120), scaled(2048)},
                         {"o", scaled(16384), scaled(2048), scaled(4096)},
                         {"lm_head chunk", scaled(2048), scaled(151936), scaled(2048)},
                         {"lm_head chunk", scaled(8192), scaled(151936), scaled(2048)}}) {
    const Tensor x = arena.floats(s.m, s.k);
    const Tensor w = arena.floats(s.n, s.k);
    const Tensor y = arena.floats(s.m, s.n);
    const Tensor dw = arena.floats(s.n, s.k, DType::f32);
    const Tensor bias = arena.floats(1, s.n);
    Work work{.flops = flops_of(s.m, s.n, s.k), .target = at_least_share(0.95)};
    const std::string shape = fmt::format("{} {}x{}x{}", s.name, s.m, s.n, s.k);
    const auto forward = bench.row("gemm forward " + shape, work, [&] {
      backend.gemm({x, w, y, false, true});
    });
    bench.row("gemm dgrad " + shape, work, [&] { backend.gemm({y, w, x, false, false}); });
    bench.row("gemm wgrad (f32 sum) " + shape, work, [&] {
      backend.gemm({y, x, dw, true, false, true});
    });
    work.other = forward;
    bench.row("gemm forward with bias " + shape, work, [&] {
      backend.gemm({x, w, y, false, true, false, bias});
    });
    arena.clear();
  }
  const int64_t side = scaled(4096);
  const Tensor a = arena.floats(side, side), b = arena.floats(side, side),
               c = arena.floats(side, side);
  bench.row(fmt::format("plain kernel: gemm forward {0}x{0}x{0}", side),
            {.flops = flops_of(side, side, side)}, [&] {
              kernels::cuda::gemm(backend.stream(), {a, b, c, false, true});
            });
  arena.clear();
}

// Qwen3.5: hidden 2048, ffn 512, 256 experts, top-8, 16K tokens: 512 rows per expert.
void bench_grouped(Bench& bench, CudaBackend& backend, Arena& arena) {
  const Scale& scaled = bench.scale();
  const int64_t experts = scaled(256), rows = scaled(131072), hidden = scaled(2048);
  const int64_t ffn = scaled(512);
  // The reference: a product per expert, token counts read by the host.
  std::optional<kernels::cuda::CublasLtGemm> lt;
  if (kernels::cuda::CublasLtGemm::is_available()) lt.emplace(0);
  for (const bool is_fc1 : {true, false}) {
    const int64_t in = is_fc1 ? hidden : ffn;
    const int64_t out = is_fc1 ? 2 * ffn : hidden;
    const Tensor x = arena.floats(rows, in);
    const Tensor y = arena.floats(rows, out);
    const Tensor w = arena.floats(experts * out, in);
    const Tensor dw = arena.floats(experts * out, in, DType::f32);
    const Tensor offsets =
        arena.ints(experts + 1, 1, [&](int64_t e) { return e * rows / experts; });
    // An odd multiplier visits every row once, in no order that a cache would like.
    const Tensor list = arena.ints(rows, 1, [&](int64_t i) { return i * 40503 % rows; });
    const Tensor scratch = arena.raw(1, (lt ? lt->workspace_bytes() : 0) / 4, DType::i32);
    const std::string shape =
        fmt::format("{} E{} {}x{} {} rows", is_fc1 ? "fc1" : "fc2", experts, in, out, rows);
    struct Mode {
      const char* name;
      GroupedGemmArgs args;
      std::optional<Target> target;
    };
    for (const Mode& mode : {Mode{"forward",
                                  {GroupedGemmMode::forward, x, y, w, {}, offsets},
                                  at_least_tflops(370, "H200")},
                             {"dgrad", {GroupedGemmMode::dgrad, x, y, w, {}, offsets}, {}},
                             {"wgrad",
                              {GroupedGemmMode::wgrad, x, y, dw, {}, offsets},
                              at_least_tflops(350, "H200")}}) {
      Work work{.flops = flops_of(rows, in, out)};
      if (lt) {
        work.other =
            bench.row(fmt::format("cuBLASLt per expert, {} {}", mode.name, shape), work, [&] {
              kernels::cuda::cublas_grouped_loop(backend.stream(), *lt, mode.args, scratch.data,
                                                 scratch.bytes());
            });
      }
      work.target = mode.target;
      work.other = bench.row(fmt::format("grouped {} {}", mode.name, shape), work,
                             [&] { backend.grouped_gemm(mode.args); });
      work.target.reset();
      GroupedGemmArgs listed = mode.args;
      listed.rows = list;
      if (listed.mode == GroupedGemmMode::wgrad) continue;
      bench.row(fmt::format("grouped {} of a row list {}", mode.name, shape), work,
                [&] { backend.grouped_gemm(listed); });
    }
    arena.clear();
  }
}

namespace {

/// 64 query and 8 key heads. Fewer rows than keys are the first of two ranks' zig-zag shard: the
/// first and the last quarter of the sequence.
kernels::AttentionBackwardArgs attention_args(const Scale& scaled, Arena& arena, int64_t length,
                                              int64_t num_keys, int64_t width) {
  const int64_t heads = scaled(64), kv_heads = scaled(8);
  kernels::AttentionArgs args;
  args.q = arena.floats(length, heads * width);
  args.k = arena.floats(num_keys, kv_heads * width);
  args.v = arena.floats(num_keys, kv_heads * width);
  args.out = arena.floats(length, heads * width);
  args.lse = arena.zeros(length, heads, DType::f32);
  args.positions =
      arena.ints(length, 1, [&](int64_t i) { return i < length / 2 ? i : num_keys - length + i; });
  args.heads = heads;
  args.kv_heads = kv_heads;
  args.scale = 1.0 / std::sqrt(static_cast<double>(width));
  return {args, arena.floats(length, heads * width), arena.raw(length, heads * width, DType::bf16),
          arena.raw(num_keys, kv_heads * width, DType::bf16),
          arena.raw(num_keys, kv_heads * width, DType::bf16)};
}

}  // namespace

void bench_attention(Bench& bench, CudaBackend& backend, Arena& arena) {
  const Scale& scaled = bench.scale();
  const auto rows = [&](const std::string& shape, const kernels::AttentionBackwardArgs& args,
                        double product, bool has_target) {
    // Two products forward, five backward.
    Work forward{.flops = 2 * product}, backward{.flops = 5 * product};
    if (has_target) {
      forward.target = at_least_tflops(600, "");
      backward.target = at_least_tflops(500, "");
    }
    bench.row("attention forward " + shape, forward, [&] { backend.attention(args.forward); });
    bench.row("attention backward " + shape, backward, [&] { backend.attention_backward(args); });
  };
  for (const int64_t full_length : {4096, 16384}) {
    for (const int64_t width : {64, 128}) {
      const int64_t length = scaled(full_length);
      const auto args = attention_args(scaled, arena, length, length, width);
      // Causal: half of the scores, a multiply-add being two operations.
      const double product = static_cast<double>(length) * static_cast<double>(length) *
                             static_cast<double>(args.forward.q.cols);
      rows(fmt::format("causal {}/{} heads d{} S{}", args.forward.heads, args.forward.kv_heads,
                       width, length),
           args, product, width == 128 && full_length == 16384);
      arena.clear();
    }
  }
  {
    // Half of all scores.
    const int64_t keys = scaled(16384), length = keys / 2;
    const auto args = attention_args(scaled, arena, length, keys, 128);
    const double product = 0.5 * static_cast<double>(keys) * static_cast<double>(keys) *
                           static_cast<double>(args.forward.q.cols);
    rows(fmt::format("zig-zag 1 of 2 ranks d128 S{}", keys), args, product, false);
    arena.clear();
  }
  {
    const int64_t length = scaled(1024);
    const auto args = attention_args(scaled, arena, length, length, 128);
    const double product = static_cast<double>(length) * static_cast<double>(length) *
                           static_cast<double>(args.forward.q.cols);
    const std::string shape = fmt::format("causal d128 S{}", length);
    bench.row("plain kernel: attention forward " + shape, {.flops = 2 * product},
              [&] { kernels::cuda::attention(backend.stream(), args.forward); });
    bench.row("plain kernel: attention backward " + shape, {.flops = 5 * product},
              [&] { kernels::cuda::attention_backward(backend.stream(), args); });
    arena.clear();
  }
}

// What Stage::head does on a GPU, where a chunk of linear_ce_chunk_tokens is one product: logits,
// loss and gradient in place, dx, dW. Against its three products alone.
void bench_linear_cross_entropy(Bench& bench, CudaBackend& backend, Arena& arena) {
  const Scale& scaled = bench.scale();
  const int64_t tokens = scaled(16384), vocab = scaled(151936), hidden = scaled(2048);
  const Tensor x = arena.floats(tokens, hidden), dx = arena.floats(tokens, hidden);
  const Tensor w = arena.floats(vocab, hidden), dw = arena.floats(vocab, hidden, DType::f32);
  const Tensor targets = arena.ints(tokens, 1, [&](int64_t i) { return i * 7919 % vocab; });
  const Tensor loss = arena.zeros(1, 2, DType::f32);
  for (const int64_t chunk : {scaled(2048), scaled(8192)}) {
    const Tensor logits = arena.raw(chunk, vocab, DType::bf16);
    const auto run = [&](bool with_loss) {
      for (int64_t begin = 0; begin < tokens; begin += chunk) {
        const int64_t count = std::min(chunk, tokens - begin);
        const Tensor rows = x.row_range(begin, count);
        const Tensor part = logits.row_range(0, count);
        backend.gemm({rows, w, part, false, true, false});
        if (with_loss) {
          backend.cross_entropy({part, targets.row_range(begin, count),
                                 1.0 / static_cast<double>(tokens),
                                 static_cast<double*>(loss.data)});
        }
        backend.gemm({part, w, dx.row_range(begin, count), false, false, false});
        backend.gemm({part, rows, dw, true, false, true});
      }
    };
    Work work{.flops = 3 * flops_of(tokens, vocab, hidden)};
    const std::string shape = fmt::format("linear CE {}x{}, chunk {}", tokens, vocab, chunk);
    work.other = bench.row(shape + ", its three GEMMs", work, [&] { run(false); });
    work.target = at_most_times(1.1);
    bench.row(shape + ", whole", work, [&] { run(true); });
  }
  arena.clear();
}

}  // namespace moetune::bench

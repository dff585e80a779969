// The own kernels of gpu_bench against the rate of a copy: each row counts the bytes that have to
// be read and written once.
#include <fmt/format.h>

#include "kernels/cuda/lse_layout.h"
#include "kernels/cuda/ops.h"
#include "tests/gpu/bench.h"

namespace moetune::bench {
namespace {

using kernels::CudaBackend;

Work moves(double bytes) { return {.bytes = bytes, .target = kMemoryBound}; }
Work moves(std::initializer_list<Tensor> tensors) { return moves(bytes_of(tensors)); }

/// For what is too small to be bound by memory: the floor is shown, but it is no target.
Work is_small(std::initializer_list<Tensor> tensors) { return {.bytes = bytes_of(tensors)}; }

double* doubles(const Tensor& memory) { return static_cast<double*>(memory.data); }

void bench_norms(Bench& bench, CudaBackend& backend, Arena& arena) {
  const Scale& scaled = bench.scale();
  struct Shape {
    const char* name;
    int64_t rows, heads, width;
  };
  // QK-norm: each head of each token is normalised by itself.
  for (const Shape& s : {Shape{"rms_norm", scaled(8192), 1, scaled(5120)},
                         {"rms_norm", scaled(16384), 1, scaled(2048)},
                         {"qk_norm", scaled(16384), scaled(32), 128}}) {
    const int64_t cols = s.heads * s.width;
    const Tensor x = arena.floats(s.rows, cols), y = arena.floats(s.rows, cols);
    const Tensor dx = arena.floats(s.rows, cols), w = arena.floats(1, s.width);
    const Tensor rstd = arena.floats(s.rows, s.heads, DType::f32);
    const Tensor dw = arena.zeros(1, s.width, DType::f32);
    const std::string shape = s.heads == 1 ? fmt::format("{}x{}", s.rows, cols)
                                           : fmt::format("{}x{}x{}", s.rows, s.heads, s.width);
    bench.row(fmt::format("{} {}", s.name, shape), moves({x, y, rstd}), [&] {
      backend.rms_norm({x, w, y, rstd, s.heads});
    });
    bench.row(fmt::format("{} backward {}", s.name, shape), moves({x, y, dx, rstd}), [&] {
      backend.rms_norm_backward({x, w, rstd, y, dx, dw, s.heads});
    });
    arena.clear();
  }
}

void bench_rope(Bench& bench, CudaBackend& backend, Arena& arena) {
  const Scale& scaled = bench.scale();
  constexpr int64_t kWidth = 128;
  const int64_t tokens = scaled(16384), heads = scaled(32);
  const Tensor x = arena.floats(tokens, heads * kWidth);
  // Not a rotation, but as much work; the values shrink, so that they stay finite.
  const Tensor cos = arena.floats(tokens, kWidth / 2, DType::f32);
  const Tensor sin = arena.floats(tokens, kWidth / 2, DType::f32);
  const Tensor positions = arena.ints(tokens, 1, [](int64_t i) { return i; });
  for (const bool is_inverse : {false, true}) {
    bench.row(fmt::format("rope{} {}x{}x{}", is_inverse ? " backward" : "", tokens, heads, kWidth),
              moves({x, x, cos, sin, positions}), [&] {
                backend.rope({x, cos, sin, positions, heads, is_inverse});
              });
  }
  arena.clear();
}

void bench_embedding(Bench& bench, CudaBackend& backend, Arena& arena) {
  const Scale& scaled = bench.scale();
  const int64_t tokens = scaled(16384), vocab = scaled(151936), hidden = scaled(2048);
  const Tensor table = arena.floats(vocab, hidden), out = arena.floats(tokens, hidden);
  const Tensor dtable = arena.zeros(vocab, hidden, DType::f32);
  const Tensor spread = arena.ints(tokens, 1, [&](int64_t i) { return i * 7919 % vocab; });
  // Text read as bytes, where each row of the table is added to many times.
  const int64_t kinds = std::min<int64_t>(256, tokens);
  const Tensor bytes = arena.ints(tokens, 1, [&](int64_t i) { return i * 7919 % kinds; });
  bench.row(fmt::format("embedding {}x{}", tokens, hidden), moves({spread, out, out}), [&] {
    backend.embedding({table, spread, out});
  });
  const auto backward = [&](const char* name, const Tensor& ids, int64_t rows) {
    const double touched = static_cast<double>(rows * hidden) * 4;
    bench.row(fmt::format("embedding backward {}x{}, {}", tokens, hidden, name),
              moves(bytes_of({ids, out}) + 2 * touched), [&] {
                backend.embedding_backward({dtable, ids, out});
              });
  };
  backward("all different", spread, tokens);
  backward(fmt::format("{} kinds", kinds).c_str(), bytes, kinds);
  arena.clear();
}

void bench_biases(Bench& bench, CudaBackend& backend, Arena& arena) {
  const Scale& scaled = bench.scale();
  const int64_t rows = scaled(16384), cols = scaled(5120);
  const Tensor y = arena.floats(rows, cols), bias = arena.floats(1, cols);
  const Tensor dbias = arena.zeros(1, cols, DType::f32);
  bench.row(fmt::format("bias_backward {}x{}", rows, cols), moves({y}), [&] {
    backend.bias_backward({y, dbias});
  });
  bench.row(fmt::format("add_bias (where no epilogue is) {}x{}", rows, cols), moves({y, y}),
            [&] { kernels::cuda::add_bias(backend.stream(), y, bias); });
  arena.clear();
}

void bench_activation(Bench& bench, CudaBackend& backend, Arena& arena) {
  const Scale& scaled = bench.scale();
  const int64_t rows = scaled(131072), ffn = scaled(512);
  const Tensor x = arena.floats(rows, 2 * ffn), out = arena.floats(rows, ffn);
  const Tensor probs = arena.floats(rows, 1, DType::f32), dx = arena.floats(rows, 2 * ffn);
  const Tensor dprobs = arena.floats(rows, 1, DType::f32);
  const kernels::GatedActArgs forward{x, probs, out, {}, kernels::Activation::silu};
  bench.row(fmt::format("gated_act {}x{}", rows, ffn), moves({x, out, probs}),
            [&] { backend.gated_act(forward); });
  bench.row(fmt::format("gated_act backward {}x{}", rows, ffn), moves({x, out, dx, probs, dprobs}),
            [&] {
              backend.gated_act_backward({forward, out, dx, dprobs});
            });
  arena.clear();
}

void bench_cross_entropy(Bench& bench, CudaBackend& backend, Arena& arena) {
  const Scale& scaled = bench.scale();
  const int64_t rows = scaled(2048), vocab = scaled(151936);
  const Tensor logits = arena.floats(rows, vocab), loss = arena.zeros(1, 2, DType::f32);
  const Tensor targets = arena.ints(rows, 1, [&](int64_t i) { return i * 7919 % vocab; });
  bench.row(fmt::format("cross_entropy {}x{}", rows, vocab), moves({logits, logits}), [&] {
    backend.cross_entropy({logits, targets, 1.0, doubles(loss)});
  });
  // One of eight shards, which together do what the row above does.
  const Tensor shard = logits.columns(0, vocab / 8);
  const Tensor stats = arena.zeros(rows, 3, DType::f32);
  bench.row(fmt::format("cross_entropy_stats {}x{}", rows, shard.cols), moves({shard}), [&] {
    backend.cross_entropy_stats({shard, targets, stats});
  });
  bench.row(fmt::format("cross_entropy of a shard {}x{}", rows, shard.cols), moves({shard, shard}),
            [&] {
              backend.cross_entropy({shard, targets, 1.0, doubles(loss), stats});
            });
  arena.clear();
}

void bench_lse_layout(Bench& bench, CudaBackend& backend, Arena& arena) {
  const Scale& scaled = bench.scale();
  const int64_t rows = scaled(16384), heads = scaled(64);
  const Tensor by_row = arena.floats(rows, heads, DType::f32);
  const Tensor by_head = arena.floats(heads, rows, DType::f32);
  for (const bool to_rows : {true, false}) {
    bench.row(fmt::format("lse_layout {} rows {}x{}", to_rows ? "to" : "from", rows, heads),
              is_small({by_row, by_head}), [&] {
                kernels::cuda::lse_layout(
                    backend.stream(),
                    {by_row, static_cast<float*>(by_head.data), 1, 0, rows, to_rows});
              });
  }
  arena.clear();
}

}  // namespace

void bench_layers(Bench& bench, CudaBackend& backend, Arena& arena) {
  bench_norms(bench, backend, arena);
  bench_rope(bench, backend, arena);
  bench_embedding(bench, backend, arena);
  bench_biases(bench, backend, arena);
  bench_activation(bench, backend, arena);
  bench_cross_entropy(bench, backend, arena);
  bench_lse_layout(bench, backend, arena);
}

void bench_routing(Bench& bench, CudaBackend& backend, Arena& arena) {
  const Scale& scaled = bench.scale();
  constexpr int64_t kTopk = 8;
  const int64_t tokens = scaled(16384), hidden = scaled(2048), slots = tokens * kTopk;
  {
    const Tensor x = arena.floats(tokens, hidden), rows = arena.floats(slots, hidden);
    // An odd multiplier visits every slot once, in no order that a cache would like.
    const Tensor order = arena.ints(slots, 1, [&](int64_t i) { return i * 40503 % slots; });
    std::vector<int64_t> places(static_cast<size_t>(slots));
    for (int64_t i = 0; i < slots; ++i) places[static_cast<size_t>(i * 40503 % slots)] = i;
    const Tensor position =
        arena.ints(slots, 1, [&](int64_t i) { return places[static_cast<size_t>(i)]; });
    const std::string shape = fmt::format("{}x{} top-{}", tokens, hidden, kTopk);
    bench.row("permute (gather_rows) " + shape, moves({x, rows, order}), [&] {
      backend.gather_rows({x, rows, order, kTopk, position});
    });
    bench.row("unpermute (combine_rows) " + shape, moves({x, rows, x, order}), [&] {
      backend.combine_rows({rows, x, order, kTopk});
    });
    const Tensor other = arena.floats(slots, hidden);
    bench.row(fmt::format("scatter_rows {}x{}", slots, hidden), moves({rows, other, order}), [&] {
      backend.scatter_rows({rows, other, order});
    });
    arena.clear();
  }
  const int64_t experts = scaled(256);
  const Tensor logits = arena.floats(tokens, experts, DType::f32);
  kernels::RouterArgs args;
  args.logits = logits;
  args.probs = arena.floats(tokens, experts, DType::f32);
  args.lse = arena.floats(tokens, 1, DType::f32);
  // Real experts, also where the router has failed: later rows read them.
  args.indices = arena.ints(tokens, kTopk, [&](int64_t i) { return i % experts; });
  args.weights = arena.floats(tokens, kTopk, DType::f32);
  args.counts = arena.raw(1, experts, DType::i32);
  args.prob_sums = arena.raw(1, experts, DType::f32);
  const std::string shape = fmt::format("{} tokens, top-{} of {}", tokens, kTopk, experts);
  bench.row("router " + shape, moves({logits, args.probs, args.lse, args.indices, args.weights}),
            [&] { backend.router(args); });
  kernels::RouterBackwardArgs backward;
  backward.probs = args.probs;
  backward.lse = args.lse;
  backward.indices = args.indices;
  backward.weights = args.weights;
  backward.dweights = arena.floats(tokens, kTopk, DType::f32);
  backward.aux_scale = arena.floats(1, experts, DType::f32);
  backward.dlogits = arena.raw(tokens, experts, DType::bf16);
  backward.z_scale = 1e-3;
  bench.row("router backward " + shape,
            moves({backward.probs, backward.lse, backward.indices, backward.weights,
                   backward.dweights, backward.dlogits}),
            [&] { backend.router_backward(backward); });
  const Tensor sums = arena.floats(2, experts, DType::f32);
  const Tensor losses = arena.zeros(1, 4, DType::f32);
  kernels::AuxLossArgs aux;
  aux.sums = sums;
  aux.lse = args.lse;
  aux.scale = 1;
  aux.z_scale = 1e-3;
  aux.load_balance = doubles(losses);
  aux.z_loss = doubles(losses) + 1;
  bench.row(fmt::format("aux_loss {} tokens, {} experts", tokens, experts),
            is_small({sums, sums, args.lse}), [&] { backend.aux_loss(aux); });
  const Tensor order = arena.raw(slots, 1, DType::i32), position = arena.raw(slots, 1, DType::i32);
  const Tensor counts = arena.raw(1, experts, DType::i32);
  const Tensor offsets = arena.raw(experts + 1, 1, DType::i32);
  bench.row("route_plan " + shape, is_small({args.indices, order, position}), [&] {
    backend.route_plan({args.indices, order, position, counts, offsets, 1});
  });
  arena.clear();
}

void bench_flat(Bench& bench, CudaBackend& backend, Arena& arena) {
  const Scale& scaled = bench.scale();
  {
    const int64_t numel = scaled(int64_t{1} << 28);
    const Tensor weight = arena.floats(1, numel), m = arena.floats(1, numel);
    const Tensor v = arena.zeros(1, numel, DType::bf16);
    const Tensor master = arena.floats(1, numel, DType::f32);
    const Tensor grad = arena.floats(1, numel, DType::f32);
    kernels::AdamWArgs args;
    args.slices.push_back({weight.data, master.data, m.data, v.data, grad.data, numel, true});
    args.weight_dtype = args.moment_dtype = DType::bf16;
    // Read grad, master, m, v; write weight, master, m, v.
    bench.row(fmt::format("adamw {}, bf16 moments", numel),
              moves({grad, master, master, m, m, v, v, weight}), [&] { backend.adamw(args); });
    const Tensor sum = arena.zeros(1, 2, DType::f32);
    kernels::SquaredNormArgs norm;
    norm.slices.push_back({grad.data, numel});
    norm.result = doubles(sum);
    bench.row(fmt::format("squared_norm {}", numel), moves({grad}),
              [&] { backend.squared_norm(norm); });
    bench.row(fmt::format("cast f32 to bf16 {}", numel), moves({grad, weight}), [&] {
      backend.copy({grad, weight, false});
    });
    bench.row(fmt::format("cast bf16 to f32 {}", numel), moves({weight, grad}), [&] {
      backend.copy({weight, grad, false});
    });
    bench.row(fmt::format("add bf16 to bf16 {}", numel), moves({m, weight, weight}), [&] {
      backend.copy({m, weight, true});
    });
    arena.clear();
  }
  const int64_t numel = scaled(int64_t{1} << 26);
  constexpr int kNumRanks = 8;
  kernels::SumArgs args;
  double bytes = 0;
  for (int rank = 0; rank < kNumRanks; ++rank) {
    const Tensor part = arena.floats(1, numel, DType::f32);
    args.sources.push_back(part.data);
    bytes += static_cast<double>(part.bytes());
  }
  const Tensor target = arena.raw(1, numel, DType::f32);
  args.target = target.data;
  args.numel = numel;
  bench.row(fmt::format("sum of {} ranks' {} f32", kNumRanks, numel),
            moves(bytes + static_cast<double>(target.bytes())), [&] { backend.sum(args); });
  arena.clear();
}

}  // namespace moetune::bench

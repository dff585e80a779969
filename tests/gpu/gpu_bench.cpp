// What the CUDA backend reaches on a card, each operation beside its floor measured in the same
// run: bytes over the copy bandwidth, FLOPs over the best rate of a large GEMM. Prints a table and,
// given a path, writes the same as JSON. Nothing is asserted.
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/base/error.h"
#include "kernels/cuda/cublaslt_gemm.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cudnn_attention.h"
#include "kernels/cuda/cutlass_grouped_gemm.h"

namespace moetune::bench {
namespace {

using kernels::DType;
using kernels::Tensor;
using nlohmann::json;

constexpr int kNumRuns = 15;

void check(cudaError_t status) {
  MOETUNE_CHECK(status == cudaSuccess, "{}", cudaGetErrorString(status));
}

/// Device memory filled with random values (zeros would draw less power and run faster).
class Arena {
 public:
  explicit Arena(kernels::CudaBackend& backend) : backend_(backend) {
    std::mt19937 generator(1);
    std::normal_distribution<float> normal(0.0F, 0.5F);
    noise_.resize(1 << 20);
    for (float& value : noise_) value = normal(generator);
  }
  ~Arena() { clear(); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  Tensor floats(int64_t rows, int64_t cols, DType dtype = DType::bf16) {
    Tensor tensor = raw(rows, cols, dtype);
    std::vector<char> piece(noise_.size() * static_cast<size_t>(base::size_of(dtype)));
    for (size_t i = 0; i < noise_.size(); ++i) {
      if (dtype == DType::bf16) {
        reinterpret_cast<uint16_t*>(piece.data())[i] = base::to_bf16(noise_[i]);
      } else {
        reinterpret_cast<float*>(piece.data())[i] = noise_[i];
      }
    }
    for (int64_t at = 0; at < tensor.bytes(); at += static_cast<int64_t>(piece.size())) {
      const auto count = std::min(static_cast<int64_t>(piece.size()), tensor.bytes() - at);
      backend_.copy_to_device(static_cast<char*>(tensor.data) + at, piece.data(), count);
    }
    return tensor;
  }

  Tensor ints(int64_t rows, int64_t cols, const std::function<int64_t(int64_t)>& value) {
    Tensor tensor = raw(rows, cols, DType::i32);
    std::vector<int32_t> host(static_cast<size_t>(rows * cols));
    for (size_t i = 0; i < host.size(); ++i) {
      host[i] = static_cast<int32_t>(value(static_cast<int64_t>(i)));
    }
    backend_.copy_to_device(tensor.data, host.data(), tensor.bytes());
    return tensor;
  }

  Tensor raw(int64_t rows, int64_t cols, DType dtype) {
    void* data = backend_.allocate(rows * cols * base::size_of(dtype));
    blocks_.push_back(data);
    return Tensor::matrix(data, dtype, rows, cols);
  }

  void clear() {
    for (void* block : blocks_) backend_.free(block);
    blocks_.clear();
  }

 private:
  kernels::CudaBackend& backend_;
  std::vector<float> noise_;
  std::vector<void*> blocks_;
};

class Bench {
 public:
  explicit Bench(kernels::CudaBackend& backend) : backend_(backend) {
    check(cudaEventCreate(&begin_));
    check(cudaEventCreate(&end_));
  }

  /// Median milliseconds of one call, by events on the backend's stream.
  double time_ms(const std::function<void()>& body) {
    for (int i = 0; i < 3; ++i) body();
    std::vector<float> times(kNumRuns);
    for (float& ms : times) {
      check(cudaEventRecord(begin_, backend_.stream()));
      body();
      check(cudaEventRecord(end_, backend_.stream()));
      check(cudaEventSynchronize(end_));
      check(cudaEventElapsedTime(&ms, begin_, end_));
    }
    std::nth_element(times.begin(), times.begin() + kNumRuns / 2, times.end());
    return times[kNumRuns / 2];
  }

  /// Times `body`; with flops the floor is the GEMM probe, with bytes the copy probe. What throws
  /// is a row, too.
  void row(const std::string& name, double flops, double bytes, const std::function<void()>& body) {
    json result = {{"name", name}};
    try {
      const double ms = time_ms(body);
      const double tflops = flops / ms * 1e-9;
      const double tbps = bytes / ms * 1e-9;
      const double share = flops > 0 ? tflops / gemm_tflops_ : tbps / copy_tbps_;
      result.update({{"ms", ms}, {"share_of_floor", share}});
      if (flops > 0) result["tflops"] = tflops;
      if (bytes > 0) result["tbytes_per_s"] = tbps;
      fmt::print("{:44} {:9.3f} ms {:>9} {:>10} {:6.1f} %\n", name, ms,
                 flops > 0 ? fmt::format("{:.0f} TF", tflops) : "",
                 bytes > 0 ? fmt::format("{:.2f} TB/s", tbps) : "", 100 * share);
    } catch (const std::exception& error) {
      result["error"] = error.what();
      fmt::print("{:44} failed: {}\n", name, error.what());
    }
    std::fflush(stdout);
    rows_.push_back(std::move(result));
  }

  void set_floors(double gemm_tflops, double copy_tbps) {
    gemm_tflops_ = gemm_tflops;
    copy_tbps_ = copy_tbps;
  }
  [[nodiscard]] const json& rows() const { return rows_; }

 private:
  kernels::CudaBackend& backend_;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
  double gemm_tflops_ = 1;
  double copy_tbps_ = 1;
  json rows_ = json::array();
};

double probe_copy(Bench& bench, kernels::CudaBackend& backend, Arena& arena) {
  const int64_t bytes = int64_t{4} << 30;
  const Tensor from = arena.raw(1, bytes / 4, DType::i32);
  const Tensor to = arena.raw(1, bytes / 4, DType::i32);
  const double ms = bench.time_ms([&] {
    check(cudaMemcpyAsync(to.data, from.data, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice,
                          backend.stream()));
  });
  arena.clear();
  return 2.0 * static_cast<double>(bytes) / ms * 1e-9;
}

/// The best of the library's kernels on 8192^3.
double probe_gemm(Bench& bench, kernels::CudaBackend& backend, Arena& arena) {
  constexpr int64_t kSide = 8192;
  const kernels::GemmArgs args{arena.floats(kSide, kSide),
                               arena.floats(kSide, kSide),
                               arena.floats(kSide, kSide),
                               false,
                               true,
                               false};
  double ms = 0;
  if (kernels::cuda::CublasLtGemm::is_available()) {
    kernels::cuda::CublasLtGemm gemm(0);
    const Tensor workspace = arena.raw(1, gemm.workspace_bytes() / 4, DType::i32);
    gemm.tune(backend.stream(), args, workspace.data, workspace.bytes());
    ms =
        bench.time_ms([&] { gemm.run(backend.stream(), args, workspace.data, workspace.bytes()); });
  } else {
    ms = bench.time_ms([&] { backend.gemm(args); });
  }
  arena.clear();
  return 2.0 * kSide * kSide * kSide / ms * 1e-9;
}

void bench_dense(Bench& bench, kernels::CudaBackend& backend, Arena& arena) {
  struct Shape {
    const char* name;
    int64_t m, n, k;
  };
  for (const Shape& s : {Shape{"qkv", 16384, 5120, 2048},
                         {"o", 16384, 2048, 4096},
                         {"lm_head chunk", 2048, 151936, 2048}}) {
    const Tensor x = arena.floats(s.m, s.k);
    const Tensor w = arena.floats(s.n, s.k);
    const Tensor y = arena.floats(s.m, s.n);
    const Tensor dw = arena.floats(s.n, s.k, DType::f32);
    const double flops =
        2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
    const std::string shape = fmt::format("{} {}x{}x{}", s.name, s.m, s.n, s.k);
    bench.row("gemm forward " + shape, flops, 0, [&] { backend.gemm({x, w, y, false, true}); });
    bench.row("gemm dgrad " + shape, flops, 0, [&] { backend.gemm({y, w, x, false, false}); });
    bench.row("gemm wgrad (f32 sum) " + shape, flops, 0, [&] {
      backend.gemm({y, x, dw, true, false, true});
    });
    arena.clear();
  }
}

// Qwen3.5: hidden 2048, ffn 512, 256 experts, top-8, 16K tokens: 512 rows per expert.
void bench_grouped(Bench& bench, kernels::CudaBackend& backend, Arena& arena) {
  constexpr int64_t kExperts = 256, kRows = int64_t{16384} * 8, kHidden = 2048, kFfn = 512;
  using kernels::GroupedGemmMode;
  for (const bool is_fc1 : {true, false}) {
    const int64_t in = is_fc1 ? kHidden : kFfn;
    const int64_t out = is_fc1 ? 2 * kFfn : kHidden;
    const Tensor x = arena.floats(kRows, in);
    const Tensor y = arena.floats(kRows, out);
    const Tensor w = arena.floats(kExperts * out, in);
    const Tensor dw = arena.floats(kExperts * out, in, DType::f32);
    const Tensor offsets =
        arena.ints(kExperts + 1, 1, [](int64_t e) { return e * kRows / kExperts; });
    const double flops =
        2.0 * static_cast<double>(kRows) * static_cast<double>(in) * static_cast<double>(out);
    const std::string shape =
        fmt::format("{} E256 {}x{} 131072 rows", is_fc1 ? "fc1" : "fc2", in, out);
    bench.row("grouped forward " + shape, flops, 0, [&] {
      backend.grouped_gemm({GroupedGemmMode::forward, x, y, w, {}, offsets});
    });
    bench.row("grouped dgrad " + shape, flops, 0, [&] {
      backend.grouped_gemm({GroupedGemmMode::dgrad, x, y, w, {}, offsets});
    });
    bench.row("grouped wgrad " + shape, flops, 0, [&] {
      backend.grouped_gemm({GroupedGemmMode::wgrad, x, y, dw, {}, offsets});
    });
    arena.clear();
  }
}

void bench_attention(Bench& bench, kernels::CudaBackend& backend, Arena& arena) {
  for (const int64_t length : {4096, 16384}) {
    for (const int64_t width : {64, 128}) {
      constexpr int64_t kHeads = 64, kKvHeads = 8;
      kernels::AttentionArgs args;
      args.q = arena.floats(length, kHeads * width);
      args.k = arena.floats(length, kKvHeads * width);
      args.v = arena.floats(length, kKvHeads * width);
      args.out = arena.floats(length, kHeads * width);
      args.lse = arena.raw(length, kHeads, DType::f32);
      args.positions = arena.ints(length, 1, [](int64_t i) { return i; });
      args.heads = kHeads;
      args.kv_heads = kKvHeads;
      args.scale = 1.0 / std::sqrt(static_cast<double>(width));
      const Tensor dout = arena.floats(length, kHeads * width);
      const kernels::AttentionBackwardArgs backward{
          args, dout, arena.raw(length, kHeads * width, DType::bf16),
          arena.raw(length, kKvHeads * width, DType::bf16),
          arena.raw(length, kKvHeads * width, DType::bf16)};
      // Causal: half of the scores. Two products forward, five backward.
      const double product = static_cast<double>(length) * static_cast<double>(length) *
                             static_cast<double>(kHeads * width);
      const std::string shape = fmt::format("causal 64/8 heads d{} S{}", width, length);
      bench.row("attention forward " + shape, 2 * product, 0, [&] { backend.attention(args); });
      bench.row("attention backward " + shape, 5 * product, 0,
                [&] { backend.attention_backward(backward); });
      arena.clear();
    }
  }
}

void bench_memory_bound(Bench& bench, kernels::CudaBackend& backend, Arena& arena) {
  const auto bytes_of = [](std::initializer_list<Tensor> tensors) {
    double bytes = 0;
    for (const Tensor& tensor : tensors) bytes += static_cast<double>(tensor.bytes());
    return bytes;
  };
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{8192, 5120}, {16384, 2048}}) {
    const Tensor x = arena.floats(rows, cols), y = arena.floats(rows, cols);
    const Tensor w = arena.floats(1, cols), rstd = arena.floats(rows, 1, DType::f32);
    const Tensor dw = arena.floats(1, cols, DType::f32), dx = arena.floats(rows, cols);
    const std::string shape = fmt::format("{}x{}", rows, cols);
    bench.row("rms_norm " + shape, 0, bytes_of({x, y}), [&] { backend.rms_norm({x, w, y, rstd}); });
    bench.row("rms_norm_backward " + shape, 0, bytes_of({x, y, dx}), [&] {
      backend.rms_norm_backward({x, w, rstd, y, dx, dw});
    });
    arena.clear();
  }
  {
    constexpr int64_t kRows = 131072, kFfn = 512;
    const Tensor x = arena.floats(kRows, 2 * kFfn), out = arena.floats(kRows, kFfn);
    const Tensor probs = arena.floats(kRows, 1, DType::f32), dx = arena.floats(kRows, 2 * kFfn);
    const Tensor dprobs = arena.floats(kRows, 1, DType::f32);
    const kernels::GatedActArgs forward{x, probs, out, {}, kernels::Activation::silu};
    bench.row("gated_act 131072x512", 0, bytes_of({x, out, probs}),
              [&] { backend.gated_act(forward); });
    bench.row("gated_act_backward 131072x512", 0, bytes_of({x, out, dx, probs, dprobs}), [&] {
      backend.gated_act_backward({forward, out, dx, dprobs});
    });
    arena.clear();
  }
  {
    constexpr int64_t kTokens = 16384, kTopk = 8, kHidden = 2048, kSlots = kTokens * kTopk;
    const Tensor x = arena.floats(kTokens, kHidden), rows = arena.floats(kSlots, kHidden);
    // An odd multiplier visits every slot once, in no order that a cache would like.
    const Tensor order = arena.ints(kSlots, 1, [](int64_t i) { return i * 40503 % kSlots; });
    bench.row("permute (gather_rows) 16K x 2048 top-8", 0, bytes_of({x, rows}), [&] {
      backend.gather_rows({x, rows, order, kTopk});
    });
    bench.row("unpermute (combine_rows) 16K x 2048 top-8", 0, bytes_of({x, rows, x}), [&] {
      backend.combine_rows({rows, x, order, kTopk});
    });
    bench.row("scatter_rows 131072x2048", 0, bytes_of({rows, rows}), [&] {
      backend.scatter_rows({rows, rows, order});
    });
    arena.clear();
  }
  {
    constexpr int64_t kNumel = int64_t{1} << 28;
    const Tensor weight = arena.floats(1, kNumel), m = arena.floats(1, kNumel);
    const Tensor v = arena.raw(1, kNumel, DType::bf16);
    backend.fill_zero(v.data, v.bytes());
    const Tensor master = arena.floats(1, kNumel, DType::f32),
                 grad = arena.floats(1, kNumel, DType::f32);
    kernels::AdamWArgs args;
    args.slices.push_back({weight.data, master.data, m.data, v.data, grad.data, kNumel, true});
    args.weight_dtype = args.moment_dtype = DType::bf16;
    // Read grad, master, m, v; write weight, master, m, v.
    bench.row("adamw 268M, bf16 moments", 0, bytes_of({grad, master, master, m, m, v, v, weight}),
              [&] { backend.adamw(args); });
    const Tensor sum = arena.raw(1, 2, DType::f32);
    kernels::SquaredNormArgs norm;
    norm.slices.push_back({grad.data, kNumel});
    norm.result = static_cast<double*>(sum.data);
    bench.row("squared_norm 268M", 0, bytes_of({grad}), [&] { backend.squared_norm(norm); });
    bench.row("cast f32 to bf16 268M", 0, bytes_of({grad, weight}), [&] {
      backend.copy({grad, weight, false});
    });
    arena.clear();
  }
  {
    constexpr int64_t kNumel = int64_t{1} << 26;
    kernels::SumArgs args;
    double bytes = 0;
    for (int rank = 0; rank < 8; ++rank) {
      const Tensor part = arena.floats(1, kNumel, DType::f32);
      args.sources.push_back(part.data);
      bytes += static_cast<double>(part.bytes());
    }
    const Tensor target = arena.raw(1, kNumel, DType::f32);
    args.target = target.data;
    args.numel = kNumel;
    bench.row("sum of 8 ranks' 67M f32", 0, bytes + static_cast<double>(target.bytes()),
              [&] { backend.sum(args); });
    arena.clear();
  }
  {
    constexpr int64_t kTokens = 16384, kExperts = 256, kTopk = 8;
    const Tensor logits = arena.floats(kTokens, kExperts, DType::f32);
    const Tensor probs = arena.raw(kTokens, kExperts, DType::f32);
    kernels::RouterArgs args;
    args.logits = logits;
    args.probs = probs;
    args.lse = arena.raw(kTokens, 1, DType::f32);
    args.indices = arena.raw(kTokens, kTopk, DType::i32);
    args.weights = arena.raw(kTokens, kTopk, DType::f32);
    args.counts = arena.raw(1, kExperts, DType::i32);
    args.prob_sums = arena.raw(1, kExperts, DType::f32);
    bench.row("router 16K tokens, top-8 of 256", 0, bytes_of({logits, probs, probs}),
              [&] { backend.router(args); });
    const Tensor order = arena.raw(kTokens * kTopk, 1, DType::i32);
    const Tensor position = arena.raw(kTokens * kTopk, 1, DType::i32);
    const Tensor counts = arena.raw(1, kExperts, DType::i32);
    const Tensor offsets = arena.raw(kExperts + 1, 1, DType::i32);
    bench.row("route_plan 16K tokens, top-8 of 256", 0, bytes_of({args.indices, order, position}),
              [&] {
                backend.route_plan({args.indices, order, position, counts, offsets, 1});
              });
    arena.clear();
  }
}

// The whole linear cross-entropy, chunk by chunk, against its three GEMMs.
void bench_linear_cross_entropy(Bench& bench, kernels::CudaBackend& backend, Arena& arena) {
  constexpr int64_t kTokens = 16384, kVocab = 151936, kHidden = 2048, kChunk = 2048;
  const Tensor x = arena.floats(kTokens, kHidden), dx = arena.floats(kTokens, kHidden);
  const Tensor w = arena.floats(kVocab, kHidden), dw = arena.floats(kVocab, kHidden, DType::f32);
  const Tensor logits = arena.raw(kChunk, kVocab, DType::bf16);
  const Tensor targets = arena.ints(kTokens, 1, [](int64_t i) { return i * 7919 % kVocab; });
  const Tensor loss = arena.raw(1, 2, DType::f32);
  const double flops = 3 * 2.0 * static_cast<double>(kTokens) * static_cast<double>(kVocab) *
                       static_cast<double>(kHidden);
  const auto run = [&](bool with_loss) {
    for (int64_t begin = 0; begin < kTokens; begin += kChunk) {
      const Tensor rows = x.row_range(begin, kChunk);
      backend.gemm({rows, w, logits, false, true});
      if (with_loss) {
        backend.cross_entropy(
            {logits, targets.row_range(begin, kChunk), 1e-4, static_cast<double*>(loss.data)});
      }
      backend.gemm({logits, w, dx.row_range(begin, kChunk), false, false});
      backend.gemm({logits, rows, dw, true, false, true});
    }
  };
  bench.row("linear CE 16K x 151936, its three GEMMs", flops, 0, [&] { run(false); });
  bench.row("linear CE 16K x 151936, whole", flops, 0, [&] { run(true); });
  arena.clear();
}

int run(const std::string& json_path) {
  std::string why_none;
  const auto devices = kernels::cuda_devices(why_none);
  if (devices.empty()) {
    fmt::print("no GPU: {}\n", why_none);
    return 77;
  }
  kernels::CudaBackend backend(0);
  Arena arena(backend);
  Bench bench(backend);
  const double copy_tbps = probe_copy(bench, backend, arena);
  const double gemm_tflops = probe_gemm(bench, backend, arena);
  bench.set_floors(gemm_tflops, copy_tbps);
  fmt::print(
      "{}: copy {:.2f} TB/s (read + written), bf16 GEMM 8192^3 {:.0f} TFLOP/s; cuBLASLt {}, "
      "cuDNN {}, CUTLASS grouped GEMM {}\n",
      devices[0].name, copy_tbps, gemm_tflops, kernels::cuda::CublasLtGemm::version(),
      kernels::cuda::CudnnAttention::version(),
      kernels::cuda::GroupedGemm::is_available() ? "yes" : "no");
  fmt::print("median of {}; the last column is the share of the probe\n", kNumRuns);
  int driver = 0;
  check(cudaDriverGetVersion(&driver));
  json failures = json::array();
  int num_failed = 0;
  using Section = void (*)(Bench&, kernels::CudaBackend&, Arena&);
  for (const auto& [name, section] : {std::pair<const char*, Section>{"dense GEMM", bench_dense},
                                      {"grouped GEMM", bench_grouped},
                                      {"attention", bench_attention},
                                      {"linear cross-entropy", bench_linear_cross_entropy},
                                      {"memory-bound operations", bench_memory_bound}}) {
    try {
      section(bench, backend, arena);
    } catch (const std::exception& error) {
      fmt::print("FAILED: {}: {}\n", name, error.what());
      failures.push_back(fmt::format("{}: {}", name, error.what()));
      ++num_failed;
      arena.clear();
    }
    if (json_path.empty()) continue;
    // After each section: whoever runs out of time keeps the others.
    std::ofstream(json_path) << json({{"gpu", devices[0].name},
                                      {"memory_bytes", devices[0].memory_bytes},
                                      {"driver_cuda", driver},
                                      {"cublaslt", kernels::cuda::CublasLtGemm::version()},
                                      {"cudnn", kernels::cuda::CudnnAttention::version()},
                                      {"copy_tbytes_per_s", copy_tbps},
                                      {"gemm_tflops", gemm_tflops},
                                      {"num_runs", kNumRuns},
                                      {"failures", failures},
                                      {"rows", bench.rows()}})
                                    .dump(1)
                             << "\n";
  }
  fmt::print("{}\n", backend.kernels_note());
  return num_failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace moetune::bench

int main(int argc, char** argv) {
  try {
    return moetune::bench::run(argc > 1 ? argv[1] : "");
  } catch (const std::exception& error) {
    fmt::print(stderr, "gpu_bench: {}\n", error.what());
    return 12;
  }
}

// What the CUDA backend reaches on a card, each operation beside its floor measured in the same
// run: bytes over the copy bandwidth, FLOPs over the best rate of a large GEMM. Prints a table and,
// given a path, writes the same as JSON, with what it takes to measure it again. Figures only: no
// target makes it fail. What does not run does, with exit code 1.
//   gpu_bench [FILE.json] [--shrink N]     --shrink: sizes divided by N, a power of two; see Scale
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bit>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "embedded/build_version.h"
#include "embedded/version.h"
#include "kernels/base/error.h"
#include "kernels/cuda/cublaslt_gemm.h"
#include "kernels/cuda/cudnn_attention.h"
#include "kernels/cuda/cutlass_grouped_gemm.h"
#include "tests/gpu/bench.h"

namespace moetune::bench {
namespace {

using nlohmann::json;

constexpr int kNoGpu = 77;

struct Options {
  std::string json_path;
  std::string command;  ///< as it was called
  Scale scale;
};

Options options_of(int argc, char** argv) {
  Options options;
  options.command = fmt::format("{}", fmt::join(argv, argv + argc, " "));
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--shrink" && i + 1 < argc) {
      const std::string_view text = argv[++i];
      const auto [end, error] =
          std::from_chars(text.data(), text.data() + text.size(), options.scale.shrink);
      const auto shrink = static_cast<uint64_t>(options.scale.shrink);
      if (error != std::errc() || end != text.data() + text.size() || shrink > (1U << 14) ||
          !std::has_single_bit(shrink)) {
        throw base::UsageError(fmt::format("--shrink {} must be a power of two", text));
      }
    } else if (options.json_path.empty() && !word.starts_with("-")) {
      options.json_path = word;
    } else {
      throw base::UsageError(fmt::format("'{}': gpu_bench [FILE.json] [--shrink N]", word));
    }
  }
  return options;
}

/// Bytes read and written per second.
double probe_copy(Bench& bench, kernels::CudaBackend& backend, Arena& arena) {
  const int64_t count = bench.scale()(int64_t{1} << 30);
  const Tensor from = arena.raw(1, count, DType::i32);
  const Tensor to = arena.raw(1, count, DType::i32);
  const double ms = bench.time_ms([&] {
    check(cudaMemcpyAsync(to.data, from.data, static_cast<size_t>(to.bytes()),
                          cudaMemcpyDeviceToDevice, backend.stream()));
  });
  arena.clear();
  return 2.0 * static_cast<double>(to.bytes()) / ms * 1e-9;
}

/// The best of the library's kernels on 8192^3.
double probe_gemm(Bench& bench, kernels::CudaBackend& backend, Arena& arena) {
  const int64_t side = bench.scale()(8192);
  const kernels::GemmArgs args{arena.floats(side, side),
                               arena.floats(side, side),
                               arena.floats(side, side),
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
  const auto cube = static_cast<double>(side) * static_cast<double>(side * side);
  return 2.0 * cube / ms * 1e-9;
}

/// The kernel module's own words; the runtime only tells which CUDA it can do.
std::string driver_version() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line;
  std::getline(file, line);
  return line;
}

json provenance(const Options& options, const kernels::CudaDeviceInfo& device) {
  int driver = 0;
  int runtime = 0;
  check(cudaDriverGetVersion(&driver));
  check(cudaRuntimeGetVersion(&runtime));
  json document = {
      {"gpu", device.name},
      {"compute_capability", fmt::format("{}.{}", device.compute_major, device.compute_minor)},
      {"memory_bytes", device.memory_bytes},
      {"moetune", base::kVersion},
      {"commit", sweeps::kBuildCommit},
      {"compiler", sweeps::kBuildCompiler},
      {"build_type", sweeps::kBuildType},
      {"command", options.command},
      {"driver", driver_version()},
      {"driver_cuda", driver},
      {"runtime_cuda", runtime},
      {"cublaslt", kernels::cuda::CublasLtGemm::version()},
      {"cudnn", kernels::cuda::CudnnAttention::version()},
      {"has_cutlass", kernels::cuda::GroupedGemm::is_available()}};
  if (!options.scale.is_true()) document["shrink"] = options.scale.shrink;
  return document;
}

void print_targets(const json& rows) {
  int num_targets = 0;
  std::vector<std::string> unmet;
  for (const json& row : rows) {
    if (!row.contains("target")) continue;
    ++num_targets;
    if (!row.value("is_met", false)) unmet.push_back(row["name"]);
  }
  fmt::print("targets met: {} of {}\n", num_targets - static_cast<int>(unmet.size()), num_targets);
  for (const std::string& name : unmet) fmt::print("  not met: {}\n", name);
}

int run(const Options& options) {
  std::string why_none;
  const auto devices = kernels::cuda_devices(why_none);
  if (devices.empty()) {
    fmt::print("no GPU: {}\n", why_none);
    return kNoGpu;
  }
  kernels::CudaBackend backend(0);
  Arena arena(backend);
  Bench bench(backend, options.scale);
  json document = provenance(options, devices[0]);
  const double copy_tbps = probe_copy(bench, backend, arena);
  const double gemm_tflops = probe_gemm(bench, backend, arena);
  bench.set_floors(gemm_tflops, copy_tbps);
  document.update({{"copy_tbytes_per_s", copy_tbps},
                   {"gemm_tflops", gemm_tflops},
                   {"num_runs", bench.most_runs()}});
  fmt::print(
      "{}: copy {:.2f} TB/s (read + written), bf16 GEMM 8192^3 {:.0f} TFLOP/s; cuBLASLt {}, "
      "cuDNN {}, CUTLASS grouped GEMM {}; commit {}\n",
      devices[0].name, copy_tbps, gemm_tflops, kernels::cuda::CublasLtGemm::version(),
      kernels::cuda::CudnnAttention::version(),
      kernels::cuda::GroupedGemm::is_available() ? "yes" : "no", sweeps::kBuildCommit);
  if (options.scale.is_true()) {
    fmt::print("median of {}; the percentage is the share of the probe\n", bench.most_runs());
  } else {
    fmt::print("sizes divided by {}: the figures mean nothing\n", options.scale.shrink);
  }
  using Section = void (*)(Bench&, kernels::CudaBackend&, Arena&);
  for (const auto& [name, section] : {std::pair<const char*, Section>{"dense GEMM", bench_dense},
                                      {"grouped GEMM", bench_grouped},
                                      {"attention", bench_attention},
                                      {"linear cross-entropy", bench_linear_cross_entropy},
                                      {"kernels of the layers", bench_layers},
                                      {"kernels of routing", bench_routing},
                                      {"kernels over flat memory", bench_flat}}) {
    try {
      section(bench, backend, arena);
    } catch (const std::exception& error) {
      bench.fail(name, error.what());
      arena.clear();
    }
    if (options.json_path.empty()) continue;
    // After each section: whoever runs out of time keeps the others.
    document["failures"] = bench.failures();
    document["kernels"] = backend.kernels_note();
    document["rows"] = bench.rows();
    std::ofstream(options.json_path) << document.dump(1) << "\n";
  }
  fmt::print("{}\n", backend.kernels_note());
  if (options.scale.is_true()) print_targets(bench.rows());
  for (const std::string& failure : bench.failures()) fmt::print("FAILED: {}\n", failure);
  if (!options.json_path.empty() && !std::ifstream(options.json_path)) {
    throw base::Error(options.json_path + ": could not be written");
  }
  return bench.failures().empty() ? 0 : 1;
}

}  // namespace
}  // namespace moetune::bench

int main(int argc, char** argv) {
  try {
    return moetune::bench::run(moetune::bench::options_of(argc, argv));
  } catch (const moetune::base::UsageError& error) {
    fmt::print(stderr, "gpu_bench: {}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "gpu_bench: {}\n", error.what());
    return 12;
  }
}

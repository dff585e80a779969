// What the sections of gpu_bench share: device memory full of random values, the clock, and the
// rows with their floors and targets.
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cuda/cuda_backend.h"

namespace moetune::bench {

using kernels::DType;
using kernels::Tensor;

/// Throws base::Error with the driver's words.
void check(cudaError_t status);

/// Lengths, widths and counts divided by a power of two: every row can then be seen to run where
/// their true sizes would take for ever, on the fake device of the tests.
struct Scale {
  int64_t shrink = 1;

  [[nodiscard]] bool is_true() const { return shrink == 1; }
  /// `n`, a multiple of 8, or what remains of it: a multiple of 8, at least 8.
  int64_t operator()(int64_t n) const { return std::max<int64_t>(8, n / shrink / 8 * 8); }
};

/// Device memory filled with random values (zeros would draw less power and run faster).
class Arena {
 public:
  explicit Arena(kernels::CudaBackend& backend);
  ~Arena() { clear(); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  Tensor floats(int64_t rows, int64_t cols, DType dtype = DType::bf16);
  Tensor ints(int64_t rows, int64_t cols, const std::function<int64_t(int64_t)>& value);
  Tensor zeros(int64_t rows, int64_t cols, DType dtype);
  /// Contents undefined.
  Tensor raw(int64_t rows, int64_t cols, DType dtype);
  /// Frees everything.
  void clear();

 private:
  kernels::CudaBackend& backend_;
  std::vector<float> noise_;
  std::vector<void*> blocks_;
};

double bytes_of(std::initializer_list<Tensor> tensors);

/// What the project has set out to reach; a figure to be read, nothing fails over it.
struct Target {
  enum class Quantity : uint8_t { share_of_floor, tflops, times_of_other };

  Quantity quantity = Quantity::share_of_floor;
  double value = 0;  ///< at least; of times_of_other at most
  std::string card;  ///< what the figure is meant for; empty: any
};

inline Target at_least_share(double share) { return {Target::Quantity::share_of_floor, share, ""}; }
inline Target at_least_tflops(double tflops, std::string card) {
  return {Target::Quantity::tflops, tflops, std::move(card)};
}
inline Target at_most_times(double times) { return {Target::Quantity::times_of_other, times, ""}; }

/// Bandwidth of memory-bound operations, of that of a copy.
inline const Target kMemoryBound = at_least_share(0.80);

/// A row that has run; the next may be set beside it.
struct Measured {
  std::string name;
  double ms = 0;
};

/// What a row does. With flops its floor is the best rate of a large GEMM, else `bytes` over the
/// rate of a copy.
struct Work {
  double flops = 0;
  double bytes = 0;
  std::optional<Target> target = std::nullopt;
  std::optional<Measured> other = std::nullopt;  ///< the row says how many times as long it took
};

/// The clock, and the rows so far.
class Bench {
 public:
  Bench(kernels::CudaBackend& backend, Scale scale);

  /// Median milliseconds of one call, by events on the backend's stream.
  double time_ms(const std::function<void()>& body);
  /// Times `body`. What throws is a row, too, and a failure; nullopt then.
  std::optional<Measured> row(const std::string& name, const Work& work,
                              const std::function<void()>& body);
  /// Something else went wrong: named, counted and told at once.
  void fail(const std::string& what, const std::string& why);

  void set_floors(double gemm_tflops, double copy_tbps) {
    gemm_tflops_ = gemm_tflops;
    copy_tbps_ = copy_tbps;
  }
  [[nodiscard]] const Scale& scale() const { return scale_; }
  [[nodiscard]] const nlohmann::json& rows() const { return rows_; }
  [[nodiscard]] const std::vector<std::string>& failures() const { return failures_; }
  /// Median of that many runs; of fewer where one takes long.
  [[nodiscard]] int most_runs() const { return scale_.is_true() ? 15 : 1; }

 private:
  double time_once_ms(const std::function<void()>& body);
  /// Keeps the device busy while the host enqueues what is timed: otherwise a short row's time is
  /// that of its launches. Reads more than the L2 cache holds, so that every run finds it the same.
  void read_past_cache();

  kernels::CudaBackend& backend_;
  Scale scale_;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
  int64_t num_past_cache_;  ///< floats
  void* past_cache_ = nullptr;
  double gemm_tflops_ = 1;
  double copy_tbps_ = 1;
  nlohmann::json rows_ = nlohmann::json::array();
  std::vector<std::string> failures_;
};

// The sections. Each frees its memory between its groups of rows.
void bench_dense(Bench& bench, kernels::CudaBackend& backend, Arena& arena);
void bench_grouped(Bench& bench, kernels::CudaBackend& backend, Arena& arena);
void bench_attention(Bench& bench, kernels::CudaBackend& backend, Arena& arena);
void bench_linear_cross_entropy(Bench& bench, kernels::CudaBackend& backend, Arena& arena);
void bench_layers(Bench& bench, kernels::CudaBackend& backend, Arena& arena);
void bench_routing(Bench& bench, kernels::CudaBackend& backend, Arena& arena);
void bench_flat(Bench& bench, kernels::CudaBackend& backend, Arena& arena);

}  // namespace moetune::bench

// Allocates and fills device memory, times calls by events, and prints the rows of gpu_bench.
#include "tests/gpu/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <random>

#include "kernels/base/error.h"

namespace moetune::bench {
namespace {

using nlohmann::json;

constexpr int kNumWarmups = 3;
constexpr double kLongMs = 300;  // such a row is timed three times
constexpr int kFewRuns = 3;
constexpr int64_t kPastCacheElements = int64_t{1} << 26;  // 256 MiB: some 0.1 ms to read

struct Quantity {
  const char* name;
  const char* bound;
  bool is_at_most;
};

Quantity quantity_of(const Target& target) {
  switch (target.quantity) {
    case Target::Quantity::share_of_floor:
      return {"share_of_floor", "at_least", false};
    case Target::Quantity::tflops:
      return {"tflops", "at_least", false};
    case Target::Quantity::times_of_other:
      return {"times_of_other", "at_most", true};
  }
  return {"?", "?", false};
}

/// Adds the target to the row, and whether it is met where the row has its figure. Returns the same
/// in words.
std::string add_target(const Target& target, bool is_judged, json& row) {
  const Quantity quantity = quantity_of(target);
  json& stored = row["target"] = {{"quantity", quantity.name}, {quantity.bound, target.value}};
  if (!target.card.empty()) stored["card"] = target.card;
  if (!is_judged || !row.contains(quantity.name)) return "";
  const double reached = row[quantity.name];
  const bool is_met = quantity.is_at_most ? reached <= target.value : reached >= target.value;
  row["is_met"] = is_met;
  return fmt::format(
      "  {} {} {:g}{}: {}", quantity.name, quantity.is_at_most ? "<=" : ">=", target.value,
      target.card.empty() ? "" : fmt::format(" ({})", target.card), is_met ? "met" : "NOT met");
}

}  // namespace

void check(cudaError_t status) {
  MOETUNE_CHECK(status == cudaSuccess, "{}", cudaGetErrorString(status));
}

Arena::Arena(kernels::CudaBackend& backend) : backend_(backend) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal(0.0F, 0.5F);
  noise_.resize(1 << 20);
  for (float& value : noise_) value = normal(generator);
}

Tensor Arena::floats(int64_t rows, int64_t cols, DType dtype) {
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

Tensor Arena::ints(int64_t rows, int64_t cols, const std::function<int64_t(int64_t)>& value) {
  Tensor tensor = raw(rows, cols, DType::i32);
  std::vector<int32_t> host(static_cast<size_t>(rows * cols));
  for (size_t i = 0; i < host.size(); ++i) {
    host[i] = static_cast<int32_t>(value(static_cast<int64_t>(i)));
  }
  backend_.copy_to_device(tensor.data, host.data(), tensor.bytes());
  return tensor;
}

Tensor Arena::zeros(int64_t rows, int64_t cols, DType dtype) {
  Tensor tensor = raw(rows, cols, dtype);
  backend_.fill_zero(tensor.data, tensor.bytes());
  return tensor;
}

Tensor Arena::raw(int64_t rows, int64_t cols, DType dtype) {
  void* data = backend_.allocate(rows * cols * base::size_of(dtype));
  blocks_.push_back(data);
  return Tensor::matrix(data, dtype, rows, cols);
}

void Arena::clear() {
  for (void* block : blocks_) backend_.free(block);
  blocks_.clear();
}

double bytes_of(std::initializer_list<Tensor> tensors) {
  double bytes = 0;
  for (const Tensor& tensor : tensors) bytes += static_cast<double>(tensor.bytes());
  return bytes;
}

Bench::Bench(kernels::CudaBackend& backend, Scale scale)
    : backend_(backend),
      scale_(scale),
      // Twice, as the fake device has no cache and adds up slowly.
      num_past_cache_(scale(scale(kPastCacheElements))) {
  check(cudaEventCreate(&begin_));
  check(cudaEventCreate(&end_));
  // The sum lies behind what is summed.
  const int64_t bytes = num_past_cache_ * 4 + 8;
  past_cache_ = backend_.allocate(bytes);
  backend_.fill_zero(past_cache_, bytes);
}

void Bench::read_past_cache() {
  kernels::SquaredNormArgs args;
  args.slices.push_back({past_cache_, num_past_cache_});
  args.result = static_cast<double*>(past_cache_) + num_past_cache_ / 2;
  backend_.squared_norm(args);
}

double Bench::time_once_ms(const std::function<void()>& body) {
  float ms = 0;
  read_past_cache();
  check(cudaEventRecord(begin_, backend_.stream()));
  body();
  check(cudaEventRecord(end_, backend_.stream()));
  check(cudaEventSynchronize(end_));
  check(cudaEventElapsedTime(&ms, begin_, end_));
  return ms;
}

double Bench::time_ms(const std::function<void()>& body) {
  body();  // loads kernels, and makes plans and workspaces
  const bool is_long = time_once_ms(body) > kLongMs;
  if (scale_.is_true() && !is_long) {
    for (int i = 2; i < kNumWarmups; ++i) body();
  }
  std::vector<double> times(
      static_cast<size_t>(is_long ? std::min(kFewRuns, most_runs()) : most_runs()));
  for (double& ms : times) ms = time_once_ms(body);
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

std::optional<Measured> Bench::row(const std::string& name, const Work& work,
                                   const std::function<void()>& body) {
  json result = {{"name", name}};
  std::optional<Measured> measured;
  std::string verdict;
  try {
    const double ms = time_ms(body);
    const double tflops = work.flops / ms * 1e-9;
    const double tbps = work.bytes / ms * 1e-9;
    const double share = work.flops > 0 ? tflops / gemm_tflops_ : tbps / copy_tbps_;
    result.update({{"ms", ms}, {"share_of_floor", share}});
    if (work.flops > 0) result.update({{"flops", work.flops}, {"tflops", tflops}});
    if (work.bytes > 0) result.update({{"bytes", work.bytes}, {"tbytes_per_s", tbps}});
    if (work.other) {
      const double times = ms / work.other->ms;
      result.update({{"times_of_other", times}, {"other", work.other->name}});
      verdict = fmt::format("  {:.2f} x '{}'", times, work.other->name);
    }
    if (work.target) verdict += add_target(*work.target, scale_.is_true(), result);
    fmt::print("{:52} {:9.3f} ms {:>9} {:>10} {:6.1f} %{}\n", name, ms,
               work.flops > 0 ? fmt::format("{:.0f} TF", tflops) : "",
               work.bytes > 0 ? fmt::format("{:.2f} TB/s", tbps) : "", 100 * share, verdict);
    measured = Measured{name, ms};
  } catch (const std::exception& error) {
    result["error"] = error.what();
    if (work.target) add_target(*work.target, false, result);
    fail(name, error.what());
  }
  std::fflush(stdout);
  rows_.push_back(std::move(result));
  return measured;
}

void Bench::fail(const std::string& what, const std::string& why) {
  fmt::print("FAILED: {}: {}\n", what, why);
  failures_.push_back(fmt::format("{}: {}", what, why));
}

}  // namespace moetune::bench

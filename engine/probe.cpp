#include "engine/probe.h"

#include <cstddef>

#include "kernels/cpu/row_gemm.h"
#include "profiler/timeline.h"

namespace moetune::engine {
namespace {

// About a tenth of a millisecond: two products of an expert's size, then 256 KiB.
constexpr int64_t kRows = 64;
constexpr int64_t kInner = 128;
constexpr int64_t kCols = 256;
constexpr int64_t kNumProducts = 2;
constexpr size_t kSwept = 64 * 1024;

}  // namespace

Probe::Probe()
    : a_(kRows * kInner, 0.5F),
      b_(kNumProducts * kInner * kCols, 0.25F),
      c_(kRows * kCols),
      swept_(kSwept, 1.0F) {}

int64_t Probe::run() {
  work();
  const int64_t begin = profiler::thread_cpu_ns();
  work();
  return profiler::thread_cpu_ns() - begin;
}

void Probe::work() {
  for (int64_t product = 0; product < kNumProducts; ++product) {
    kernels::cpu::row_gemm<float>(kRows, kCols, kInner, {a_.data(), kInner, 1, nullptr},
                                  b_.data() + product * kInner * kCols, kCols, false, false,
                                  c_.data(), kCols, nullptr);
    a_[0] = 0.5F + 1e-6F * c_[0];
  }
  for (float& value : swept_) value = 0.5F * value + 0.5F;
  result_ = c_.back() + swept_.back();
}

}  // namespace moetune::engine

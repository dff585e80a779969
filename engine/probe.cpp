// See probe.h.
#include "engine/probe.h"

#include <algorithm>
#include <cstddef>

#include "profiler/timeline.h"

namespace moetune::engine {
namespace {

constexpr size_t kSize = 64;          ///< of a matrix, rows and columns
constexpr int kNumProducts = 2;       // about a tenth of a millisecond
constexpr size_t kSwept = 64 * 1024;  // 256 KiB

}  // namespace

Probe::Probe()
    : a_(kSize * kSize, 0.5F), b_(kSize * kSize, 0.25F), c_(kSize * kSize), swept_(kSwept, 1.0F) {}

int64_t Probe::run() {
  work();
  const int64_t begin = profiler::thread_cpu_ns();
  work();
  return profiler::thread_cpu_ns() - begin;
}

void Probe::work() {
  std::ranges::fill(c_, 0.0F);
  for (int product = 0; product < kNumProducts; ++product) {
    for (size_t i = 0; i < kSize; ++i) {
      for (size_t k = 0; k < kSize; ++k) {
        const float factor = a_[i * kSize + k];
        for (size_t j = 0; j < kSize; ++j) c_[i * kSize + j] += factor * b_[k * kSize + j];
      }
    }
    a_[0] = 0.5F + 1e-6F * c_[0];
  }
  for (float& value : swept_) value = 0.5F * value + 0.5F;
  result_ = c_.back() + swept_.back();
}

}  // namespace moetune::engine

// The sum that a reduction over ranks takes of their buffers.
#include <algorithm>

#include "kernels/base/error.h"
#include "kernels/cpu/cpu_ops.h"

namespace moetune::kernels::cpu {
namespace {

// Long enough for vector loads, short enough for the sums to stay in the first cache.
constexpr int64_t kBlock = 1024;

template <typename T>
void sum_all(const SumArgs& args) {
  auto* target = static_cast<T*>(args.target);
  T sums[kBlock];
  for (int64_t begin = 0; begin < args.numel; begin += kBlock) {
    const int64_t count = std::min(kBlock, args.numel - begin);
    for (int64_t i = 0; i < count; ++i) sums[i] = T{0};
    for (const void* source : args.sources) {
      const auto* from = static_cast<const T*>(source) + begin;
      for (int64_t i = 0; i < count; ++i) sums[i] += from[i];
    }
    for (int64_t i = 0; i < count; ++i) target[begin + i] = sums[i];
  }
}

}  // namespace

void sum(const SumArgs& args) {
  MOETUNE_CHECK(args.sources.size() <= SumArgs::kMaxSources, "sum: {} sources, {} at most",
                args.sources.size(), SumArgs::kMaxSources);
  switch (args.dtype) {
    case DType::f64:
      return sum_all<double>(args);
    case DType::f32:
      return sum_all<float>(args);
    case DType::i32:
      return sum_all<int32_t>(args);
    case DType::bf16:
      throw base::Error("sum: the CPU backend has no bf16");
  }
}

}  // namespace moetune::kernels::cpu

// Forwards each virtual of Backend to its operation.
#include "kernels/cpu/cpu_backend.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "kernels/base/error.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/host_range.h"

namespace moetune::kernels {
namespace {

constexpr int64_t kAlignmentBytes = 256;
constexpr int kPoison = 0xFF;

}  // namespace

void* CpuBackend::allocate(int64_t bytes) {
  MOETUNE_CHECK(bytes >= 0, "cannot allocate {} bytes", bytes);
  const int64_t num_blocks = std::max<int64_t>(1, (bytes + kAlignmentBytes - 1) / kAlignmentBytes);
  const auto rounded = static_cast<size_t>(num_blocks * kAlignmentBytes);
  void* pointer = std::aligned_alloc(kAlignmentBytes, rounded);
  MOETUNE_CHECK(pointer != nullptr, "the host has no {} bytes left", bytes);
  std::memset(pointer, kPoison, rounded);
  return pointer;
}

void CpuBackend::free(void* pointer) noexcept { std::free(pointer); }

std::unique_ptr<DeviceRange> CpuBackend::make_range(int64_t most_bytes) {
  return std::make_unique<HostRange>(most_bytes);
}

void CpuBackend::fill_zero(void* pointer, int64_t bytes) {
  if (bytes > 0) std::memset(pointer, 0, static_cast<size_t>(bytes));
}

void CpuBackend::copy_to_device(void* device, const void* host, int64_t bytes) {
  if (bytes > 0) std::memcpy(device, host, static_cast<size_t>(bytes));
}

void CpuBackend::copy_to_host(void* host, const void* device, int64_t bytes) {
  if (bytes > 0) std::memcpy(host, device, static_cast<size_t>(bytes));
}

void CpuBackend::copy_on_device(void* to, const void* from, int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<size_t>(bytes));
}

void CpuBackend::begin_capture() { throw base::Error("the CPU backend has no graphs"); }
int CpuBackend::end_capture() { throw base::Error("the CPU backend has no graphs"); }
void CpuBackend::launch_graph(int /*graph*/) { throw base::Error("the CPU backend has no graphs"); }

void CpuBackend::gemm(const GemmArgs& args) { cpu::gemm(args); }
void CpuBackend::grouped_gemm(const GroupedGemmArgs& args) { cpu::grouped_gemm(args); }
void CpuBackend::rms_norm(const RmsNormArgs& args) { cpu::rms_norm(args); }
void CpuBackend::rms_norm_backward(const RmsNormBackwardArgs& args) {
  cpu::rms_norm_backward(args);
}
void CpuBackend::rope(const RopeArgs& args) { cpu::rope(args); }
void CpuBackend::attention(const AttentionArgs& args) { cpu::attention(args); }
void CpuBackend::attention_backward(const AttentionBackwardArgs& args) {
  cpu::attention_backward(args);
}
void CpuBackend::attention_merge(const AttentionMergeArgs& args) { cpu::attention_merge(args); }
void CpuBackend::gated_act(const GatedActArgs& args) { cpu::gated_act(args); }
void CpuBackend::gated_act_backward(const GatedActBackwardArgs& args) {
  cpu::gated_act_backward(args);
}
void CpuBackend::router(const RouterArgs& args) { cpu::router(args); }
void CpuBackend::router_backward(const RouterBackwardArgs& args) { cpu::router_backward(args); }
void CpuBackend::aux_loss(const AuxLossArgs& args) { cpu::aux_loss(args); }
void CpuBackend::route_plan(const RoutePlanArgs& args) { cpu::route_plan(args); }
void CpuBackend::expand_experts(const ExpandExpertsArgs& args) { cpu::expand_experts(args); }
void CpuBackend::gather_rows(const GatherRowsArgs& args) { cpu::gather_rows(args); }
void CpuBackend::scatter_rows(const ScatterRowsArgs& args) { cpu::scatter_rows(args); }
void CpuBackend::combine_rows(const CombineRowsArgs& args) { cpu::combine_rows(args); }
void CpuBackend::embedding(const EmbeddingArgs& args) { cpu::embedding(args); }
void CpuBackend::embedding_backward(const EmbeddingBackwardArgs& args) {
  cpu::embedding_backward(args);
}
void CpuBackend::cross_entropy(const CrossEntropyArgs& args) { cpu::cross_entropy(args); }
void CpuBackend::cross_entropy_stats(const CrossEntropyStatsArgs& args) {
  cpu::cross_entropy_stats(args);
}
void CpuBackend::copy(const CopyArgs& args) { cpu::copy(args); }
void CpuBackend::bias_backward(const BiasBackwardArgs& args) { cpu::bias_backward(args); }
void CpuBackend::adamw(const AdamWArgs& args) { cpu::adamw(args); }
void CpuBackend::squared_norm(const SquaredNormArgs& args) { cpu::squared_norm(args); }
void CpuBackend::sum(const SumArgs& args) { cpu::sum(args); }

std::unique_ptr<Backend> make_cpu_backend() { return std::make_unique<CpuBackend>(); }

}  // namespace moetune::kernels

// The reference backend: real numbers on the host. It owns no state of its own; the operations are
// free functions.
#pragma once

#include "kernels/backend.h"

namespace moetune::kernels {

/// Host memory as device memory. Fresh memory is filled with 0xFF bytes (NaN as float, -1 as
/// index), always, so that reading what was never written shows up as wrong numbers at once.
class CpuBackend final : public Backend {
 public:
  [[nodiscard]] std::string_view name() const override { return "cpu"; }
  [[nodiscard]] bool prefers_small_products() const override { return true; }

  void* allocate(int64_t bytes) override;
  void free(void* pointer) noexcept override;
  std::unique_ptr<DeviceRange> make_range(int64_t most_bytes) override;
  void fill_zero(void* pointer, int64_t bytes) override;
  void copy_to_device(void* device, const void* host, int64_t bytes) override;
  void copy_to_host(void* host, const void* device, int64_t bytes) override;
  void copy_on_device(void* to, const void* from, int64_t bytes) override;

  void use_stream(int /*stream*/) override {}
  DeviceEvent record_event() override { return {}; }
  void wait_event(const DeviceEvent& /*event*/) override {}
  void synchronize() override {}
  [[nodiscard]] void* native_stream() override { return nullptr; }
  [[nodiscard]] bool has_graphs() const override { return false; }
  void begin_capture() override;
  int end_capture() override;
  void launch_graph(int graph) override;
  [[nodiscard]] std::string kernels_note() const override { return {}; }
  void set_workspace_booking(std::function<void(int64_t bytes)> /*book*/) override {}
  [[nodiscard]] DeviceMemoryAccount memory_account() override { return {}; }

  void gemm(const GemmArgs& args) override;
  void grouped_gemm(const GroupedGemmArgs& args) override;
  void rms_norm(const RmsNormArgs& args) override;
  void rms_norm_backward(const RmsNormBackwardArgs& args) override;
  void rope(const RopeArgs& args) override;
  void attention(const AttentionArgs& args) override;
  void attention_backward(const AttentionBackwardArgs& args) override;
  void attention_merge(const AttentionMergeArgs& args) override;
  void gated_act(const GatedActArgs& args) override;
  void gated_act_backward(const GatedActBackwardArgs& args) override;
  void router(const RouterArgs& args) override;
  void router_backward(const RouterBackwardArgs& args) override;
  void aux_loss(const AuxLossArgs& args) override;
  void route_plan(const RoutePlanArgs& args) override;
  void expand_experts(const ExpandExpertsArgs& args) override;
  void gather_rows(const GatherRowsArgs& args) override;
  void scatter_rows(const ScatterRowsArgs& args) override;
  void combine_rows(const CombineRowsArgs& args) override;
  void embedding(const EmbeddingArgs& args) override;
  void embedding_backward(const EmbeddingBackwardArgs& args) override;
  void cross_entropy(const CrossEntropyArgs& args) override;
  void cross_entropy_stats(const CrossEntropyStatsArgs& args) override;
  void copy(const CopyArgs& args) override;
  void bias_backward(const BiasBackwardArgs& args) override;
  void adamw(const AdamWArgs& args) override;
  void squared_norm(const SquaredNormArgs& args) override;
  void sum(const SumArgs& args) override;
};

}  // namespace moetune::kernels

// The CUDA backend: every operation enqueued on the device, by NVIDIA's libraries where the build
// has them and the device suits them, by the own plain kernels elsewhere.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/attention_segments.h"
#include "kernels/cuda/cublaslt_gemm.h"
#include "kernels/cuda/cudnn_attention.h"
#include "kernels/cuda/cutlass_grouped_gemm.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/runtime_check.h"
#include "kernels/cuda/staging.h"
#include "kernels/cuda/streams.h"

namespace moetune::kernels {

/// One per rank; makes its device current in the thread that constructs it, which has to be the
/// one that uses it. Operations return when they are enqueued; a copy to the host has ended when it
/// returns. A kernel that fails shows at a later call, as base::Error with the driver's words.
class CudaBackend final : public Backend {
 public:
  /// Throws base::Error in words for users when the device cannot be used.
  explicit CudaBackend(int device);
  ~CudaBackend() override;
  CudaBackend(const CudaBackend&) = delete;
  CudaBackend& operator=(const CudaBackend&) = delete;

  [[nodiscard]] std::string_view name() const override { return "cuda"; }
  [[nodiscard]] bool prefers_small_products() const override { return false; }

  void* allocate(int64_t bytes) override;
  void free(void* pointer) noexcept override;
  std::unique_ptr<DeviceRange> make_range(int64_t most_bytes) override;
  void fill_zero(void* pointer, int64_t bytes) override;
  void copy_to_device(void* device, const void* host, int64_t bytes) override;
  void copy_to_host(void* host, const void* device, int64_t bytes) override;
  void copy_on_device(void* to, const void* from, int64_t bytes) override;

  void use_stream(int stream) override { streams_.use(stream); }
  DeviceEvent record_event() override { return streams_.record(); }
  void wait_event(const DeviceEvent& event) override { streams_.wait(event); }
  void synchronize() override { streams_.synchronize(); }
  [[nodiscard]] void* native_stream() override { return stream(); }
  [[nodiscard]] bool has_graphs() const override { return true; }
  void begin_capture() override { streams_.begin_capture(); }
  int end_capture() override { return streams_.end_capture(); }
  void launch_graph(int graph) override { streams_.launch_graph(graph); }
  [[nodiscard]] std::string kernels_note() const override;
  [[nodiscard]] DeviceMemoryAccount memory_account() override;
  void set_workspace_booking(std::function<void(int64_t bytes)> book) override {
    book_workspace_ = std::move(book);
  }

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

  /// The stream that operations go to.
  [[nodiscard]] cuda::Stream stream() const { return streams_.current(); }

 private:
  struct Workspace {
    void* data = nullptr;
    int64_t bytes = 0;
  };

  /// How often a library did an operation, and how often a plain kernel, with the first reason.
  struct Uses {
    int64_t num_library = 0;
    int64_t num_plain = 0;
    std::string why_plain;

    void plain(const std::string& why) {
      if (num_plain++ == 0) why_plain = why;
    }
  };

  /// Whether an operation's need for workspace is the same at every call, or follows the routing.
  enum class Need : uint8_t { fixed, routed };

  /// At least `bytes` of device memory for the current stream, kept and grown.
  Workspace& workspace(int64_t bytes, Need need = Need::fixed);
  void grouped_gemm_of_rows(const GroupedGemmArgs& args);
  /// Empty where attention is not cuDNN's; the reason is then in the note.
  std::optional<std::span<const cuda::AttentionSegment>> attention_segments_for(
      const AttentionArgs& args, bool accumulates);
  /// The runs of consecutive positions in device memory; read once per pointer.
  std::span<const cuda::AttentionSegment> segments(const Tensor& positions);

  int device_;
  cuda::DeviceUse use_;
  int64_t library_bytes_ = 0;
  cuda::Streams streams_;
  cuda::Staging staging_;
  std::array<Workspace, kMaxStreams> workspaces_{};
  std::vector<Workspace> retired_;  ///< outgrown, but captured in a graph
  std::function<void(int64_t bytes)> book_workspace_;
  std::unique_ptr<cuda::CublasLtGemm> gemm_;
  std::unique_ptr<cuda::GroupedGemm> grouped_;
  std::unique_ptr<cuda::CudnnAttention> attention_;
  Uses gemm_uses_;
  Uses grouped_uses_;
  Uses attention_uses_;
  std::map<const void*, int64_t> allocated_bytes_;  ///< of what allocate() gave out
  cuda::SegmentCache segments_;
};

}  // namespace moetune::kernels

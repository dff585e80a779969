// The CUDA backend: every operation enqueued on the device, by NVIDIA's libraries where the build
// has them and the device suits them, by the own plain kernels elsewhere.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/attention_segments.h"
#include "kernels/cuda/cublaslt_gemm.h"
#include "kernels/cuda/cudnn_attention.h"
#include "kernels/cuda/cutlass_grouped_gemm.h"
#include "kernels/cuda/ops.h"

namespace moetune::kernels {

/// One per rank; makes its device current in the thread that constructs it, which has to be the
/// one that uses it. Operations return when they are enqueued; copies to and from the host have
/// ended when they return. A kernel that fails shows at a later call, as base::Error with the
/// driver's words.
class CudaBackend final : public Backend {
 public:
  /// Throws base::Error in words for users when the device cannot be used.
  explicit CudaBackend(int device);
  ~CudaBackend() override;
  CudaBackend(const CudaBackend&) = delete;
  CudaBackend& operator=(const CudaBackend&) = delete;

  [[nodiscard]] std::string_view name() const override { return "cuda"; }

  void* allocate(int64_t bytes) override;
  void free(void* pointer) noexcept override;
  void fill_zero(void* pointer, int64_t bytes) override;
  void copy_to_device(void* device, const void* host, int64_t bytes) override;
  void copy_to_host(void* host, const void* device, int64_t bytes) override;

  void gemm(const GemmArgs& args) override;
  void grouped_gemm(const GroupedGemmArgs& args) override;
  void rms_norm(const RmsNormArgs& args) override;
  void rms_norm_backward(const RmsNormBackwardArgs& args) override;
  void rope(const RopeArgs& args) override;
  void attention(const AttentionArgs& args) override;
  void attention_backward(const AttentionBackwardArgs& args) override;
  void gated_act(const GatedActArgs& args) override;
  void gated_act_backward(const GatedActBackwardArgs& args) override;
  void router(const RouterArgs& args) override;
  void router_backward(const RouterBackwardArgs& args) override;
  void aux_loss(const AuxLossArgs& args) override;
  void route_plan(const RoutePlanArgs& args) override;
  void gather_rows(const GatherRowsArgs& args) override;
  void scatter_rows(const ScatterRowsArgs& args) override;
  void combine_rows(const CombineRowsArgs& args) override;
  void embedding(const EmbeddingArgs& args) override;
  void embedding_backward(const EmbeddingBackwardArgs& args) override;
  void cross_entropy(const CrossEntropyArgs& args) override;
  void copy(const CopyArgs& args) override;
  void add_bias(const AddBiasArgs& args) override;
  void bias_backward(const BiasBackwardArgs& args) override;
  void adamw(const AdamWArgs& args) override;
  void squared_norm(const SquaredNormArgs& args) override;

  /// The stream that operations go to.
  [[nodiscard]] cuda::Stream stream() const { return stream_; }
  /// Waits for everything enqueued; throws what has failed by then.
  void synchronize();
  /// Device memory this object holds itself (workspaces), for the memory ledger.
  [[nodiscard]] int64_t workspace_bytes() const { return workspace_size_; }

 private:
  /// At least `bytes` of device memory, kept and grown; not inside a graph capture.
  void* workspace(int64_t bytes);
  /// The runs of consecutive positions in device memory; read once per pointer.
  std::span<const cuda::AttentionSegment> segments(const Tensor& positions);

  int device_;
  cuda::Stream stream_ = nullptr;
  void* workspace_ = nullptr;
  int64_t workspace_size_ = 0;
  std::unique_ptr<cuda::CublasLtGemm> gemm_;
  std::unique_ptr<cuda::GroupedGemm> grouped_;
  std::unique_ptr<cuda::CudnnAttention> attention_;
  std::map<std::pair<const void*, int64_t>, std::vector<cuda::AttentionSegment>> segments_;
};

}  // namespace moetune::kernels

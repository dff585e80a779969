// The experts' GEMM on Hopper tensor cores: CUTLASS's pointer-array grouped GEMM behind the shapes
// of GroupedGemmArgs. Token counts stay on the device, so a call can be captured in a CUDA graph.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "kernels/cuda/grouped_gemm_setup.h"
#include "kernels/cuda/ops.h"

namespace moetune::kernels::cuda {

/// Grouped GEMM of bf16 activations and weights with fp32 accumulation; the weight gradient is
/// added to fp32. One per device; calls only enqueue, and may come from several threads as long as
/// each stream has its own workspace.
///
/// The same instance with the same tile serves every row count, so a row's bits do not depend on
/// the other rows of the call (GroupedGemmArgs).
class GroupedGemm {
 public:
  /// Whether this build contains it at all.
  static bool is_available();

  /// Throws base::Error when there is no such device or the build lacks CUTLASS. `sm_limit` keeps
  /// the kernels to that many multiprocessors (0: all), so that others can run beside them.
  explicit GroupedGemm(int device, int sm_limit = 0);
  ~GroupedGemm();
  GroupedGemm(const GroupedGemm&) = delete;
  GroupedGemm& operator=(const GroupedGemm&) = delete;

  /// Why these arguments cannot be run, empty when they can. Row lists are never supported: the
  /// caller gathers first. Widths and strides have to be multiples of 8 elements, data 16-byte
  /// aligned (the tensor memory accelerator demands it).
  static std::string why_unsupported(const GroupedGemmArgs& args);

  /// What the kernel of a mode asks of a device.
  struct Requirements {
    int64_t shared_memory_bytes = 0;  ///< of a block
    int64_t num_threads = 0;          ///< of a block
    int64_t kernel_bytes = 0;         ///< of workspace, beside the arrays of the setup kernel
    std::string refusal;              ///< of the problems, in CUTLASS's words; else empty
  };

  /// Told by the kernel's types and CUTLASS's own test of the problems, one per expert, for a
  /// device with so many multiprocessors: needs none. Throws base::Error where the build lacks
  /// CUTLASS.
  static Requirements requirements(GroupedGemmMode mode, std::span<const GroupedProblem> problems,
                                   int num_sms);

  /// Whether the device is one that the kernels are made for (compute capability 9.0).
  [[nodiscard]] bool runs_on_device() const;

  /// Device memory that run() needs for this many experts, 256-byte aligned, the same for all
  /// modes. It holds what a setup kernel derives from the offsets, so two calls that may overlap
  /// need two of them; calls of one stream may share.
  [[nodiscard]] int64_t workspace_bytes(int64_t num_experts) const;

  /// Enqueues the setup kernel and the GEMM. Throws base::Error for unsupported arguments, a short
  /// workspace, or a refused launch.
  void run(Stream stream, const GroupedGemmArgs& args, void* workspace, int64_t workspace_size);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moetune::kernels::cuda

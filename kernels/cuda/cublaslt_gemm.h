// Dense GEMM through cuBLASLt: the choice of kernel is made once per shape and kept, the workspace
// is the caller's, so that the memory ledger knows it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/cuda/ops.h"

namespace moetune::kernels::cuda {

/// Products of bf16 or f32 matrices with fp32 accumulation (never TF32) into bf16 or f32. One per
/// rank, not thread-safe. run() only enqueues and can be captured in a graph.
class CublasLtGemm {
 public:
  /// Whether this build contains it at all.
  static bool is_available();

  /// The library's version as major.minor.patch; empty in a build without it. Needs no device.
  static std::string version();

  /// Makes `device` current. Throws base::Error when there is no such device or the build lacks
  /// cuBLASLt.
  explicit CublasLtGemm(int device);
  ~CublasLtGemm();
  CublasLtGemm(const CublasLtGemm&) = delete;
  CublasLtGemm& operator=(const CublasLtGemm&) = delete;

  /// Device memory to give to run() for full speed, 256-byte aligned; calls of one stream share it,
  /// streams do not. Less works, with fewer kernels to choose from.
  [[nodiscard]] int64_t workspace_bytes() const;

  /// Whether the library has a kernel for such arguments; odd row distances of small matrices are
  /// what it may lack. Looked up once per shape.
  [[nodiscard]] bool has_kernel(const GemmArgs& args, int64_t workspace_size);

  /// Enqueues the product; a bias is added by the same kernel, before the one rounding. Throws
  /// base::Error with cuBLASLt's words, also when it has no kernel for the arguments.
  void run(Stream stream, const GemmArgs& args, void* workspace, int64_t workspace_size);

  struct Tuned {
    int num_candidates = 0;
    double first_ms = 0.0;  ///< of the library's first proposal
    double best_ms = 0.0;   ///< of the one kept
  };

  /// Times up to `max_candidates` of the library's proposals for this shape and keeps the fastest
  /// for run(). Synchronises the stream, may not be captured, and leaves c with undefined contents.
  Tuned tune(Stream stream, const GemmArgs& args, void* workspace, int64_t workspace_size,
             int max_candidates = 8);

  /// Shapes whose kernel is known by now.
  [[nodiscard]] int64_t num_cached() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moetune::kernels::cuda

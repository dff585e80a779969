// Attention through cuDNN: fused forward and backward graphs made by cudnn-frontend, one per shape.
// What it cannot do the plain kernel of attention.cu does.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "kernels/cuda/attention_segments.h"
#include "kernels/cuda/ops.h"

namespace moetune::kernels::cuda {

/// Causal grouped-query attention of bf16, with or without a window, for rows whose positions come
/// in few runs (AttentionSegment): each run is one graph. One per rank, not thread-safe. Graphs are
/// made at first sight of a shape, which takes time and must not happen inside a capture; after
/// that forward() and backward() only enqueue.
class CudnnAttention {
 public:
  /// Gives that many bytes of device memory, 256-byte aligned, valid until the next call on the
  /// stream is enqueued. Called at most once per forward() or backward(), never with 0.
  using Workspace = std::function<void*(int64_t bytes)>;

  struct Options {
    /// Same bits every time; on Hopper the workspace then grows with the square of the sequence.
    bool use_deterministic_backward = false;
  };

  /// A device that need not be there, for which graphs are made and compiled all the same.
  struct DeviceDescription {
    std::string properties;      ///< in JSON, as cuDNN's device-property descriptor writes them
    int compute_capability = 0;  ///< e.g. 90
  };

  /// Whether this build contains it at all.
  static bool is_available();

  /// The library's version as major.minor.patch; empty in a build without it. Needs no device.
  static std::string version();

  /// Whether the compiler works that cuDNN makes its kernels with. Needs no device.
  static bool can_compile();

  /// Makes `device` current. Throws base::Error when there is no such device or the build lacks
  /// cuDNN.
  explicit CudnnAttention(int device);
  CudnnAttention(int device, Options options);
  /// For a described device: all but forward() and backward(), which throw. cuDNN makes kernels
  /// only where it finds a libcuda.so.1, whether or not that has a device. Throws base::Error when
  /// the description cannot be read or the build lacks cuDNN.
  CudnnAttention(const DeviceDescription& device, Options options);
  ~CudnnAttention();
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  /// Why the arguments can be told to be unsupported without asking the library; else empty.
  static std::string why_unsupported(const AttentionArgs& args,
                                     std::span<const AttentionSegment> segments);
  static std::string why_unsupported(const AttentionBackwardArgs& args,
                                     std::span<const AttentionSegment> segments);

  /// Whether the library takes the call on this device: makes the graphs, so that what says yes
  /// also runs. Never throws for a shape. A forward pass here goes with a backward pass elsewhere
  /// and the other way round: lse means the same.
  bool is_supported(const AttentionArgs& args, std::span<const AttentionSegment> segments);
  bool is_supported(const AttentionBackwardArgs& args, std::span<const AttentionSegment> segments);

  /// What made is_supported() say no the last time, in the library's words.
  [[nodiscard]] const std::string& last_refusal() const;

  /// What the calls will ask their Workspace for, to be booked in advance. They throw like the
  /// calls where the arguments are not supported.
  int64_t forward_workspace_bytes(const AttentionArgs& args,
                                  std::span<const AttentionSegment> segments);
  int64_t backward_workspace_bytes(const AttentionBackwardArgs& args,
                                   std::span<const AttentionSegment> segments);

  /// AttentionArgs, with args.positions in the form of segments (the tensor is not read). Throws
  /// base::Error with the library's words where the arguments are not supported.
  void forward(Stream stream, const AttentionArgs& args, std::span<const AttentionSegment> segments,
               const Workspace& workspace);
  void backward(Stream stream, const AttentionBackwardArgs& args,
                std::span<const AttentionSegment> segments, const Workspace& workspace);

  /// Graphs made by now.
  [[nodiscard]] int64_t num_cached() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moetune::kernels::cuda

// Stands in for attention through cuDNN in builds without that library.
#include "kernels/base/error.h"
#include "kernels/cuda/cudnn_attention.h"

namespace moetune::kernels::cuda {

struct CudnnAttention::Impl {
  std::string refusal = "this build has no cuDNN";
};

bool CudnnAttention::is_available() { return false; }

std::string CudnnAttention::version() { return {}; }

bool CudnnAttention::can_compile() { return false; }

CudnnAttention::CudnnAttention(int device) : CudnnAttention(device, Options{}) {}

CudnnAttention::CudnnAttention(int /*device*/, Options /*options*/) {
  throw base::Error("this build has no cuDNN (`make cuda-libs` fetches it)");
}

CudnnAttention::CudnnAttention(const DeviceDescription& /*device*/, Options options)
    : CudnnAttention(0, options) {}

CudnnAttention::~CudnnAttention() = default;

std::string CudnnAttention::why_unsupported(const AttentionArgs& /*args*/,
                                            std::span<const AttentionSegment> /*segments*/) {
  return "this build has no cuDNN";
}

std::string CudnnAttention::why_unsupported(const AttentionBackwardArgs& /*args*/,
                                            std::span<const AttentionSegment> /*segments*/) {
  return "this build has no cuDNN";
}

// Never reached: there is no object without the library.
bool CudnnAttention::is_supported(const AttentionArgs& /*args*/,
                                  std::span<const AttentionSegment> /*segments*/) {
  return false;
}

bool CudnnAttention::is_supported(const AttentionBackwardArgs& /*args*/,
                                  std::span<const AttentionSegment> /*segments*/) {
  return false;
}

const std::string& CudnnAttention::last_refusal() const { return impl_->refusal; }

int64_t CudnnAttention::num_cached() const { return 0; }

int64_t CudnnAttention::forward_workspace_bytes(const AttentionArgs& /*args*/,
                                                std::span<const AttentionSegment> /*segments*/) {
  return 0;
}

int64_t CudnnAttention::backward_workspace_bytes(const AttentionBackwardArgs& /*args*/,
                                                 std::span<const AttentionSegment> /*segments*/) {
  return 0;
}

void CudnnAttention::forward(Stream /*stream*/, const AttentionArgs& /*args*/,
                             std::span<const AttentionSegment> /*segments*/,
                             const Workspace& /*workspace*/) {}

void CudnnAttention::backward(Stream /*stream*/, const AttentionBackwardArgs& /*args*/,
                              std::span<const AttentionSegment> /*segments*/,
                              const Workspace& /*workspace*/) {}

}  // namespace moetune::kernels::cuda

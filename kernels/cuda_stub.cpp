// Stands in for the CUDA backend in builds without it.
#include "kernels/backend.h"

namespace moetune::kernels {

bool has_cuda() { return false; }

std::unique_ptr<Backend> make_cuda_backend(int /*device*/) { return nullptr; }

std::vector<CudaDeviceInfo> cuda_devices(std::string& why_none) {
  why_none = "this build has no CUDA backend";
  return {};
}

}  // namespace moetune::kernels

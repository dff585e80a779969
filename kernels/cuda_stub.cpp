// Stands in for the CUDA backend in builds without it.
#include "kernels/backend.h"

namespace moetune::kernels {

std::unique_ptr<Backend> make_cuda_backend(int /*device*/) { return nullptr; }

}  // namespace moetune::kernels

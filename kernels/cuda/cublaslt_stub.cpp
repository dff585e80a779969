// Stands in for the GEMM through cuBLASLt in builds without that library.
#include "kernels/base/error.h"
#include "kernels/cuda/cublaslt_gemm.h"

namespace moetune::kernels::cuda {

struct CublasLtGemm::Impl {};

bool CublasLtGemm::is_available() { return false; }

std::string CublasLtGemm::version() { return {}; }

CublasLtGemm::CublasLtGemm(int /*device*/) {
  throw base::Error("this build has no cuBLASLt (`make cuda-libs` fetches it)");
}

CublasLtGemm::~CublasLtGemm() = default;

// Never reached: there is no object without the library.
int64_t CublasLtGemm::workspace_bytes() const { return 0; }

int64_t CublasLtGemm::num_cached() const { return 0; }

bool CublasLtGemm::has_kernel(const GemmArgs& /*args*/, int64_t /*workspace_size*/) {
  return false;
}

void CublasLtGemm::run(Stream /*stream*/, const GemmArgs& /*args*/, void* /*workspace*/,
                       int64_t /*workspace_size*/) {}

CublasLtGemm::Tuned CublasLtGemm::tune(Stream /*stream*/, const GemmArgs& /*args*/,
                                       void* /*workspace*/, int64_t /*workspace_size*/,
                                       int /*max_candidates*/) {
  return {};
}

}  // namespace moetune::kernels::cuda

// Stands in for the grouped GEMM through CUTLASS in builds without its headers.
#include "kernels/base/error.h"
#include "kernels/cuda/cutlass_grouped_gemm.h"

namespace moetune::kernels::cuda {
namespace {

constexpr const char* kMissing = "this build has no CUTLASS (`make cuda-libs` fetches it)";

}  // namespace

struct GroupedGemm::Impl {};

bool GroupedGemm::is_available() { return false; }

GroupedGemm::GroupedGemm(int /*device*/, int /*sm_limit*/) { throw base::Error(kMissing); }

GroupedGemm::~GroupedGemm() = default;

std::string GroupedGemm::why_unsupported(const GroupedGemmArgs& /*args*/) {
  return "this build has no CUTLASS";
}

GroupedGemm::Requirements GroupedGemm::requirements(GroupedGemmMode /*mode*/,
                                                    std::span<const GroupedProblem> /*problems*/,
                                                    int /*num_sms*/) {
  throw base::Error(kMissing);
}

// Never reached: there is no object without the library.
bool GroupedGemm::runs_on_device() const { return false; }

int64_t GroupedGemm::workspace_bytes(int64_t /*num_experts*/) const { return 0; }

void GroupedGemm::run(Stream /*stream*/, const GroupedGemmArgs& /*args*/, void* /*workspace*/,
                      int64_t /*workspace_size*/) {}

}  // namespace moetune::kernels::cuda

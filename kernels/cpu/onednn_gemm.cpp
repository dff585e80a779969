// Calls into oneDNN. This is the only file that includes dnnl.h.
#include "kernels/cpu/onednn_gemm.h"

#include <dnnl.h>

#include <algorithm>

#include "kernels/base/error.h"

// Of OpenMP, which has its header beside the compiler, where other tools do not look.
extern "C" void omp_set_num_threads(int num_threads);

namespace moetune::kernels::cpu {
namespace {

// Ranks are threads already: a GEMM that started more of them would only fight over the cores.
// OpenMP keeps this setting per thread.
void use_one_thread() {
  static thread_local bool is_set = false;
  if (!is_set) omp_set_num_threads(1);
  is_set = true;
}

}  // namespace

void onednn_gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const float* a,
                 int64_t lda, const float* b, int64_t ldb, bool accumulate, float* c, int64_t ldc) {
  if (m == 0 || n == 0 || (k == 0 && accumulate)) return;
  if (k == 0) {
    for (int64_t row = 0; row < m; ++row) std::fill_n(c + row * ldc, n, 0.0F);
    return;
  }
  use_one_thread();
  const dnnl_status_t status = dnnl_sgemm(trans_a ? 'T' : 'N', trans_b ? 'T' : 'N', m, n, k, 1.0F,
                                          a, lda, b, ldb, accumulate ? 1.0F : 0.0F, c, ldc);
  MOETUNE_CHECK(status == dnnl_success, "oneDNN refused a GEMM of {}x{}x{} (status {})", m, n, k,
                static_cast<int>(status));
}

}  // namespace moetune::kernels::cpu

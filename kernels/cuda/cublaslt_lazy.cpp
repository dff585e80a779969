// The functions of cuBLASLt that cublaslt_gemm.cpp calls, each fetched from the library at its
// first call. Linked in place of the library, which is half a gigabyte and takes a fifth of a
// second to load: that is for the processes that multiply on a card, not for every rank and every
// test. A library that is missing at run time becomes an error message instead of a process that
// cannot start.
#include <cublasLt.h>
#include <dlfcn.h>

#include <string>

#include "kernels/base/error.h"

namespace moetune::kernels::cuda {
namespace {

/// The loaded library: as the system's loader finds it, else where it was at build time.
void* library() {
  static void* const handle = [] {
    const std::string name = fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR);
    void* found = dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (found == nullptr) found = dlopen(MOETUNE_CUBLASLT_LIBRARY, RTLD_LAZY | RTLD_LOCAL);
    MOETUNE_CHECK(found != nullptr, "cuBLASLt cannot be loaded: {} is not found, and {}", name,
                  dlerror());
    return found;
  }();
  return handle;
}

/// Calls the library's function of the same type and name as `Function`.
template <auto Function, typename... Arguments>
auto call(const char* name, Arguments... arguments) {
  static const auto function = [&] {
    void* const symbol = dlsym(library(), name);
    MOETUNE_CHECK(symbol != nullptr, "cuBLASLt has no function {}", name);
    return reinterpret_cast<decltype(Function)>(symbol);
  }();
  return function(arguments...);
}

}  // namespace
}  // namespace moetune::kernels::cuda

using moetune::kernels::cuda::call;

size_t cublasLtGetVersion() { return call<&cublasLtGetVersion>("cublasLtGetVersion"); }

const char* cublasLtGetStatusString(cublasStatus_t status) {
  return call<&cublasLtGetStatusString>("cublasLtGetStatusString", status);
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  return call<&cublasLtCreate>("cublasLtCreate", handle);
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return call<&cublasLtDestroy>("cublasLtDestroy", handle);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* descriptor,
                                        cublasComputeType_t compute_type,
                                        cudaDataType_t scale_type) {
  return call<&cublasLtMatmulDescCreate>("cublasLtMatmulDescCreate", descriptor, compute_type,
                                         scale_type);
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t descriptor) {
  return call<&cublasLtMatmulDescDestroy>("cublasLtMatmulDescDestroy", descriptor);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t descriptor,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t size) {
  return call<&cublasLtMatmulDescSetAttribute>("cublasLtMatmulDescSetAttribute", descriptor,
                                               attribute, value, size);
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld) {
  return call<&cublasLtMatrixLayoutCreate>("cublasLtMatrixLayoutCreate", layout, type, rows, cols,
                                           ld);
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return call<&cublasLtMatrixLayoutDestroy>("cublasLtMatrixLayoutDestroy", layout);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return call<&cublasLtMatmulPreferenceCreate>("cublasLtMatmulPreferenceCreate", preference);
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return call<&cublasLtMatmulPreferenceDestroy>("cublasLtMatmulPreferenceDestroy", preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t size) {
  return call<&cublasLtMatmulPreferenceSetAttribute>("cublasLtMatmulPreferenceSetAttribute",
                                                     preference, attribute, value, size);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                                              cublasLtMatmulDesc_t descriptor,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* returned) {
  return call<&cublasLtMatmulAlgoGetHeuristic>("cublasLtMatmulAlgoGetHeuristic", handle, descriptor,
                                               a, b, c, d, preference, requested, results,
                                               returned);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t descriptor,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                              const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              size_t workspace_size, cudaStream_t stream) {
  return call<&cublasLtMatmul>("cublasLtMatmul", handle, descriptor, alpha, a, a_layout, b,
                               b_layout, beta, c, c_layout, d, d_layout, algorithm, workspace,
                               workspace_size, stream);
}

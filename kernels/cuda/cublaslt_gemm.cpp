// Calls into cuBLASLt. This is the only file that includes cublasLt.h.
#include "kernels/cuda/cublaslt_gemm.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "kernels/base/environment_failure.h"
#include "kernels/base/error.h"
#include "kernels/cuda/column_major.h"
#include "kernels/cuda/runtime_check.h"

namespace moetune::kernels::cuda {
namespace {

constexpr int64_t kHopperWorkspace = int64_t{32} << 20;  // what NVIDIA recommends from Hopper on
constexpr int64_t kOlderWorkspace = int64_t{4} << 20;
constexpr int kTimedRuns = 5;

void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw_library_error(fmt::format("cuBLASLt: {} failed: {}", what, cublasLtGetStatusString(status)),
                      status == CUBLAS_STATUS_ALLOC_FAILED);
}

cudaDataType_t type_of(DType dtype) { return dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F; }

/// Owns one of the library's descriptors.
template <typename Handle, auto Destroy>
class Owner {
 public:
  Owner() = default;
  ~Owner() {
    if (handle_ != nullptr) Destroy(handle_);
  }
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;
  Owner(Owner&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owner& operator=(Owner&&) = delete;

  Handle* address() { return &handle_; }
  [[nodiscard]] Handle get() const { return handle_; }

 private:
  Handle handle_ = nullptr;
};

using Operation = Owner<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owner<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owner<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;
using Event = Owner<cudaEvent_t, cudaEventDestroy>;

template <typename T>
void set(const Operation& operation, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check(cublasLtMatmulDescSetAttribute(operation.get(), attribute, &value, sizeof value),
        "describing a product");
}

template <typename T>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute,
         const T& value) {
  check(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof value),
        "stating a preference");
}

/// A matrix as it lies in memory: [rows, cols] is op's shape, swapped when it is transposed.
void describe(Layout& layout, DType dtype, int64_t rows, int64_t cols, bool is_transposed,
              int64_t ld) {
  if (is_transposed) std::swap(rows, cols);
  check(cublasLtMatrixLayoutCreate(layout.address(), type_of(dtype), static_cast<uint64_t>(rows),
                                   static_cast<uint64_t>(cols), ld),
        "describing a matrix");
}

/// The library's view of one shape, and the kernel chosen for it.
struct Plan {
  Operation operation;
  Layout a;
  Layout b;
  Layout c;
  cublasLtMatmulAlgo_t algorithm{};

  explicit Plan(const ColumnMajorShape& shape) {
    check(cublasLtMatmulDescCreate(operation.address(), CUBLAS_COMPUTE_32F, CUDA_R_32F),
          "describing a product");
    set(operation, CUBLASLT_MATMUL_DESC_TRANSA, shape.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(operation, CUBLASLT_MATMUL_DESC_TRANSB, shape.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (shape.has_bias) {
      set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(shape.output_dtype));
    }
    describe(a, shape.input_dtype, shape.m, shape.k, shape.trans_a, shape.lda);
    describe(b, shape.input_dtype, shape.k, shape.n, shape.trans_b, shape.ldb);
    describe(c, shape.output_dtype, shape.m, shape.n, false, shape.ldc);
  }

  void set_bias(const void* bias) const {
    if (bias != nullptr) set(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  }
};

}  // namespace

struct CublasLtGemm::Impl {
  using Key = std::pair<ColumnMajorShape, int64_t>;  ///< the shape and the workspace's size

  Owner<cublasLtHandle_t, cublasLtDestroy> handle;
  int64_t workspace_bytes = 0;
  std::map<Key, Plan> plans;
  std::set<Key> without_kernel;

  /// The library's proposals, best guess first.
  std::vector<cublasLtMatmulHeuristicResult_t> proposals(const Plan& plan,
                                                         const ColumnMajorShape& shape,
                                                         int64_t workspace_size, int limit) const {
    Preference preference;
    check(cublasLtMatmulPreferenceCreate(preference.address()), "stating a preference");
    set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
        static_cast<uint64_t>(workspace_size));
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, uint32_t{shape.align_a});
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, uint32_t{shape.align_b});
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, uint32_t{shape.align_c});
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, uint32_t{shape.align_c});
    std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(limit));
    int count = 0;
    check(cublasLtMatmulAlgoGetHeuristic(handle.get(), plan.operation.get(), plan.a.get(),
                                         plan.b.get(), plan.c.get(), plan.c.get(), preference.get(),
                                         limit, results.data(), &count),
          fmt::format("looking for a kernel for m {} n {} k {} ({} to {})", shape.n, shape.m,
                      shape.k, base::name_of(shape.input_dtype), base::name_of(shape.output_dtype))
              .c_str());
    results.resize(static_cast<size_t>(count));
    std::erase_if(results, [](const auto& r) { return r.state != CUBLAS_STATUS_SUCCESS; });
    MOETUNE_CHECK(!results.empty(), "cuBLASLt has no kernel for m {} n {} k {} ({} to {})", shape.n,
                  shape.m, shape.k, base::name_of(shape.input_dtype),
                  base::name_of(shape.output_dtype));
    return results;
  }

  /// The plan for a product, made on first sight; it points at the product's bias.
  Plan& plan_for(const ColumnMajorGemm& gemm, int64_t workspace_size) {
    const Key key{gemm.shape, workspace_size};
    auto found = plans.find(key);
    if (found == plans.end()) {
      Plan plan(gemm.shape);
      plan.set_bias(gemm.bias);  // its alignment counts
      plan.algorithm = proposals(plan, gemm.shape, workspace_size, 1).front().algo;
      found = plans.emplace(key, std::move(plan)).first;
    }
    found->second.set_bias(gemm.bias);
    return found->second;
  }

  void enqueue(Stream stream, const ColumnMajorGemm& gemm, const Plan& plan,
               const cublasLtMatmulAlgo_t& algorithm, void* workspace,
               int64_t workspace_size) const {
    const float alpha = 1.0F;
    const float beta = gemm.shape.accumulate ? 1.0F : 0.0F;
    check(cublasLtMatmul(handle.get(), plan.operation.get(), &alpha, gemm.a, plan.a.get(), gemm.b,
                         plan.b.get(), &beta, gemm.c, plan.c.get(), gemm.c, plan.c.get(),
                         &algorithm, workspace, static_cast<size_t>(workspace_size), stream),
          "a product");
  }
};

bool CublasLtGemm::is_available() { return true; }

std::string CublasLtGemm::version() {
  const size_t version = cublasLtGetVersion();  // e.g. 130100
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

CublasLtGemm::CublasLtGemm(int device) : impl_(std::make_unique<Impl>()) {
  int major = 0;
  check(cudaSetDevice(device), fmt::format("taking CUDA device {}", device).c_str());
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
        "asking the device");
  check(cublasLtCreate(impl_->handle.address()), "starting the library");
  impl_->workspace_bytes = major >= 9 ? kHopperWorkspace : kOlderWorkspace;
}

CublasLtGemm::~CublasLtGemm() = default;

int64_t CublasLtGemm::workspace_bytes() const { return impl_->workspace_bytes; }

int64_t CublasLtGemm::num_cached() const { return static_cast<int64_t>(impl_->plans.size()); }

bool CublasLtGemm::has_kernel(const GemmArgs& args, int64_t workspace_size) {
  const ColumnMajorGemm gemm = to_column_major(args);
  if (gemm.shape.m == 0 || gemm.shape.n == 0 || gemm.shape.k == 0) return true;
  const Impl::Key key{gemm.shape, workspace_size};
  if (impl_->plans.contains(key)) return true;
  if (impl_->without_kernel.contains(key)) return false;
  try {
    static_cast<void>(impl_->plan_for(gemm, workspace_size));
    return true;
  } catch (const base::OutOfMemory&) {
    throw;
  } catch (const base::EnvironmentFailure&) {
    throw;
  } catch (const base::DeviceFailed&) {
    throw;
  } catch (const base::Error&) {
    impl_->without_kernel.insert(key);
    return false;
  }
}

void CublasLtGemm::run(Stream stream, const GemmArgs& args, void* workspace,
                       int64_t workspace_size) {
  const ColumnMajorGemm gemm = to_column_major(args);
  if (gemm.shape.m == 0 || gemm.shape.n == 0) return;
  if (gemm.shape.k == 0) {  // a product of nothing; the library refuses it
    MOETUNE_CHECK(args.bias.is_null(), "gemm: a bias on a product without k");
    if (args.accumulate) return;
    const auto size = static_cast<size_t>(base::size_of(args.c.dtype));
    check(cudaMemset2DAsync(args.c.data, static_cast<size_t>(args.c.ld) * size, 0,
                            static_cast<size_t>(args.c.cols) * size,
                            static_cast<size_t>(args.c.rows), stream),
          "clearing the output");
    return;
  }
  const Plan& plan = impl_->plan_for(gemm, workspace_size);
  impl_->enqueue(stream, gemm, plan, plan.algorithm, workspace, workspace_size);
}

CublasLtGemm::Tuned CublasLtGemm::tune(Stream stream, const GemmArgs& args, void* workspace,
                                       int64_t workspace_size, int max_candidates) {
  const ColumnMajorGemm gemm = to_column_major(args);
  Tuned tuned;
  if (gemm.shape.m == 0 || gemm.shape.n == 0 || gemm.shape.k == 0) return tuned;
  Plan& plan = impl_->plan_for(gemm, workspace_size);
  Event begin;
  Event end;
  check(cudaEventCreate(begin.address()), "timing");
  check(cudaEventCreate(end.address()), "timing");
  for (const auto& candidate :
       impl_->proposals(plan, gemm.shape, workspace_size, std::max(max_candidates, 1))) {
    impl_->enqueue(stream, gemm, plan, candidate.algo, workspace, workspace_size);  // loads it
    check(cudaEventRecord(begin.get(), stream), "timing");
    for (int i = 0; i < kTimedRuns; ++i) {
      impl_->enqueue(stream, gemm, plan, candidate.algo, workspace, workspace_size);
    }
    check(cudaEventRecord(end.get(), stream), "timing");
    check(cudaEventSynchronize(end.get()), "timing");
    float milliseconds = 0.0F;
    check(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()), "timing");
    const double each = static_cast<double>(milliseconds) / kTimedRuns;
    if (tuned.num_candidates == 0) tuned.first_ms = each;
    if (tuned.num_candidates == 0 || each < tuned.best_ms) {
      tuned.best_ms = each;
      plan.algorithm = candidate.algo;
    }
    ++tuned.num_candidates;
  }
  return tuned;
}

}  // namespace moetune::kernels::cuda

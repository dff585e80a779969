// What the tests of the CUDA backend on a card share: both backends, device memory, and whether an
// operation ran in the library that it is meant for.
#pragma once

#include <boost/test/unit_test.hpp>
#include <memory>
#include <string>

#include "tests/cuda/cuda_fixture.h"

namespace moetune::kernels {

/// How often a library did an operation and how often a plain kernel, with the first reason.
struct KernelUses {
  int64_t num_library = 0;
  int64_t num_plain = 0;
  std::string text;
};

/// What Backend::kernels_note says of one operation: "GEMM", "grouped GEMM" or "attention". Throws
/// base::Error when it says nothing of that kind.
inline KernelUses uses_of(const std::string& note, const std::string& operation) {
  const std::string head = operation + ": ";
  size_t begin = note.starts_with(head) ? 0 : note.find("; " + head);
  MOETUNE_CHECK(begin != std::string::npos, "no '{}' in '{}'", operation, note);
  if (begin > 0) begin += 2;
  KernelUses uses;
  uses.text = note.substr(begin);
  const auto number_behind = [&](size_t at) {
    at = uses.text.find_first_of("0123456789", at);
    MOETUNE_CHECK(at != std::string::npos, "no number of '{}' in '{}'", operation, note);
    return std::stoll(uses.text.substr(at));
  };
  const size_t plain = uses.text.find(", plain ");
  MOETUNE_CHECK(plain != std::string::npos, "no plain kernels of '{}' in '{}'", operation, note);
  uses.num_library = number_behind(head.size());
  uses.num_plain = number_behind(plain);
  return uses;
}

struct GpuFixture {
  std::unique_ptr<Backend> cpu = make_cpu_backend();
  std::unique_ptr<Backend> gpu = make_cuda_backend(0);
  OnDevice on;

  [[nodiscard]] cuda::Stream stream() const {
    return static_cast<cuda::Stream>(gpu->native_stream());
  }

  /// Whether NVIDIA's kernels are to be expected of what suits them: they are in the build, and
  /// the GPU is the kind that all of them are made for. Says so where not.
  [[nodiscard]] static bool expects_library(const char* name, bool is_in_build) {
    std::string why_none;
    const CudaDeviceInfo info = cuda_devices(why_none).at(0);
    const bool is_hopper = info.compute_major == 9 && info.compute_minor == 0;
    if (is_in_build && is_hopper) return true;
    BOOST_TEST_MESSAGE("not asserted that " << name << " did the work: "
                                            << (is_in_build ? info.name + " is not of compute "
                                                                          "capability 9.0"
                                                            : "it is not in this build"));
    return false;
  }

  /// Everything so far that the backend did of the operation ran in its library.
  void check_library(const std::string& operation, const char* name, bool is_in_build) const {
    if (!expects_library(name, is_in_build)) return;
    const KernelUses uses = uses_of(gpu->kernels_note(), operation);
    BOOST_TEST_CONTEXT("the backend's note: " << uses.text) {
      BOOST_TEST(uses.num_library > 0);
      BOOST_TEST(uses.num_plain == 0);
    }
  }
  void check_gemm_library() const { check_library("GEMM", "cuBLASLt", MOETUNE_HAS_CUBLASLT != 0); }
  void check_grouped_library() const {
    check_library("grouped GEMM", "CUTLASS", MOETUNE_HAS_CUTLASS != 0);
  }
  void check_attention_library() const {
    check_library("attention", "cuDNN", MOETUNE_HAS_CUDNN != 0);
  }

  template <typename T>
  void check_close(Matrix<T>& result, const Matrix<float>& expected) {
    on.fetch(result);
    BOOST_TEST(relative_error(widened(result), expected) < kElementTolerance<T>);
  }
};

}  // namespace moetune::kernels

// What the tests of CUDA kernels share: bf16 matrices, copies in device memory, tolerances. Only
// the runtime's C functions are used, so the same tests run against the fake device and on a card.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <limits>
#include <map>
#include <tuple>

#include "kernels/base/error.h"
#include "kernels/cuda/ops.h"
#include "tests/kernels/kernel_fixture.h"

namespace moetune::kernels {

using Bf16 = __nv_bfloat16;

template <>
inline constexpr DType kDTypeOf<Bf16> = DType::bf16;

/// For BOOST_AUTO_TEST_CASE_TEMPLATE: every kernel is tested with both kinds of elements.
using ElementTypes = std::tuple<float, Bf16>;

/// Relative L2 error allowed against the CPU operation in f32 on the same (rounded) inputs.
template <typename T>
constexpr double kElementTolerance = sizeof(T) == 2 ? 1e-2 : 1e-5;

/// A matrix of random elements; as f32 it holds the same, rounded, values.
template <typename T>
Matrix<T> random_matrix(int64_t rows, int64_t cols, uint64_t seed, int64_t ld = 0,
                        double low = -1.0, double high = 1.0) {
  Matrix<float> values(rows, cols);
  values.fill_random(seed, low, high);
  Matrix<T> matrix(rows, cols, ld);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) matrix(r, c) = static_cast<T>(values(r, c));
  }
  return matrix;
}

/// The same values in f32, without padding between rows: what the CPU operation gets and what an
/// output is compared as.
template <typename T>
Matrix<float> widened(const Matrix<T>& matrix) {
  Matrix<float> wide(matrix.rows(), matrix.cols());
  for (int64_t r = 0; r < matrix.rows(); ++r) {
    for (int64_t c = 0; c < matrix.cols(); ++c) wide(r, c) = static_cast<float>(matrix(r, c));
  }
  return wide;
}

/// Copies of a test's matrices in device memory. `on(m)` uploads at the first call and gives the
/// same memory ever after, so that aliased arguments alias; fetch(m) brings the contents back.
class OnDevice {
 public:
  OnDevice() = default;
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() {
    for (const auto& [host, memory] : memory_) cudaFree(memory);
  }

  template <typename T>
  Tensor operator()(const Matrix<T>& matrix) {
    Tensor tensor = matrix.tensor();
    auto& host = const_cast<Matrix<T>&>(matrix).data();
    if (host.empty()) return {nullptr, tensor.dtype, tensor.rows, tensor.cols, tensor.ld};
    void*& memory = memory_[&matrix];
    if (memory == nullptr) {
      check(cudaMalloc(&memory, host.size() * sizeof(T)));
      check(cudaMemcpy(memory, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
      // Streams that do not wait for the legacy one may use it next.
      check(cudaDeviceSynchronize());
    }
    tensor.data = memory;
    return tensor;
  }

  template <typename T>
  void fetch(Matrix<T>& matrix) {
    auto& host = matrix.data();
    if (host.empty()) return;
    // A copy waits for the legacy stream, not for those that a backend makes.
    check(cudaDeviceSynchronize());
    check(cudaMemcpy(host.data(), memory_.at(&matrix), host.size() * sizeof(T),
                     cudaMemcpyDeviceToHost));
  }

 private:
  static void check(cudaError_t status) {
    MOETUNE_CHECK(status == cudaSuccess, "{}", cudaGetErrorString(status));
  }

  std::map<const void*, void*> memory_;
};

/// True when the padding behind each row still has the bits of a fresh matrix.
template <typename T>
bool has_clean_padding(const Matrix<T>& matrix) {
  auto& data = const_cast<Matrix<T>&>(matrix).data();
  const int64_t ld = matrix.tensor().ld;
  for (int64_t r = 0; r < matrix.rows(); ++r) {
    const auto* bytes =
        reinterpret_cast<const unsigned char*>(data.data() + r * ld + matrix.cols());
    for (size_t i = 0; i < static_cast<size_t>(ld - matrix.cols()) * sizeof(T); ++i) {
      if (bytes[i] != 0xFF) return false;
    }
  }
  return true;
}

}  // namespace moetune::kernels

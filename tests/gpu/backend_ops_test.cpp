// The CUDA backend's choice of library or own kernel, on shapes that the libraries take, against
// the CPU operation: what a training step runs on a card.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <numeric>

#include "tests/cuda/cuda_fixture.h"

namespace moetune::kernels {
namespace {

struct GpuFixture {
  std::unique_ptr<Backend> cpu = make_cpu_backend();
  std::unique_ptr<Backend> gpu = make_cuda_backend(0);
  OnDevice on;
};

template <typename T>
void check_close(OnDevice& on, Matrix<T>& result, const Matrix<float>& expected) {
  on.fetch(result);
  BOOST_TEST(relative_error(widened(result), expected) < kElementTolerance<T>);
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(gpu_backend, GpuFixture)

BOOST_AUTO_TEST_CASE_TEMPLATE(dense_gemm, T, ElementTypes) {
  for (int bits = 0; bits < 8; ++bits) {
    const bool trans_a = (bits & 1) != 0;
    const bool trans_b = (bits & 2) != 0;
    const bool accumulate = (bits & 4) != 0;
    const int64_t m = 320, n = 192, k = 256;
    const auto a = random_matrix<T>(trans_a ? k : m, trans_a ? m : k, 1);
    const auto b = random_matrix<T>(trans_b ? n : k, trans_b ? k : n, 2);
    // Gradients of weights are f32 sums of products of bf16.
    Matrix<float> c(m, n);
    if (accumulate) c.fill_random(3);
    Matrix<float> expected = c;
    cpu->gemm({widened(a), widened(b), expected, trans_a, trans_b, accumulate});
    BOOST_TEST_CONTEXT("ta " << trans_a << " tb " << trans_b << " acc " << accumulate) {
      gpu->gemm({on(a), on(b), on(c), trans_a, trans_b, accumulate});
      on.fetch(c);
      BOOST_TEST(relative_error(c, expected) < kElementTolerance<T>);
      if (accumulate) continue;
      Matrix<T> narrow(m, n);
      gpu->gemm({on(a), on(b), on(narrow), trans_a, trans_b, false});
      check_close(on, narrow, expected);
    }
  }
}

BOOST_AUTO_TEST_CASE(grouped_gemm_of_uneven_experts) {
  constexpr int64_t kIn = 256, kOut = 192, kExperts = 6;
  const std::vector<int32_t> counts = {130, 0, 1, 257, 64, 0};
  Matrix<int32_t> offsets(kExperts + 1, 1);
  offsets(0, 0) = 0;
  for (int64_t e = 0; e < kExperts; ++e) offsets(e + 1, 0) = offsets(e, 0) + counts[e];
  const int64_t rows = offsets(kExperts, 0);
  const auto x = random_matrix<Bf16>(rows, kIn, 1);
  const auto y = random_matrix<Bf16>(rows, kOut, 2);
  const auto w = random_matrix<Bf16>(kExperts * kOut, kIn, 3);
  Matrix<Bf16> out(rows, kOut);
  Matrix<Bf16> dx(rows, kIn);
  Matrix<float> dw(kExperts * kOut, kIn);
  dw.fill_random(4);
  Matrix<float> expected_out(rows, kOut);
  Matrix<float> expected_dx(rows, kIn);
  Matrix<float> expected_dw = dw;
  const auto wide_x = widened(x);
  const auto wide_y = widened(y);
  const auto wide_w = widened(w);
  cpu->grouped_gemm({GroupedGemmMode::forward, wide_x, expected_out, wide_w, {}, offsets});
  cpu->grouped_gemm({GroupedGemmMode::dgrad, expected_dx, wide_y, wide_w, {}, offsets});
  cpu->grouped_gemm({GroupedGemmMode::wgrad, wide_x, wide_y, expected_dw, {}, offsets});
  gpu->grouped_gemm({GroupedGemmMode::forward, on(x), on(out), on(w), {}, on(offsets)});
  gpu->grouped_gemm({GroupedGemmMode::dgrad, on(dx), on(y), on(w), {}, on(offsets)});
  gpu->grouped_gemm({GroupedGemmMode::wgrad, on(x), on(y), on(dw), {}, on(offsets)});
  check_close(on, out, expected_out);
  check_close(on, dx, expected_dx);
  on.fetch(dw);
  BOOST_TEST(relative_error(dw, expected_dw) < kElementTolerance<Bf16>);
}

struct AttentionCase {
  int64_t batch, length, heads, kv_heads, width, window;
};
std::ostream& operator<<(std::ostream& out, const AttentionCase& c) {
  return out << "batch " << c.batch << " length " << c.length << " heads " << c.heads << "/"
             << c.kv_heads << " width " << c.width << " window " << c.window;
}
const AttentionCase kAttention[] = {{1, 256, 4, 2, 64, 0},
                                    {2, 384, 4, 1, 128, 0},
                                    {1, 320, 2, 2, 128, 100},
                                    {1, 200, 2, 1, 256, 0}};

BOOST_DATA_TEST_CASE(attention_forward_and_backward, boost::unit_test::data::make(kAttention), c) {
  const int64_t rows = c.batch * c.length;
  const auto q = random_matrix<Bf16>(rows, c.heads * c.width, 1);
  const auto k = random_matrix<Bf16>(rows, c.kv_heads * c.width, 2);
  const auto v = random_matrix<Bf16>(rows, c.kv_heads * c.width, 3);
  const auto dout = random_matrix<Bf16>(rows, c.heads * c.width, 4);
  Matrix<int32_t> positions(c.length, 1);
  std::iota(positions.data().begin(), positions.data().end(), 0);
  const double scale = 1.0 / std::sqrt(static_cast<double>(c.width));
  const auto args = [&](const auto& q_, const auto& k_, const auto& v_, auto& out, auto& lse,
                        const auto& where) {
    return AttentionArgs{where(q_), where(k_), where(v_),  where(out), where(lse), where(positions),
                         c.batch,   c.heads,   c.kv_heads, c.window,   scale};
  };
  const auto host = [](const auto& matrix) { return matrix.tensor(); };
  const auto device = [&](const auto& matrix) { return on(matrix); };
  const auto wide_q = widened(q), wide_k = widened(k), wide_v = widened(v),
             wide_dout = widened(dout);
  Matrix<float> expected(rows, c.heads * c.width), expected_lse(rows, c.heads);
  Matrix<float> dq(rows, c.heads * c.width), dk(rows, c.kv_heads * c.width), dv = dk;
  const AttentionArgs on_cpu = args(wide_q, wide_k, wide_v, expected, expected_lse, host);
  cpu->attention(on_cpu);
  cpu->attention_backward({on_cpu, wide_dout, dq, dk, dv});
  Matrix<Bf16> out(rows, c.heads * c.width);
  Matrix<float> lse(rows, c.heads);
  Matrix<Bf16> gpu_dq(rows, c.heads * c.width), gpu_dk(rows, c.kv_heads * c.width);
  Matrix<Bf16> gpu_dv(rows, c.kv_heads * c.width);
  const AttentionArgs on_gpu = args(q, k, v, out, lse, device);
  gpu->attention(on_gpu);
  gpu->attention_backward({on_gpu, on(dout), on(gpu_dq), on(gpu_dk), on(gpu_dv)});
  check_close(on, out, expected);
  on.fetch(lse);
  BOOST_TEST(relative_error(lse, expected_lse) < 1e-3);
  check_close(on, gpu_dq, dq);
  check_close(on, gpu_dk, dk);
  check_close(on, gpu_dv, dv);
}

BOOST_AUTO_TEST_CASE(memory_that_is_not_there_is_out_of_memory) {
  BOOST_CHECK_THROW(gpu->allocate(int64_t{1} << 50), base::OutOfMemory);
  void* still_works = gpu->allocate(1 << 20);
  gpu->free(still_works);
}

BOOST_AUTO_TEST_CASE(a_device_that_is_not_there_is_named) {
  BOOST_CHECK_EXCEPTION(make_cuda_backend(1000), base::Error, [](const base::Error& error) {
    return std::string(error.what()).find("there is no GPU 1000") != std::string::npos;
  });
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels

// The CUDA backend's dense products on shapes that the library takes, with biases, sums and both
// kinds of output, against the CPU operation; and what goes wrong with memory and devices.
#include <boost/test/unit_test.hpp>

#include "kernels/cuda/cublaslt_gemm.h"
#include "kernels/cuda/scratch.h"
#include "tests/gpu/gpu_fixture.h"

namespace moetune::kernels {
BOOST_FIXTURE_TEST_SUITE(gpu_backend, GpuFixture)

namespace {

constexpr int64_t kM = 320, kN = 192, kK = 256;

/// Whether the library adds the bias itself. The backend would add it with a kernel of its own,
/// and round twice, where it does not; of mixed dtypes, where no layer has a bias, that is told.
void check_epilogue(const GemmArgs& args) {
  if (!GpuFixture::expects_library("cuBLASLt's epilogue", MOETUNE_HAS_CUBLASLT != 0)) return;
  cuda::CublasLtGemm gemm(0);
  const bool has_kernel = gemm.has_kernel(args, gemm.workspace_bytes());
  if (args.a.dtype == args.c.dtype) {
    BOOST_TEST(has_kernel);
  } else {
    BOOST_TEST_MESSAGE("a bias of " << base::name_of(args.c.dtype) << " on a product of "
                                    << base::name_of(args.a.dtype) << " is "
                                    << (has_kernel ? "an epilogue" : "a kernel of its own"));
  }
}

template <typename In, typename Out>
void check_products(GpuFixture& f) {
  for (int bits = 0; bits < 16; ++bits) {
    const bool trans_a = (bits & 1) != 0;
    const bool trans_b = (bits & 2) != 0;
    const bool accumulate = (bits & 4) != 0;
    const bool has_bias = (bits & 8) != 0;
    BOOST_TEST_CONTEXT("ta " << trans_a << " tb " << trans_b << " acc " << accumulate << " bias "
                             << has_bias << ", " << base::name_of(kDTypeOf<In>) << " to "
                             << base::name_of(kDTypeOf<Out>)) {
      OnDevice on;  // knows matrices by their addresses, which come again
      const auto a = random_matrix<In>(trans_a ? kK : kM, trans_a ? kM : kK, 1);
      const auto b = random_matrix<In>(trans_b ? kN : kK, trans_b ? kK : kN, 2);
      // Of the product's size, so that a bias that is left out, or added twice, shows.
      const auto bias = random_matrix<Out>(1, kN, 4, 0, -9.0, 9.0);
      Matrix<Out> c(kM, kN);
      if (accumulate) c = random_matrix<Out>(kM, kN, 3, 0, -9.0, 9.0);
      Matrix<float> expected = widened(c);
      const Matrix<float> wide_bias = widened(bias);
      const Tensor none;
      f.cpu->gemm({widened(a), widened(b), expected, trans_a, trans_b, accumulate,
                   has_bias ? wide_bias.tensor() : none});
      const GemmArgs args{
          on(a), on(b), on(c), trans_a, trans_b, accumulate, has_bias ? on(bias) : none};
      f.gpu->gemm(args);
      on.fetch(c);
      BOOST_TEST(relative_error(widened(c), expected) < kElementTolerance<In>);
      if (has_bias) check_epilogue(args);
    }
  }
  f.check_gemm_library();
}

}  // namespace

BOOST_AUTO_TEST_CASE(dense_gemm_of_f32) { check_products<float, float>(*this); }
BOOST_AUTO_TEST_CASE(dense_gemm_of_bf16) { check_products<Bf16, Bf16>(*this); }
// Gradients of weights are f32 sums of products of bf16.
BOOST_AUTO_TEST_CASE(dense_gemm_of_bf16_to_f32) { check_products<Bf16, float>(*this); }

BOOST_AUTO_TEST_CASE(the_note_tells_libraries_from_plain_kernels) {
  const std::string note =
      "GEMM: cuBLASLt 12, plain 0; grouped GEMM: CUTLASS 3, plain 4 (no; 2 reasons); attention: "
      "cuDNN 0, plain 7 (why)";
  BOOST_TEST(uses_of(note, "GEMM").num_library == 12);
  BOOST_TEST(uses_of(note, "GEMM").num_plain == 0);
  BOOST_TEST(uses_of(note, "grouped GEMM").num_library == 3);
  BOOST_TEST(uses_of(note, "grouped GEMM").num_plain == 4);
  BOOST_TEST(uses_of(note, "attention").num_library == 0);
  BOOST_TEST(uses_of(note, "attention").num_plain == 7);
  BOOST_CHECK_THROW(uses_of(note, "convolution"), base::Error);
}

BOOST_AUTO_TEST_CASE(memory_that_is_not_there_is_out_of_memory) {
  BOOST_CHECK_THROW(gpu->allocate(int64_t{1} << 50), base::OutOfMemory);
  void* still_works = gpu->allocate(1 << 20);
  gpu->free(still_works);
}

// What is booked and not needed would count against the capacity of a trial.
BOOST_AUTO_TEST_CASE(a_workspace_that_grows_is_booked_as_large_as_it_is) {
  constexpr int64_t kAlignment = 256;
  int64_t booked = 0;
  gpu->set_workspace_booking([&](int64_t bytes) { booked += bytes; });
  for (const int64_t cols : {int64_t{64}, int64_t{520}}) {
    OnDevice memory;  // knows matrices by their addresses, which come again
    const auto x = random_matrix<Bf16>(9, cols, 1);
    const auto weight = random_matrix<Bf16>(1, cols, 2);
    Matrix<float> rstd(9, 1), dweight(1, cols);
    rstd.fill_random(3, 0.5, 1.5);
    Matrix<Bf16> dx(9, cols);
    gpu->rms_norm_backward({memory(x), memory(weight), memory(rstd), memory(x), memory(dx),
                            memory(dweight), 1, false});
    const int64_t needed = cuda::rms_norm_backward_scratch_bytes(cols);
    BOOST_TEST(booked == (needed + kAlignment - 1) / kAlignment * kAlignment);
    gpu->synchronize();
  }
  gpu->set_workspace_booking({});
}

BOOST_AUTO_TEST_CASE(a_device_that_is_not_there_is_named) {
  BOOST_CHECK_EXCEPTION(make_cuda_backend(1000), base::Error, [](const base::Error& error) {
    return std::string(error.what()).find("there is no GPU 1000") != std::string::npos;
  });
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels

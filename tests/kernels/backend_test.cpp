// Memory of the CPU backend, and the placeholder of the CUDA backend.
#include <array>
#include <boost/test/unit_test.hpp>
#include <cstdint>

#include "kernels/base/error.h"
#include "tests/kernels/kernel_fixture.h"

namespace moetune::kernels {

BOOST_FIXTURE_TEST_SUITE(backend_memory, BackendFixture)

BOOST_AUTO_TEST_CASE(fresh_memory_is_aligned_and_poisoned) {
  BOOST_TEST(backend->name() == "cpu");
  for (const int64_t bytes : {1, 100, 4096}) {
    void* pointer = backend->allocate(bytes);
    BOOST_TEST(reinterpret_cast<uintptr_t>(pointer) % 256 == 0U);
    for (int64_t i = 0; i < bytes; ++i) {
      BOOST_REQUIRE(static_cast<unsigned char*>(pointer)[i] == 0xFF);
    }
    backend->free(pointer);
  }
}

BOOST_AUTO_TEST_CASE(empty_and_impossible_sizes) {
  void* pointer = backend->allocate(0);
  BOOST_TEST(pointer != nullptr);
  backend->free(pointer);
  backend->free(nullptr);
  BOOST_CHECK_THROW(backend->allocate(-1), base::Error);
}

BOOST_AUTO_TEST_CASE(copies_there_and_back) {
  const std::array<float, 3> from = {1.0F, 2.0F, 3.0F};
  std::array<float, 3> to = {};
  void* pointer = backend->allocate(sizeof from);
  backend->copy_to_device(pointer, from.data(), sizeof from);
  backend->copy_to_host(to.data(), pointer, sizeof to);
  BOOST_TEST(to == from, boost::test_tools::per_element());
  backend->fill_zero(pointer, sizeof from);
  backend->copy_to_host(to.data(), pointer, sizeof to);
  BOOST_TEST(to[1] == 0.0F);
  backend->free(pointer);
}

BOOST_AUTO_TEST_CASE(i32_is_refused_by_arithmetic) {
  const Matrix<int32_t> a(2, 2);
  BOOST_CHECK_THROW(backend->gemm({a, a, a}), base::Error);
}

BOOST_AUTO_TEST_CASE(without_a_gpu_the_cuda_backend_says_why) {
  std::string why_none;
  const bool has_device = !cuda_devices(why_none).empty();
  BOOST_TEST(has_device == why_none.empty());
  if (!has_cuda()) {
    BOOST_TEST((make_cuda_backend(0) == nullptr));
  } else if (!has_device) {
    BOOST_CHECK_EXCEPTION(make_cuda_backend(0), base::Error, [&](const base::Error& error) {
      return std::string(error.what()).find("no GPU to use: " + why_none) != std::string::npos;
    });
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels

// Names of functions without templates, parameters and scopes; other texts stay as they are.
#include "kernels/base/cxx_names.h"

#include <boost/test/unit_test.hpp>
#include <utility>

namespace moetune::base {
BOOST_AUTO_TEST_SUITE(cxx_names)

BOOST_AUTO_TEST_CASE(scopes_and_arguments_are_dropped) {
  for (const auto& [text, name] : {
           std::pair("void moetune::gemm<float>(float*)", "gemm"),
           std::pair("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
                     "ncclDevKernel_AllGather_RING_LL"),
           std::pair("void at::native::vectorized_elementwise_kernel<4, F, Array<char*, 2>>(int)",
                     "vectorized_elementwise_kernel"),
           std::pair("Memcpy DtoD (Pinned -> Device)", "Memcpy DtoD (Pinned -> Device)"),
           std::pair("Memset (Device)", "Memset (Device)"),
           std::pair("fused kernel v2", "fused kernel v2"),
           std::pair("sm90_gemm_bf16", "sm90_gemm_bf16"),
           std::pair("a::b<", "b"),
           std::pair("", ""),
       }) {
    BOOST_TEST(unscoped_name(text) == name);
  }
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::base

// The vendor libraries as far as they go without a card: they are there and say their version, or
// their stubs say so; without the device asked for there is one plain message; what they cannot do
// is told from the arguments alone.
#include <boost/test/unit_test.hpp>
#include <string>

#include "kernels/base/error.h"
#include "kernels/cuda/cublaslt_gemm.h"
#include "kernels/cuda/cudnn_attention.h"
#include "kernels/cuda/cutlass_grouped_gemm.h"
#include "kernels/tensor.h"

namespace moetune::kernels {
BOOST_AUTO_TEST_SUITE(cuda_vendor_libraries)

namespace {

using cuda::CublasLtGemm;
using cuda::CudnnAttention;
using cuda::GroupedGemm;

constexpr int kNoSuchDevice = 9999;  // so that the test is the same on a machine with cards

template <typename Make>
std::string message_of(Make make) {
  try {
    make();
  } catch (const base::Error& error) {
    return error.what();
  }
  return "";
}

alignas(16) char memory[256];

Tensor tensor(DType dtype, int64_t rows, int64_t cols) {
  return Tensor::matrix(memory, dtype, rows, cols);
}

GroupedGemmArgs grouped(GroupedGemmMode mode, DType weights) {
  return {mode, tensor(DType::bf16, 10, 64), tensor(DType::bf16, 10, 32), tensor(weights, 96, 64),
          {},   tensor(DType::i32, 4, 1)};
}

AttentionArgs attention(int64_t width) {
  AttentionArgs args;
  args.batch = 2;
  args.heads = 4;
  args.kv_heads = 2;
  args.q = args.out = tensor(DType::bf16, 16, 4 * width);
  args.k = args.v = tensor(DType::bf16, 16, 2 * width);
  args.lse = tensor(DType::f32, 16, 4);
  return args;
}

std::string refusal(const AttentionArgs& args) {
  const cuda::AttentionSegment whole{0, 8, 0};
  return CudnnAttention::why_unsupported(args, {&whole, 1});
}

}  // namespace

BOOST_AUTO_TEST_CASE(versions_need_no_device) {
  BOOST_TEST(CublasLtGemm::version().empty() != CublasLtGemm::is_available());
  BOOST_TEST(CudnnAttention::version().empty() != CudnnAttention::is_available());
  BOOST_TEST_MESSAGE("cuBLASLt '" << CublasLtGemm::version() << "', cuDNN '"
                                  << CudnnAttention::version() << "'");
}

// Without the compiler's second library every attention would quietly run on the plain kernel.
BOOST_AUTO_TEST_CASE(attention_has_its_compiler) {
  BOOST_TEST(CudnnAttention::can_compile() == CudnnAttention::is_available());
}

BOOST_AUTO_TEST_CASE(no_device_is_one_plain_message) {
  BOOST_TEST(message_of([] { CublasLtGemm gemm(kNoSuchDevice); }) != "");
  BOOST_TEST(message_of([] { GroupedGemm gemm(kNoSuchDevice); }) != "");
  BOOST_TEST(message_of([] { CudnnAttention attention(kNoSuchDevice); }) != "");
}

BOOST_AUTO_TEST_CASE(grouped_gemm_says_what_it_cannot_do) {
  if (!GroupedGemm::is_available()) return;
  const auto reason = [](const GroupedGemmArgs& args) {
    return GroupedGemm::why_unsupported(args);
  };
  using enum GroupedGemmMode;
  BOOST_TEST(reason(grouped(forward, DType::bf16)) == "");
  BOOST_TEST(reason(grouped(dgrad, DType::bf16)) == "");
  BOOST_TEST(reason(grouped(wgrad, DType::f32)) == "");
  BOOST_TEST(reason(grouped(wgrad, DType::bf16)) != "");
  BOOST_TEST(reason(grouped(forward, DType::f32)) != "");
  GroupedGemmArgs listed = grouped(forward, DType::bf16);
  listed.rows = tensor(DType::i32, 10, 1);
  BOOST_TEST(reason(listed).find("gather") != std::string::npos);
  GroupedGemmArgs narrow = grouped(forward, DType::bf16);
  narrow.x.cols = 60;
  BOOST_TEST(reason(narrow).find("60") != std::string::npos);
  GroupedGemmArgs shifted = grouped(forward, DType::bf16);
  shifted.y.data = memory + 2;
  BOOST_TEST(reason(shifted).find("16 bytes") != std::string::npos);
  GroupedGemmArgs odd_stride = grouped(forward, DType::bf16);
  odd_stride.y.ld = 33;
  BOOST_TEST(reason(odd_stride).find("16 bytes") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(attention_says_what_it_cannot_do) {
  if (!CudnnAttention::is_available()) return;
  BOOST_TEST(refusal(attention(64)) == "");
  BOOST_TEST(refusal(attention(128)) == "");
  BOOST_TEST(refusal(attention(256)) == "");
  BOOST_TEST(refusal(attention(12)).find("12 columns") != std::string::npos);
  BOOST_TEST(refusal(attention(264)).find("264 columns") != std::string::npos);
  AttentionArgs wide = attention(64);
  wide.q.dtype = DType::f32;
  BOOST_TEST(refusal(wide).find("bf16") != std::string::npos);
  AttentionArgs odd = attention(64);
  odd.kv_heads = 3;
  BOOST_TEST(refusal(odd).find("4 heads") != std::string::npos);
  AttentionArgs shifted = attention(64);
  shifted.v.ld = 129;
  BOOST_TEST(refusal(shifted).find("16 bytes") != std::string::npos);
  AttentionArgs longer = attention(64);
  longer.q.rows = 32;
  BOOST_TEST(refusal(longer).find("cover") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels

// The sum over several buffers on the device: the CPU operation's bits in f32 and f64, bf16 added
// up in f32 and rounded once.
#include <boost/test/unit_test.hpp>

#include "tests/cuda/cuda_fixture.h"

namespace moetune::kernels {
BOOST_AUTO_TEST_SUITE(cuda_sum)

namespace {

constexpr int64_t kNumels[] = {0, 1, 3, 8, 40, 4099, 70000};

template <typename T>
void check_sum(int64_t numel, int num_sources) {
  std::vector<Matrix<T>> matrices;
  std::vector<Matrix<float>> wide;
  for (int i = 0; i < num_sources; ++i) {
    matrices.push_back(random_matrix<T>(1, numel, static_cast<uint64_t>(i), 0, -100.0, 100.0));
    wide.push_back(widened(matrices.back()));
  }
  Matrix<T> expected(1, numel);
  for (int64_t at = 0; at < numel; ++at) {
    float sum = 0;
    for (const Matrix<float>& m : wide) sum += m(0, at);
    expected(0, at) = static_cast<T>(sum);
  }
  OnDevice on;
  SumArgs args;
  for (const Matrix<T>& m : matrices) args.sources.push_back(on(m).data);
  Matrix<T>& target = matrices[static_cast<size_t>(num_sources / 2)];
  args.target = on(target).data;
  args.numel = numel;
  args.dtype = kDTypeOf<T>;
  cuda::sum(nullptr, args);
  on.fetch(target);
  BOOST_TEST(target.same_bits(expected));
}

}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(adds_in_order_into_one_of_the_sources, T, ElementTypes) {
  for (const int64_t numel : kNumels) {
    for (const int num_sources : {1, 2, 9}) {
      BOOST_TEST_CONTEXT(numel << " elements of " << num_sources) {
        check_sum<T>(numel, num_sources);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(doubles_and_integers) {
  Matrix<double> a(1, 5);
  Matrix<double> b(1, 5);
  a.fill_random(1);
  b.fill_random(2);
  OnDevice on;
  cuda::sum(nullptr, {{on(a).data, on(b).data}, on(a).data, 5, DType::f64});
  const auto before = a;
  on.fetch(a);
  for (int64_t i = 0; i < 5; ++i) BOOST_TEST(a(0, i) == before(0, i) + b(0, i));
  Matrix<int32_t> c(1, 3);
  c.fill(int32_t{1} << 30);
  Matrix<int32_t> d(1, 3);
  d.fill(-5);
  cuda::sum(nullptr, {{on(c).data, on(d).data}, on(d).data, 3, DType::i32});
  on.fetch(d);
  for (int64_t i = 0; i < 3; ++i) BOOST_TEST(d(0, i) == (int32_t{1} << 30) - 5);
}

BOOST_AUTO_TEST_CASE(refuses_more_sources_than_a_launch_can_name) {
  SumArgs args;
  args.sources.assign(SumArgs::kMaxSources + 1, nullptr);
  BOOST_CHECK_THROW(cuda::sum(nullptr, args), base::Error);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels

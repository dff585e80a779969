// The sum over several buffers: order of the additions, targets that are sources, every type.
#include <boost/test/unit_test.hpp>

#include "kernels/base/error.h"
#include "tests/kernels/kernel_fixture.h"

namespace moetune::kernels {
BOOST_FIXTURE_TEST_SUITE(sum, BackendFixture)

namespace {

template <typename T>
void check_sum(Backend& backend, int64_t numel, DType dtype) {
  std::vector<std::vector<T>> data(5, std::vector<T>(static_cast<size_t>(numel)));
  std::vector<T> expected(static_cast<size_t>(numel));
  for (size_t source = 0; source < data.size(); ++source) {
    for (size_t i = 0; i < expected.size(); ++i) {
      // Of sizes so different that another order gives other bits.
      const auto scale = static_cast<double>(source * source * source * 1000 + 1);
      data[source][i] = static_cast<T>(scale * std::sin(static_cast<double>(7 * i + source)));
    }
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    for (const std::vector<T>& source : data) expected[i] += source[i];
  }
  SumArgs args;
  for (const std::vector<T>& source : data) args.sources.push_back(source.data());
  args.target = data[2].data();
  args.numel = numel;
  args.dtype = dtype;
  backend.sum(args);
  BOOST_TEST(data[2] == expected, boost::test_tools::per_element());
}

}  // namespace

BOOST_AUTO_TEST_CASE(adds_in_order_into_one_of_the_sources) {
  for (const int64_t numel : {0, 1, 7, 1024, 5000}) {
    BOOST_TEST_CONTEXT(numel) {
      check_sum<float>(*backend, numel, DType::f32);
      check_sum<double>(*backend, numel, DType::f64);
      check_sum<int32_t>(*backend, numel, DType::i32);
    }
  }
}

BOOST_AUTO_TEST_CASE(refuses_more_sources_than_a_launch_can_name) {
  const float value = 1;
  float target = 0;
  SumArgs args;
  args.sources.assign(SumArgs::kMaxSources + 1, &value);
  args.target = &target;
  args.numel = 1;
  BOOST_CHECK_THROW(backend->sum(args), base::Error);
  args.sources.pop_back();
  backend->sum(args);
  BOOST_TEST(target == static_cast<float>(SumArgs::kMaxSources));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels

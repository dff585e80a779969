// Loops on several threads: all of the work is done once, and failures come back.
#include "kernels/base/parallel_for.h"

#include <boost/test/unit_test.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace moetune::base {
BOOST_AUTO_TEST_SUITE(parallel_loops)

BOOST_AUTO_TEST_CASE(everything_is_done_once) {
  std::vector<int> calls(100);
  parallel_for(calls.size(), [&](size_t i) { ++calls[i]; });
  BOOST_TEST(calls == std::vector<int>(100, 1), boost::test_tools::per_element());
  parallel_for(0, [](size_t) { BOOST_ERROR("there is nothing to do"); });
}

BOOST_AUTO_TEST_CASE(the_first_failure_is_thrown_when_all_is_done) {
  std::vector<int> calls(20);
  const auto work = [&](size_t i) {
    ++calls[i];
    if (i == 7 || i == 13) throw std::runtime_error(std::to_string(i));
  };
  BOOST_CHECK_EXCEPTION(parallel_for(calls.size(), work), std::runtime_error,
                        [](const auto& error) { return std::string(error.what()) == "7"; });
  BOOST_TEST(calls == std::vector<int>(20, 1), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::base

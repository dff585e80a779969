// Work on several threads: all of it is done once, and failures come back.
#include "kernels/base/at_once.h"

#include <boost/test/unit_test.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace moetune::base {
BOOST_AUTO_TEST_SUITE(at_once)

BOOST_AUTO_TEST_CASE(everything_is_done_once) {
  std::vector<int> calls(100);
  for_each_at_once(calls.size(), [&](size_t i) { ++calls[i]; });
  BOOST_TEST(calls == std::vector<int>(100, 1), boost::test_tools::per_element());
  for_each_at_once(0, [](size_t) { BOOST_ERROR("there is nothing to do"); });
}

BOOST_AUTO_TEST_CASE(the_first_failure_is_thrown_when_all_is_done) {
  std::vector<int> calls(20);
  const auto work = [&](size_t i) {
    ++calls[i];
    if (i == 7 || i == 13) throw std::runtime_error(std::to_string(i));
  };
  BOOST_CHECK_EXCEPTION(for_each_at_once(calls.size(), work), std::runtime_error,
                        [](const auto& error) { return std::string(error.what()) == "7"; });
  BOOST_TEST(calls == std::vector<int>(20, 1), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::base

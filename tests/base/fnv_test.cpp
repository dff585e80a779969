// The hash that tells contents apart, by its published test vectors, and the median.
#include "kernels/base/fnv.h"

#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <vector>

#include "kernels/base/median.h"

namespace moetune::base {

BOOST_AUTO_TEST_SUITE(fnv)

// Noll's vectors of FNV-1a, 64 bits.
BOOST_AUTO_TEST_CASE(hashes_are_the_published_ones) {
  BOOST_TEST(fnv_digits("") == "cbf29ce484222325");
  BOOST_TEST(fnv_digits("a") == "af63dc4c8601ec8c");
  BOOST_TEST(fnv_digits("foobar") == "85944171f73967e8");
  BOOST_TEST(fnv_of("bar", fnv_of("foo")) == fnv_of("foobar"));
}

BOOST_AUTO_TEST_CASE(a_median_needs_no_order_and_at_least_one_value) {
  BOOST_TEST(median(std::vector<double>{3, 1, 2}) == 2.0);
  BOOST_TEST(median(std::vector<double>{4, 1, 3, 2}) == 2.5);
  BOOST_TEST(median(std::vector<int64_t>{7}) == 7.0);
  BOOST_TEST(median(std::vector<int64_t>{10, 1}) == 5.5);
  BOOST_CHECK_THROW(median(std::vector<double>()), Error);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::base

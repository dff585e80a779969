// How losses of two runs are compared.
#include "engine/spec/loss_band.h"

#include <boost/test/unit_test.hpp>
#include <vector>

namespace moetune::spec {

BOOST_AUTO_TEST_SUITE(loss_band)

BOOST_AUTO_TEST_CASE(means_of_ten_differences_are_compared) {
  const std::vector<double> a(30, 2.0);
  BOOST_TEST(largest_mean_difference(a, a) == 0.0);
  BOOST_TEST(largest_mean_difference(a, {}) == 0.0);
  std::vector<double> b = a;
  b[20] = 3.0;  // one step alone is a tenth
  BOOST_TEST(largest_mean_difference(a, b) == 0.1, boost::test_tools::tolerance(1e-9));
  b[21] = 1.0;  // and one the other way takes it back
  b[22] = 4.0;
  BOOST_TEST(largest_mean_difference(b, a) == 0.2, boost::test_tools::tolerance(1e-9));
  // The first steps have fewer before them; what only one run has counts for nothing.
  b = std::vector<double>{2.5};
  BOOST_TEST(largest_mean_difference(a, b) == 0.5, boost::test_tools::tolerance(1e-9));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::spec

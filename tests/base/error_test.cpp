// The CHECK macro and the exception types that become exit codes.
#include "kernels/base/error.h"

#include <boost/test/unit_test.hpp>
#include <string>

namespace moetune::base {

BOOST_AUTO_TEST_SUITE(error)

BOOST_AUTO_TEST_CASE(check_names_expression_file_and_values) {
  const int found = 3;
  try {
    MOETUNE_CHECK(found == 4, "found {}", found);
    BOOST_FAIL("did not throw");
  } catch (const Error& e) {
    const std::string what = e.what();
    BOOST_TEST(what.find("found == 4") != std::string::npos);
    BOOST_TEST(what.find("error_test.cpp") != std::string::npos);
    BOOST_TEST(what.find("found 3") != std::string::npos);
  }
  BOOST_CHECK_NO_THROW(MOETUNE_CHECK(found == 3, "never seen"));
}

BOOST_AUTO_TEST_CASE(out_of_memory_says_what_where_and_how_much) {
  const OutOfMemory e("layer 3 experts", "weights", 2048, 1024, 2000, 5);
  const std::string what = e.what();
  BOOST_TEST(what.find("layer 3 experts") != std::string::npos);
  BOOST_TEST(what.find("weights") != std::string::npos);
  BOOST_TEST(what.find("rank 5") != std::string::npos);
  BOOST_TEST(e.requested_bytes == 2048);
}

BOOST_AUTO_TEST_CASE(types_are_told_apart) {
  BOOST_CHECK_THROW(throw UsageError("x"), Error);
  BOOST_CHECK_THROW(throw PeerFailed("x"), Error);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::base

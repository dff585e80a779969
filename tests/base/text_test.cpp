// Blanks around a text, and the last line of what a program printed.
#include "kernels/base/text.h"

#include <boost/test/unit_test.hpp>

namespace moetune::base {

BOOST_AUTO_TEST_SUITE(text)

BOOST_AUTO_TEST_CASE(blanks_are_trimmed_at_both_ends) {
  BOOST_TEST(trimmed(" \t a b\r\n") == "a b");
  BOOST_TEST(trimmed("a") == "a");
  BOOST_TEST(trimmed(" \v\f ") == "");
  BOOST_TEST(trimmed("_a b_", "_") == "a b");
}

BOOST_AUTO_TEST_CASE(the_last_line_has_more_than_blanks) {
  BOOST_TEST(last_line("a\nb \n \n\t\n") == "b");
  BOOST_TEST(last_line("10 %\r20 %\r42.5") == "42.5");
  BOOST_TEST(last_line("\n\n") == "");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::base

// Words as a shell reads them back.
#include "kernels/base/shell_quotes.h"

#include <boost/test/unit_test.hpp>

namespace moetune::base {

BOOST_AUTO_TEST_SUITE(shell_quotes)

BOOST_AUTO_TEST_CASE(words_are_quoted_where_they_have_to_be) {
  BOOST_TEST(shell_literal("a-b/c=1,2") == "a-b/c=1,2");
  BOOST_TEST(shell_literal("") == "''");
  BOOST_TEST(shell_literal("a b") == "'a b'");
  BOOST_TEST(shell_literal("it's") == "'it'\\''s'");
  // A variable is text like any other.
  BOOST_TEST(shell_literal("$A") == "'$A'");
  BOOST_TEST(in_single_quotes("a") == "'a'");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::base

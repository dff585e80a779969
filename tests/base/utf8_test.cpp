// Characters of UTF-8: where a text stops being one, and which are control characters.
#include "kernels/base/utf8.h"

#include <boost/test/unit_test.hpp>

namespace moetune::base {

BOOST_AUTO_TEST_SUITE(utf8)

BOOST_AUTO_TEST_CASE(characters_have_a_length) {
  BOOST_TEST(utf8_length("a") == 1U);
  BOOST_TEST(utf8_length("\xC3\xA9z") == 2U);
  BOOST_TEST(utf8_length("\xE2\x82\xAC") == 3U);
  BOOST_TEST(utf8_length("\xF0\x9F\x98\x80") == 4U);
  // Cut off, overlong, a surrogate, beyond the last one, in the middle of one.
  for (const char* bytes : {"\xE2\x82", "\xC0\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\x80"}) {
    BOOST_TEST(utf8_length(bytes) == 0U);
  }
  BOOST_TEST(first_not_utf8("") == 0U);
  BOOST_TEST(first_not_utf8("a\xC3\xA9") == 3U);
  BOOST_TEST(first_not_utf8("a\xC3\xA9\xFF") == 3U);
}

BOOST_AUTO_TEST_CASE(control_characters_become_blanks) {
  BOOST_TEST(without_controls("a\n\x1B[31m\x7F") == "a  [31m ");
  // One of the C1 set, and a blank that does not break, which is none.
  BOOST_TEST(without_controls("\xC2\x9B\xC2\xA0") == " \xC2\xA0");
  BOOST_TEST(without_controls("\xC3\xA9\xFF") == "\xC3\xA9\xFF");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::base

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
  BOOST_TEST(one_line("a\n\x1B[31m\x7F") == "a  [31m ");
  // One of the C1 set, and a blank that does not break, which is none.
  BOOST_TEST(one_line("\xC2\x9B\xC2\xA0") == " \xC2\xA0");
  BOOST_TEST(one_line("\xC3\xA9\xFF") == "\xC3\xA9\xFF");
}

BOOST_AUTO_TEST_CASE(text_is_not_cut_within_a_character) {
  BOOST_TEST(cut_text("abc", 5) == "abc");
  BOOST_TEST(cut_text("abc", 2) == "ab");
  BOOST_TEST(cut_text("a\xc3\xa4z", 2) == "a");
  BOOST_TEST(cut_text("a\xc3\xa4z", 3) == "a\xc3\xa4");
}

BOOST_AUTO_TEST_CASE(shortened_text_says_so) {
  BOOST_TEST(shortened("abc", 3) == "abc");
  BOOST_TEST(shortened("abcd", 3) == "abc...");
  BOOST_TEST(shortened("a\xc3\xa4z", 2, "!") == "a!");
}

BOOST_AUTO_TEST_CASE(foreign_bytes_become_valid_text) {
  BOOST_TEST(valid_utf8("a\xc3\xa9\xff\xe2\x82") ==
             "a\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
  // Overlong, a surrogate, past the last character.
  BOOST_TEST(valid_utf8("\xc0\xaf").find('\xc0') == std::string::npos);
  BOOST_TEST(valid_utf8("\xed\xa0\x80").find('\xed') == std::string::npos);
  BOOST_TEST(valid_utf8("\xf4\x90\x80\x80").find('\xf4') == std::string::npos);
  BOOST_TEST(valid_utf8("\x1b[31m<b>") == "\x1b[31m<b>");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::base

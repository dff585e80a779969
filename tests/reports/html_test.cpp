// Escaping: nothing that a text holds becomes markup, ends a script or reorders its surroundings.
#include "reports/html.h"

#include <array>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "tests/reports/fixture_helper.h"

namespace moetune::reports {
BOOST_AUTO_TEST_SUITE(html)

namespace {

struct Sample {
  std::string text;
  std::string expected;
};
std::ostream& operator<<(std::ostream& out, const Sample& sample) { return out << sample.expected; }

const std::array kSamples = {
    Sample{"plain · ü", "plain · ü"},
    Sample{"<b>&\"'", "&lt;b&gt;&amp;&quot;&#39;"},
    Sample{std::string("a\0b\x1b\x7f", 5),
           "a\xef\xbf\xbd"
           "b\xef\xbf\xbd\xef\xbf\xbd"},
    Sample{"two\nlines\tand a tab", "two\nlines\tand a tab"},
    Sample{"right \xe2\x80\xae left", "right \xef\xbf\xbd left"},
    Sample{"\xe2\x81\xa6isolate", "\xef\xbf\xbdisolate"},
    Sample{"\xe2\x80", "\xe2\x80"},
    Sample{"\xe2\x80\x8fmark", "\xef\xbf\xbdmark"},
    Sample{"second kind \xc2\x9b \xc2\xa0", "second kind \xef\xbf\xbd \xc2\xa0"},
    Sample{"cannot open /home/me/<a>", "cannot open me&lt;a&gt;"},
    Sample{"", ""},
};

BOOST_DATA_TEST_CASE(texts_are_escaped, boost::unit_test::data::make(kSamples), sample) {
  BOOST_TEST(escape(sample.text) == sample.expected);
}

BOOST_AUTO_TEST_CASE(empty_texts_show_as_a_dash) {
  BOOST_TEST(escape_or_dash("") == "–");
  BOOST_TEST(escape_or_dash("<") == "&lt;");
}

BOOST_AUTO_TEST_CASE(identifiers_hold_plain_characters_only) {
  BOOST_TEST(identifier("moe_act,norm \"x\"") == "moe_act-norm--x-");
}

BOOST_AUTO_TEST_CASE(json_cannot_end_its_element_and_reads_back) {
  const nlohmann::json data = {{"text", tests::kHostileText}, {tests::kHostileText, "\xff\xfe"}};
  const std::string element = json_element("data-x", data);
  const size_t start = element.find('>') + 1;
  const size_t end = element.rfind("</script>");
  const std::string body = element.substr(start, end - start);
  BOOST_TEST(body.find('<') == std::string::npos);
  BOOST_TEST(body.find('>') == std::string::npos);
  BOOST_TEST(body.find('&') == std::string::npos);
  for (const char c : body) {
    BOOST_REQUIRE((c >= 0x20 && c < 0x7f));
  }
  BOOST_TEST(nlohmann::json::parse(body)["text"] == tests::kHostileText);
}

BOOST_AUTO_TEST_CASE(json_holds_no_folders) {
  const std::string element =
      json_element("data-x", {{"list", {"first\n/home/me/a.txt", 7}}, {"ratio", "a/b"}});
  BOOST_TEST(element.find(R"({"list":["first\na.txt",7],"ratio":"a/b"})") != std::string::npos);
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::reports

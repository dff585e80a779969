// JSON that anybody may have written: what is read, what is refused, and that both end in time.
#include "profiler/store/untrusted_json.h"

#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <string>

namespace moetune::store {
namespace {

std::string repeated(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

std::string nested(int depth) { return repeated("[", depth) + repeated("]", depth); }

bool is_read(const std::string& text, const JsonLimits& limits = {}) {
  return !parse_untrusted(text, limits).is_discarded();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(untrusted_json)

BOOST_AUTO_TEST_CASE(values_are_read) {
  const nlohmann::json document = parse_untrusted(R"({"a": [1, 2.5, "x", null, true]})");
  BOOST_TEST(document.at("a").size() == 5u);
  BOOST_TEST(document.at("a").at(2) == "x");
}

BOOST_AUTO_TEST_CASE(what_is_no_json_is_discarded) {
  for (const char* text : {"", "{", "[1,]", "{\"a\": NaN}", "{} x", "\xff", "1e999", "// x\n1"}) {
    BOOST_TEST(!is_read(text), text);
  }
  BOOST_TEST(is_read("// x\n1", {.has_comments = true}));
}

// Copies and prints of a document recurse: deep ones would overflow the stack.
BOOST_AUTO_TEST_CASE(deep_documents_are_discarded) {
  BOOST_TEST(is_read(nested(64)));
  BOOST_TEST(is_read(nested(65)));
  BOOST_TEST(!is_read(nested(66)));
  BOOST_TEST(!is_read(nested(1'000'000)));
  BOOST_TEST(!is_read(repeated("{\"a\":", 1'000'000)));
  BOOST_TEST(!is_read("[[1]]", {.depth = 1}));
  BOOST_TEST(is_read("[[]]", {.depth = 1}));
}

BOOST_AUTO_TEST_CASE(large_documents_are_discarded) {
  BOOST_TEST(is_read("[1,2,3]", {.values = 4}));
  BOOST_TEST(!is_read("[1,2,3]", {.values = 3}));
  BOOST_TEST(!is_read("{\"a\":1}", {.values = 2}));
  BOOST_TEST(is_read("[1,2,3]", {.bytes = 7}));
  BOOST_TEST(!is_read("[1,2,3]", {.bytes = 6}));
}

// With a time that grows with the square of the length, this takes minutes.
BOOST_AUTO_TEST_CASE(many_small_objects_are_read_in_time, *boost::unit_test::timeout(60)) {
  BOOST_TEST(is_read("[{}" + repeated(",{}", 500'000) + "]"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::store

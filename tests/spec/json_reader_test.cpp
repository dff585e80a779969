// Messages and limits of checked JSON access.
#include "engine/spec/json_reader.h"

#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <limits>

#include "engine/spec/problems.h"
#include "kernels/base/utf8.h"
#include "tests/spec/spec_samples.h"

namespace moetune::spec {

using samples::contains;
using samples::json;
using samples::usage_error;

BOOST_AUTO_TEST_SUITE(json_reader)

BOOST_AUTO_TEST_CASE(message_names_file_key_value_and_expectation) {
  const json document = {{"a", {{"b", "x"}}}};
  JsonReader reader(document, "file.json");
  JsonReader inner = reader.object("a");
  BOOST_TEST(usage_error([&] { inner.integer("b", 1, 9); }) ==
             "file.json: key 'a.b' is \"x\", expected an integer from 1 to 9");
  BOOST_TEST(usage_error([&] { inner.integer("c", 1, 9); }) ==
             "file.json: key 'a.c' is missing, expected an integer from 1 to 9");
  BOOST_TEST(usage_error([&] { JsonReader(json::array(), "file.json"); }) ==
             "file.json: found an array of 0 values, expected a JSON object");
}

BOOST_AUTO_TEST_CASE(mistakes_of_a_file_are_told_in_the_order_of_its_lines) {
  Problems problems;
  for (const char* message :
       {"f: line 10: ten", "no line", "g: line 2: other", "f: hardware: line 9: nine",
        "f: line 9: again", "g: line 1, column 3: syntax"}) {
    problems.add(message);
  }
  BOOST_TEST(usage_error([&] { problems.throw_if_any(); }) ==
             "6 mistakes:\n"
             "  f: hardware: line 9: nine\n"
             "  no line\n"
             "  g: line 1, column 3: syntax\n"
             "  f: line 9: again\n"
             "  f: line 10: ten\n"
             "  g: line 2: other");
}

BOOST_AUTO_TEST_CASE(integers_are_exact_and_in_range) {
  const json document = parse_json(
      R"({"ok": 4, "whole": 4.0, "half": 4.5, "huge": 18446744073709551615, "far": 1e300,
          "low": -1, "text": "4", "flag": true, "null": null})",
      "f");
  JsonReader reader(document, "f");
  BOOST_TEST(reader.integer("ok", 0, 9) == 4);
  BOOST_TEST(reader.integer("whole", 0, 9) == 4);
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  for (const char* key : {"half", "huge", "far", "low", "text", "flag", "null"}) {
    BOOST_TEST_CONTEXT(key) {
      BOOST_TEST(contains(usage_error([&] { reader.integer(key, 0, kMax); }), key));
    }
  }
  BOOST_TEST(reader.unsigned_integer("huge") == std::numeric_limits<uint64_t>::max());
  BOOST_TEST(usage_error([&] { reader.unsigned_integer("low"); }) != "");
}

BOOST_AUTO_TEST_CASE(numbers_refuse_nan_infinity_and_other_types) {
  const json document = {{"nan", std::numeric_limits<double>::quiet_NaN()},
                         {"inf", std::numeric_limits<double>::infinity()},
                         {"flag", true},
                         {"list", {1.0, "x"}}};
  JsonReader reader(document, "f");
  for (const char* key : {"nan", "inf", "flag", "list"}) {
    BOOST_TEST(usage_error([&] { reader.number(key, -1e300, 1e300); }) != "");
  }
  BOOST_TEST(contains(usage_error([&] { reader.numbers("list", 0, 9); }), "'list[1]' is \"x\""));
  BOOST_TEST(contains(usage_error([&] { reader.integers("list", 2, 9); }), "'list[0]'"));
}

BOOST_AUTO_TEST_CASE(null_is_absent_only_when_asked) {
  const json document = {{"a", nullptr}};
  JsonReader lenient(document, "f", "", NullIs::absent);
  BOOST_TEST(lenient.integer_or("a", 7, 0, 9) == 7);
  BOOST_TEST(lenient.is_null("a"));
  JsonReader strict(document, "f");
  BOOST_TEST(contains(usage_error([&] { strict.integer_or("a", 7, 0, 9); }), "is null"));
}

BOOST_AUTO_TEST_CASE(unknown_keys_name_the_nearest_known_one) {
  const json document = {{"num_stpes", 3}};
  JsonReader reader(document, "f");
  reader.integer_or("num_steps", 1, 0, 9);
  BOOST_TEST(usage_error([&] { reader.refuse_unknown_keys(); }) ==
             "f: unknown key 'num_stpes' with value 3; did you mean 'num_steps'?");
  const json far = {{"zzz", 3}};
  JsonReader other(far, "f");
  other.integer_or("num_steps", 1, 0, 9);
  BOOST_TEST(contains(usage_error([&] { other.refuse_unknown_keys(); }), "known keys: num_steps"));
}

/// A document that is not valid, and the whole message.
struct Broken {
  std::string text;
  const char* message;
};
std::ostream& operator<<(std::ostream& out, const Broken& broken) { return out << broken.message; }

const std::vector<Broken> kBroken = {
    {"", "f: is empty, expected a JSON document"},
    {" \t\r\n", "f: is empty, expected a JSON document"},
    {"{\"a\": 1\n", "f: line 2, column 1: not valid JSON (found the end of the file)"},
    {"{\"a\": \"open", "f: line 1, column 12: not valid JSON (found the end of the file)"},
    {"{\"a\": 1,\n \"b\": tru}", "f: line 2, column 7: not valid JSON (found 'tru}')"},
    {"{\"a\": yes}", "f: line 1, column 7: not valid JSON (found 'yes')"},
    {"{\"a\": 1,\n}", "f: line 2, column 1: not valid JSON (found '}' behind a comma)"},
    {"{\"a\": [1, ]}", "f: line 1, column 11: not valid JSON (found ']' behind a comma)"},
    {"{\"a\": }", "f: line 1, column 7: not valid JSON (found '}')"},
    {"{\"a\": 1} x", "f: line 1, column 10: not valid JSON (found 'x')"},
    {"{\"a\" \"b\"}", "f: line 1, column 6: not valid JSON (found '\"b\"')"},
    {"{\"a\": -1e999}", "f: line 1, column 7: not valid JSON (found '-1e999', a number too large)"},
    {"{\"a\": \"x\ny\"}", "f: line 1, column 9: not valid JSON (found byte 0x0A)"},
    {"{\"\xc3\xa9\": \xe2\x80\x9cx}", "f: line 1, column 7: not valid JSON (found byte 0xE2)"},
    {std::string("{}\n\0{}", 6), "f: line 2, column 1: not valid JSON (found a NUL byte)"},
    {R"({"a": {"b": ["x\u0000y"]}})", "f: key 'a.b': a text holds a NUL character (\\u0000)"},
    {R"({"a": 1, "b": {"a": 1}, "a": 2})", "f: key 'a' is there twice in the same object"},
    {R"({"a": [{"b": 1}, {"b": 1, "\u0062": 1}]})",
     "f: key 'a.b' is there twice in the same object"},
};

BOOST_DATA_TEST_CASE(broken_documents_say_where, boost::unit_test::data::make(kBroken), broken) {
  BOOST_TEST(usage_error([&] { parse_json(broken.text, "f"); }) == broken.message);
}

BOOST_AUTO_TEST_CASE(all_keys_that_are_there_twice_are_told_with_their_lines) {
  BOOST_TEST(usage_error([] {
               parse_json("{\n \"a\": 1,\n \"b\": {\"c\": 1,\n  \"c\": 2},\n \"a\": 2,\n}", "f");
             }) ==
             "3 mistakes:\n"
             "  f: line 4: key 'b.c' is there twice in the same object, first in line 3\n"
             "  f: line 5: key 'a' is there twice in the same object, first in line 2\n"
             "  f: line 6, column 1: not valid JSON (found '}' behind a comma)");
  // A hostile document is not read to its end.
  std::string many = "{";
  for (int i = 0; i < 100'000; ++i) many += fmt::format("\"k{}\": 1,\n\"k{}\": 1,", i, i);
  BOOST_TEST(usage_error([&] { parse_json(many, "f"); }).size() < 10'000U);
}

BOOST_AUTO_TEST_CASE(every_prefix_of_a_document_ends_in_a_message_of_our_own) {
  const std::string text = R"({"a": [1, -2.5e3, "x\u00e9\n"], "b": {"c": null, "d": true}})";
  for (size_t size = 1; size < text.size(); ++size) {
    const std::string message = usage_error([&] { parse_json(text.substr(0, size), "f"); });
    BOOST_TEST(message.starts_with("f: line 1, column "), message);
    BOOST_TEST(!contains(message, "json.exception"), message);
  }
  BOOST_TEST(parse_json(text, "f").size() == 2U);
}

BOOST_AUTO_TEST_CASE(hostile_documents_end_in_a_message) {
  BOOST_TEST(contains(usage_error([] { parse_json("{\"a\": ", "f.json"); }),
                      "f.json: line 1, column 7: not valid"));
  BOOST_TEST(contains(usage_error([] { parse_json("{\"a\": 1e999}", "f.json"); }), "f.json"));
  BOOST_TEST(contains(usage_error([] { parse_json("\"\xff\xfe\"", "f.json"); }), "f.json"));
  BOOST_TEST(
      contains(usage_error([] { parse_json("{\n \"a\": 1,\n}", "f.json"); }), "line 3, column 1"));
  BOOST_TEST(contains(usage_error([] { parse_json(" \n", "f.json"); }), "is empty"));
  BOOST_TEST(contains(usage_error([] { parse_json(R"({"b": {"a": 1, "a": 2}})", "f.json"); }),
                      "'b.a' is there twice"));
  BOOST_TEST(parse_json(R"([{"a": 1}, {"a": 2}])", "f.json").size() == 2u);
  const std::string deep(1'000'000, '[');
  BOOST_TEST(usage_error([&] { parse_json(deep, "f.json"); }) != "");
  const std::string closed = std::string(100'000, '[') + std::string(100'000, ']');
  BOOST_TEST(contains(usage_error([&] { parse_json(closed, "f.json"); }), "nested deeper"));
  // Long and undecodable values are shortened and replaced, never dumped whole.
  const json document = {{"a", std::string(10'000, 'x')}, {"b", "\xff"}};
  JsonReader reader(document, "f");
  BOOST_TEST(usage_error([&] { reader.boolean("a"); }).size() < 200u);
  BOOST_TEST(usage_error([&] { reader.boolean("b"); }) != "");
  // The limit of 80 bytes lies between the two bytes of the last character, behind a quotation
  // mark.
  const json wide = {{"a", std::string(78, 'x') + "\xc3\xa9"}};
  JsonReader wide_reader(wide, "f");
  const std::string message = usage_error([&] { wide_reader.boolean("a"); });
  BOOST_TEST(contains(message, "x..."));
  BOOST_TEST(base::first_not_utf8(message) == message.size());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::spec

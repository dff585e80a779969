// The committed inputs of all fuzzers (tests/fuzz/corpus), once each: samples, and what has broken
// a parser before.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz_input.h"

namespace moetune::tests {
BOOST_AUTO_TEST_SUITE(replay_test)

namespace {

struct ParserRow {
  const char* name;
  FuzzDriver driver;
};
#define MOETUNE_PARSER_ROW(name) {#name, fuzz_##name},
constexpr ParserRow kParsers[] = {MOETUNE_FUZZ_PARSERS(MOETUNE_PARSER_ROW)};
#undef MOETUNE_PARSER_ROW

const std::filesystem::path kCorpus = std::string(MOETUNE_SOURCE_DIR) + "/tests/fuzz/corpus";

std::vector<std::string> inputs_of(const char* parser) {
  std::vector<std::string> inputs;
  for (const auto& entry : std::filesystem::directory_iterator(kCorpus / parser)) {
    inputs.push_back(bytes_of(entry.path()));
  }
  return inputs;
}

}  // namespace

BOOST_AUTO_TEST_CASE(no_input_of_the_corpus_is_anything_but_read_or_refused) {
  for (const ParserRow& parser : kParsers) {
    BOOST_TEST_CONTEXT(parser.name) {
      const std::vector<std::string> inputs = inputs_of(parser.name);
      BOOST_TEST(!inputs.empty());
      for (const std::string& input : inputs) {
        BOOST_CHECK_NO_THROW(run_driver(parser.driver, input));
        // Cut, as by a full disk.
        BOOST_CHECK_NO_THROW(run_driver(parser.driver, input.substr(0, input.size() / 2)));
      }
      BOOST_CHECK_NO_THROW(run_driver(parser.driver, ""));
    }
  }
}

// Otherwise a fuzzer would only see how inputs are refused.
BOOST_AUTO_TEST_CASE(every_parser_has_an_input_that_it_reads) {
  for (const ParserRow& parser : kParsers) {
    int num_read = 0;
    std::string last_refusal;
    for (const std::string& input : inputs_of(parser.name)) {
      try {
        parser.driver(input);
        ++num_read;
      } catch (const std::exception& error) {
        last_refusal = error.what();
      }
    }
    BOOST_TEST(num_read > 0, parser.name << " refuses all, the last one: " << last_refusal);
  }
}

BOOST_AUTO_TEST_CASE(every_folder_of_the_corpus_has_a_parser) {
  for (const auto& entry : std::filesystem::directory_iterator(kCorpus)) {
    const std::string name = entry.path().filename();
    BOOST_TEST(std::ranges::any_of(kParsers, [&](const auto& row) { return row.name == name; }),
               name << " is no parser");
  }
}

// A patch is read as it is documented, so that inputs of databases stay what they are.
BOOST_AUTO_TEST_CASE(patches_change_what_they_say) {
  BOOST_TEST(patched("abcdefgh", std::string("\2\0\0\2XY", 6)) == "abXYefgh");
  BOOST_TEST(patched("abcdefgh", std::string("\2\0\0\0\0", 5)) == "ab");
  BOOST_TEST(patched("abcdefgh", std::string("\11\0\0\1Z\7\0\0\2HI", 11)) == "aZcdefgH");
  BOOST_TEST(patched("abcdefgh", "SQLite format 3 of my own") == "SQLite format 3 of my own");
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::tests

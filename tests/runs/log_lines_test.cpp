// Lines as a terminal or a broken file leaves them, and who wrote them.
#include "sweeps/runs/log_lines.h"

#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <ostream>
#include <random>
#include <sstream>
#include <vector>

#include "sweeps/runs/anchors.h"
#include "sweeps/runs/line_origin.h"
#include "sweeps/runs/text_scan.h"

namespace moetune::sweeps {

BOOST_AUTO_TEST_SUITE(lines_of_logs)

namespace {

std::vector<std::string> lines_in(const std::string& text) {
  std::istringstream in(text);
  LogLines lines(in);
  std::vector<std::string> result;
  LogLine line;
  while (lines.next(line)) {
    result.push_back(std::to_string(line.number) + ":" + std::string(line.text));
  }
  return result;
}

struct Row {
  const char* name;
  std::string text;
  std::vector<std::string> lines;
};
std::ostream& operator<<(std::ostream& out, const Row& row) { return out << row.name; }

const Row kRows[] = {
    {"plain", "a\nb\n", {"1:a", "2:b"}},
    {"no last newline", "a\nb", {"1:a", "2:b"}},
    {"empty lines", "\n\na", {"1:", "2:", "3:a"}},
    {"windows", "a\r\nb\r\n", {"1:a", "2:b"}},
    {"progress bar", "10%\r20%\rdone\nnext\n", {"1:10%", "1:20%", "1:done", "2:next"}},
    {"colours", "\x1b[31mstep: 1\x1b[0m \x1b[38;2;180;60;0mloss\n", {"1:step: 1 loss"}},
    {"title of a window", "\x1b]0;title\x07text\x1b]8;;x\x1b\\y\n", {"1:texty"}},
    {"an escape that the end cuts", "a\x1b[3", {"1:a"}},
    {"NULs", std::string("a\0b\0\n", 5), {"1:ab"}},
    {"a number that the end cuts", "tps: 4,32", {"1:tps: "}},
    {"a word at the end", "Training done", {"1:Training done"}},
    {"nothing", "", {}},
};

}  // namespace

BOOST_DATA_TEST_CASE(lines_are_clean, boost::unit_test::data::make(kRows)) {
  BOOST_TEST(lines_in(sample.text) == sample.lines, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(lines_of_megabytes_come_in_pieces) {
  const std::string text = std::string(5'000'000, 'x') + "\nafter\n" + std::string(70'000, 'y');
  std::istringstream in(text);
  LogLines lines(in);
  LogLine line;
  size_t total = 0;
  std::string last_short;
  while (lines.next(line)) {
    BOOST_REQUIRE(line.text.size() <= LogLines::kMostLineBytes);
    total += line.text.size();
    if (line.text.size() == 5) last_short = line.text;
  }
  BOOST_TEST(total == text.size() - 2);
  BOOST_TEST(last_short == "after");
  BOOST_TEST(lines.num_cut_lines() == 2);
  BOOST_TEST(lines.num_bytes() == static_cast<int64_t>(text.size()));
}

// Blocks end anywhere: what is read does not depend on where.
BOOST_AUTO_TEST_CASE(lines_over_the_end_of_a_block) {
  std::string text;
  std::vector<std::string> expected;
  for (int i = 0; text.size() < 3'000'000; ++i) {
    const std::string line(static_cast<size_t>(i * 7919 % 50'000), static_cast<char>('a' + i % 26));
    text += line + "\n";
    expected.push_back(std::to_string(i + 1) + ":" + line);
  }
  BOOST_TEST((lines_in(text) == expected));
}

namespace {

struct Prefix {
  const char* line;
  const char* text;
  int rank;
  int local_rank;
  int task;
};
std::ostream& operator<<(std::ostream& out, const Prefix& row) { return out << row.line; }

const Prefix kPrefixes[] = {
    {"[rank3]:text", "text", 3, -1, -1},
    {"[default0]:text", "text", -1, 0, -1},
    {"[default0]:[rank8]: text", " text", 8, 0, -1},
    {"12: text", "text", -1, -1, 12},
    {"  3: [rank3]:text", "text", 3, -1, 3},
    {"[1,7]<stdout>:text", "text", -1, -1, 7},
    {"2026-03-04T05:06:07.123456789Z stdout F [rank1]:text", "text", 1, -1, -1},
    {"05:06:07.351 [rank1]:text", "text", 1, -1, -1},
    {"2026-03-04 05:06:07 [rank1]:text", "text", 1, -1, -1},
    {"2026-03-04 05:06:07,089 - root - INFO - x", "2026-03-04 05:06:07,089 - root - INFO - x", -1,
     -1, -1},
    {"05:06:0", "05:06:0", -1, -1, -1},
    {"2026-03-04 05:06:07", "2026-03-04 05:06:07", -1, -1, -1},
    {"[20260304 05:06:07][rank-7/8][INFO]     [------------training.py:12] : text", "text", 7, -1,
     -1},
    {"[20260304 05:06:07][me/team][pre_trainer][ip-10.0.0.1][rank-2/16][DEBUG]    [---a.py:1] : x",
     "x", 2, -1, -1},
    {"(PrimusMaster  pid=42) [20260304 05:06:07][node-0/1][INFO]     [---a.py:1] : x", "x", -1, -1,
     -1},
    {"[titan] 2026-03-04 05:06:07,089 - root - INFO - x",
     "[titan] 2026-03-04 05:06:07,089 - root - INFO - x", -1, -1, -1},
    {" [2026-03-04 05:06:07.000800] iteration 1", " [2026-03-04 05:06:07.000800] iteration 1", -1,
     -1, -1},
    {"[20260304 05:06:07] glued[20260304 05:06:08][rank-2/8][INFO]     [---a.py:1] : x",
     "[20260304 05:06:07] glued[20260304 05:06:08][rank-2/8][INFO]     [---a.py:1] : x", -1, -1,
     -1},
    {"[rank999999999999]:x", "[rank999999999999]:x", -1, -1, -1},
    {"[rank]:x", "[rank]:x", -1, -1, -1},
    {"3:4", "3:4", -1, -1, -1},
    {"", "", -1, -1, -1},
};

}  // namespace

BOOST_DATA_TEST_CASE(prefixes_of_launchers, boost::unit_test::data::make(kPrefixes)) {
  LineOrigin origin;
  BOOST_TEST(without_prefixes(sample.line, origin) == sample.text);
  BOOST_TEST(origin.rank == sample.rank);
  BOOST_TEST(origin.local_rank == sample.local_rank);
  BOOST_TEST(origin.task == sample.task);
}

BOOST_AUTO_TEST_CASE(prefixes_within_a_line) {
  const std::string line =
      "text [rank] [rank3]:[rank4]: a[default1]: b [20260304 05:06:07][rank-7/8]"
      "[INFO]     [-a.py:1] : c [rank9] [rank:";
  std::vector<std::string> found;
  for (GluedPrefix next = next_glued_prefix(line, 0); next.at != line.npos;
       next = next_glued_prefix(line, next.end)) {
    found.push_back(std::to_string(next.origin.likely_rank()) + line.substr(next.end, 2));
  }
  BOOST_TEST(found == (std::vector<std::string>{"4 a", "1 b", "7c "}),
             boost::test_tools::per_element());
  BOOST_TEST(next_glued_prefix("[rank3]: a", 0).at == 0U);
  BOOST_TEST(next_glued_prefix("", 0).at == std::string_view::npos);
}

// The automaton against a search for each text by itself.
BOOST_AUTO_TEST_CASE(anchors_are_all_found) {
  std::mt19937_64 random(7);
  const auto word = [&](size_t most) {
    std::string text(1 + random() % most, 'a');
    for (char& c : text) c = static_cast<char>('a' + random() % 3);
    return text;
  };
  for (int round = 0; round < 200; ++round) {
    std::vector<std::string> words;
    for (size_t i = 0; i < 1 + random() % 12; ++i) words.push_back(word(5));
    const std::vector<std::string_view> texts(words.begin(), words.end());
    const Anchors anchors(texts);
    const std::string line = word(60) + "\xff" + word(20);
    std::vector<Anchors::Hit> hits;
    anchors.find(line, hits);
    size_t expected = 0;
    for (size_t i = 0; i < words.size(); ++i) {
      for (size_t at = line.find(words[i]); at != std::string::npos;
           at = line.find(words[i], at + 1)) {
        ++expected;
        const bool is_there = std::ranges::any_of(
            hits, [&](const Anchors::Hit& hit) { return hit.anchor == i && hit.at == at; });
        BOOST_TEST(is_there, words[i] << " in " << line);
      }
    }
    BOOST_TEST(hits.size() == expected);
  }
}

namespace {

struct Number {
  const char* text;
  double value;
};
std::ostream& operator<<(std::ostream& out, const Number& row) { return out << row.text; }
const Number kNumbers[] = {{" 4,321 ", 4321},   {"1,234,567", 1234567},   {"12,34", 12},
                           {"2.0E-05 |", 2e-5}, {"61.25GiB(87%)", 61.25}, {"-1.00000", -1},
                           {"+3", 3},           {"812.4/815.0", 812.4},   {"40.98%", 40.98},
                           {"1e5x", 1e5}};
const char* const kNoNumbers[] = {"", " ", "x", "info", "nano", "-", "1e99999", "|", ","};

struct Time {
  const char* text;
  double seconds;  ///< since the first of March 2026
};
std::ostream& operator<<(std::ostream& out, const Time& row) { return out << row.text; }
constexpr double kMarch = 1772323200;
const Time kTimes[] = {
    {" [2026-03-04 05:06:07.500000] iteration", 3 * 86400 + 18367.5},
    {"[titan] 2026-03-04 05:06:07,089 - root", 3 * 86400 + 18367.089},
    {"CANCELLED AT 2026-03-04T05:06:07 DUE", 3 * 86400 + 18367},
    {"  time      : 2026-03-04_05:06:07", 3 * 86400 + 18367},
    {"[20260304 05:06:07][rank-1/8]", 3 * 86400 + 18367},
    {"run_2025-99-99 2026-03-04 05:06:07", 3 * 86400 + 18367},
};
const char* const kNoTimes[] = {"",
                                "2026-03-04",
                                "2026-13-04 05:06:07",
                                "2026-03-04 25:06:07",
                                "2026-02-30 05:06:07",
                                "12026-03-04 05:06:07",
                                "20260304"};

}  // namespace

BOOST_DATA_TEST_CASE(numbers, boost::unit_test::data::make(kNumbers)) {
  const auto value = log_text::leading_number(sample.text);
  BOOST_REQUIRE(value.has_value());
  BOOST_TEST(*value == sample.value);
}
BOOST_DATA_TEST_CASE(no_numbers, boost::unit_test::data::make(kNoNumbers)) {
  BOOST_TEST(!log_text::leading_number(sample).has_value());
}
BOOST_AUTO_TEST_CASE(words_for_what_is_no_number) {
  BOOST_TEST(std::isnan(log_text::leading_number(" nan ").value_or(0)));
  BOOST_TEST(std::isinf(log_text::leading_number("inf|").value_or(0)));
}

BOOST_DATA_TEST_CASE(times, boost::unit_test::data::make(kTimes)) {
  const auto time = log_text::first_time(sample.text);
  BOOST_REQUIRE(time.has_value());
  BOOST_TEST(*time - kMarch == sample.seconds, boost::test_tools::tolerance(1e-9));
}
BOOST_DATA_TEST_CASE(no_times, boost::unit_test::data::make(kNoTimes)) {
  BOOST_TEST(!log_text::first_time(sample).has_value());
}
BOOST_AUTO_TEST_CASE(times_without_a_year) {
  for (const char* text : {"[E304 05:06:07.500 P.cpp:1]", "[E0304 05:06:07.500 P.cpp:1]"}) {
    const auto time = log_text::glog_time(text, kMarch);
    BOOST_REQUIRE(time.has_value());
    BOOST_TEST(*time - kMarch == 3 * 86400 + 18367.5, boost::test_tools::tolerance(1e-9));
  }
  BOOST_TEST(!log_text::glog_time("Error 05:06:07", kMarch).has_value());
}

BOOST_AUTO_TEST_CASE(messages_are_printable) {
  BOOST_TEST(log_text::printable("a\x1b[31m\tb\xff\xc3\x28\x7f") ==
             "a?[31m?b?"
             "?(?");
  BOOST_TEST(log_text::printable("für 5 € \xe4\xb8\xad") == "für 5 € \xe4\xb8\xad");
  BOOST_TEST(log_text::printable("\xc2\x9b[31m\xed\xa0\x80\xc0\xaf") == "??[31m?????");
  BOOST_TEST(log_text::printable(std::string(1000, 'x'), 10).size() == 10U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps

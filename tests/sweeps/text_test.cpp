// Tables, widths and the progress line.
#include <boost/test/unit_test.hpp>

#include "sweeps/progress.h"
#include "sweeps/table.h"

namespace moetune::sweeps {

BOOST_AUTO_TEST_SUITE(text)

BOOST_AUTO_TEST_CASE(width_counts_characters_not_bytes) {
  BOOST_TEST(display_width("dp 4 \u00b7 ep 2") == 11U);
  BOOST_TEST(display_width("a\tb\n") == 2U);
}

BOOST_AUTO_TEST_CASE(cutting_keeps_characters_whole) {
  BOOST_TEST(cut_to_width("abcdef", 6) == "abcdef");
  BOOST_TEST(cut_to_width("abcdef", 4) == "abc\u2026");
  BOOST_TEST(cut_to_width("\u00e4\u00f6\u00fc\u00df", 3) == "\u00e4\u00f6\u2026");
  BOOST_TEST(cut_to_width("abc", 0) == "");
}

BOOST_AUTO_TEST_CASE(control_characters_never_reach_the_terminal) {
  BOOST_TEST(one_line("a\x1b[31mb\nc\x7f") == "a [31mb c ");
  BOOST_TEST(one_line("a\xc2\x9b"
                      "31m") == "a 31m");
}

BOOST_AUTO_TEST_CASE(tables_are_aligned_and_cut_at_the_last_column) {
  TextTable table({{"id", TextTable::Align::right}, {"status"}, {"reason"}});
  table.add({"7", "ok", ""});
  table.add({"12", "invalid", "a long reason\nwith two lines"});
  BOOST_TEST(table.text(std::nullopt) ==
             "id  status   reason\n"
             " 7  ok\n"
             "12  invalid  a long reason with two lines\n");
  BOOST_TEST(table.text(27) ==
             "id  status   reason\n"
             " 7  ok\n"
             "12  invalid  a long reason\u2026\n");
}

BOOST_AUTO_TEST_CASE(columns_that_matter_less_make_room) {
  using Align = TextTable::Align;
  TextTable table({{"id", Align::right},
                   {"first", Align::left, 1},
                   {"last", Align::left, 2},
                   {"short", Align::left, 0, true},
                   {"long"}});
  table.add({"1", "one", "two", "a word", "a sentence that is longer than the others are"});
  BOOST_TEST(table.text(72) ==
             "id  first  last  short   long\n"
             " 1  one    two   a word  a sentence that is longer than the others are\n");
  BOOST_TEST(table.text(67) ==
             "id  first  last  short   long\n"
             " 1  one    two   a word  a sentence that is longer than the others\u2026\n");
  BOOST_TEST(table.text(54) ==
             "id  first  short   long\n"
             " 1  one    a word  a sentence that is longer than the\u2026\n");
  BOOST_TEST(table.text(50) ==
             "id  short   long\n"
             " 1  a word  a sentence that is longer than the ot\u2026\n");
  // Two long texts share what is left.
  TextTable two({{"a", Align::left, 0, true}, {"b"}});
  two.add({std::string(40, 'x'), std::string(60, 'y')});
  BOOST_TEST(two.text(52) == "a" + std::string(26, ' ') + "b\n" + std::string(24, 'x') +
                                 "\u2026  " + std::string(24, 'y') + "\u2026\n");
}

BOOST_AUTO_TEST_CASE(the_progress_line_keeps_its_end) {
  ProgressState state;
  state.phase = "retune";
  state.num_trials = 7;
  state.num_expected = 24;
  state.title = "ep_chunks_forward 1 -> 2";
  state.step = "step 3 of 6";
  state.best_step_ns = 12'300'000;
  state.left = std::chrono::seconds(65);
  BOOST_TEST(
      format_progress(state, 200) ==
      "[retune 7/24] ep_chunks_forward 1 -> 2, step 3 of 6 | best 12.3 ms | 1 min 05 s left");
  BOOST_TEST(format_progress(state, 60) ==
             "[retune 7/24] ep_chunks_fo\u2026 | best 12.3 ms | 1 min 05 s left");
  BOOST_TEST(display_width(format_progress(state, 20)) <= 20U);
}

BOOST_AUTO_TEST_CASE(more_trials_than_expected_are_not_seven_of_six) {
  ProgressState state;
  state.phase = "fit";
  state.num_trials = 7;
  state.num_expected = 6;
  state.title = "x";
  BOOST_TEST(format_progress(state, 80) == "[fit 7/7] x");
}

BOOST_AUTO_TEST_CASE(a_budget_is_no_forecast) {
  ProgressState state;
  state.phase = "scale";
  state.num_trials = 7;
  state.num_expected = 48;
  state.is_limit = true;
  state.title = "x";
  state.left = std::chrono::seconds(0);
  BOOST_TEST(format_progress(state, 80) == "[scale 7 of at most 48] x");
}

BOOST_AUTO_TEST_CASE(the_time_left_runs_down_and_does_not_jump) {
  using std::chrono::seconds;
  const TimeLeft::Clock::time_point start{};
  TimeLeft left;
  BOOST_TEST(!left.at(start).has_value());
  left.guess(100, start);
  BOOST_TEST(left.at(start)->count() == 100);
  BOOST_TEST(left.at(start + seconds(15))->count() == 80);
  BOOST_TEST(left.at(start + seconds(52))->count() == 48);
  // A guess of ten minutes moves 50 s by less than a third of what is between.
  left.guess(600, start + seconds(50));
  BOOST_TEST(left.at(start + seconds(50))->count() == 210);
  left.guess(0, start + seconds(50));
  BOOST_TEST(left.at(start + seconds(50))->count() == 150);
  // Never "0 s left".
  BOOST_TEST(left.at(start + seconds(199))->count() > 0);
  BOOST_TEST(!left.at(start + seconds(201)).has_value());
  left.guess(-5, start + seconds(300));
  BOOST_TEST(!left.at(start + seconds(300)).has_value());
}

BOOST_AUTO_TEST_CASE(only_a_terminal_gets_a_live_line) {
  std::FILE* file = std::tmpfile();
  BOOST_REQUIRE(file != nullptr);
  BOOST_TEST((Progress::mode_for(file, false) == Progress::Mode::plain));
  BOOST_TEST((Progress::mode_for(file, true) == Progress::Mode::quiet));
  Progress plain(file, Progress::Mode::plain);
  ProgressState state;
  state.phase = "fit";
  plain.update(state);
  BOOST_TEST(std::ftell(file) == 0);
  plain.note("a line");
  BOOST_TEST(std::ftell(file) == 7);
  Progress quiet(file, Progress::Mode::quiet);
  quiet.note("nothing");
  BOOST_TEST(std::ftell(file) == 7);
  std::fclose(file);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps

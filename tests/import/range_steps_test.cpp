// Which names mean a step, and which of several sets of such ranges are the steps.
#include "profiler/import/range_steps.h"

#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <ostream>
#include <string>
#include <vector>

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(steps_by_the_names_of_ranges)

namespace {

struct NameCase {
  const char* name;
  bool is_step;
  int64_t number = -1;  ///< -1: none
};
std::ostream& operator<<(std::ostream& out, const NameCase& row) { return out << row.name; }

const NameCase kNames[] = {
    {"ProfilerStep#12", true, 12},
    {"iteration", true},
    {"iteration 7", true, 7},
    {"Iteration: 0007", true, 7},
    {"iteration_3/100", true, 3},
    {"step [41]", true, 41},
    {"step=5", true, 5},
    {"train_step", true},
    {"Training Step 9", true, 9},
    {"global_step 1000000", true, 1000000},
    {"iter12", true, 12},
    {"step 99999999999999999999999", true},  // a number that is none of ours
    {"optimizer.step", false},
    {"step_time", false},
    {"forward_step", false},
    {"steps", false},
    {"iterator", false},
    {"step 3 forward", false},
    {"", false},
};

struct Marked {
  std::string name;
  int64_t start_ns;
  int64_t end_ns;
  uint16_t thread = 0;
};
std::vector<ImportedStep> steps_of(const std::vector<Marked>& marked) {
  NameTable names;
  Chunks<HostRange> ranges;
  for (const Marked& one : marked) {
    ranges.add({one.start_ns, one.end_ns, names.intern(one.name), one.thread});
  }
  return steps_in_ranges(ranges, names);
}

std::string text_of(const std::vector<ImportedStep>& steps) {
  std::string text;
  for (const ImportedStep& step : steps) {
    text += std::to_string(step.number) + ":" + std::to_string(step.start_ns) + "-" +
            std::to_string(step.end_ns) + " ";
  }
  return text;
}

}  // namespace

BOOST_DATA_TEST_CASE(a_name_says_a_step, boost::unit_test::data::make(kNames), row) {
  const std::optional<StepName> step = step_name_of(row.name);
  BOOST_TEST_REQUIRE(step.has_value() == row.is_step);
  if (step) BOOST_TEST(step->number.value_or(-1) == row.number);
}

BOOST_AUTO_TEST_CASE(outer_ranges_that_recur_are_taken) {
  BOOST_TEST(text_of(steps_of({{"step", 0, 1000},
                               {"iteration 4", 0, 400},
                               {"train step", 10, 100},
                               {"train step", 110, 200},
                               {"iteration 5", 400, 900},
                               {"iteration 6", 0, 5000, 1}})) == "4:0-400 5:400-900 ");
}

BOOST_AUTO_TEST_CASE(numbers_are_counted_where_one_is_missing) {
  BOOST_TEST(text_of(steps_of({{"step", 500, 900}, {"step 7", 0, 400}})) == "0:0-400 1:500-900 ");
}

BOOST_AUTO_TEST_CASE(what_overlaps_is_one_step) {
  BOOST_TEST(text_of(steps_of({{"step 1", 0, 400}, {"step 2", 100, 200}, {"step 3", 400, 500}})) ==
             "1:0-400 3:400-500 ");
}

BOOST_AUTO_TEST_CASE(one_range_is_a_step_where_there_is_no_better) {
  BOOST_TEST(text_of(steps_of({{"iteration 3", 5, 10}, {"forward", 0, 100}})) == "3:5-10 ");
  BOOST_TEST(steps_of({{"forward", 0, 100}}).empty());
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler

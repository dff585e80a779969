// What a run printed or stored becomes the value of a metric, or is refused with a reason.
#include "sweeps/bisect/reading.h"

#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "kernels/base/error.h"
#include "tests/bisect/commit_runner_fixture.h"

namespace moetune::sweeps {
BOOST_AUTO_TEST_SUITE(bisect_reading)

BOOST_AUTO_TEST_CASE(a_bare_number_is_the_metric) {
  for (const auto& [line, value] : std::vector<std::pair<std::string, double>>{
           {"12", 12}, {" 1.5e3 \r", 1500}, {"+2.5", 2.5}, {"-3", -3}, {".5", 0.5}, {"0", 0}}) {
    const PrintedNumbers printed = read_printed(line, "step_time");
    BOOST_TEST(printed.numbers == (Numbers{{"step_time", value}}), line);
    BOOST_TEST(printed.complaint == "");
  }
}

const std::vector<std::string> kNoNumbers = {"",
                                             "nan",
                                             "-nan",
                                             "inf",
                                             "-Infinity",
                                             "1e999",
                                             "1e101",
                                             "-1.7e308",
                                             "12 ms",
                                             "12.5.1",
                                             "1,000",
                                             "0x10",
                                             "++1",
                                             "value = 12",
                                             "[1, 2]",
                                             "true",
                                             "{",
                                             "{\"a\"}",
                                             "{\"x\": 1}",
                                             "null",
                                             "\"12\"",
                                             "{\"step_time\": \"12\"}",
                                             "1 2",
                                             "{} trail",
                                             "{\"step_time\": NaN}",
                                             "{\"step_time\": 1e999}",
                                             "{\"step_time\": -2e100}",
                                             "{\"step_time\": null}",
                                             "{\"step_time\": [1]}",
                                             "{\"step_time\": true}"};

BOOST_DATA_TEST_CASE(anything_else_is_refused_with_a_reason,
                     boost::unit_test::data::make(kNoNumbers), line) {
  const PrintedNumbers printed = read_printed(line, "step_time");
  BOOST_TEST(!find_metric(printed.numbers, "step_time").has_value());
  BOOST_TEST(printed.complaint.size() > 10);
}

BOOST_AUTO_TEST_CASE(objects_hold_many_numbers) {
  const PrintedNumbers printed = read_printed(
      R"({"step_ns": 12, "memory": {"peak": 3.5, "name": "x"}, "ok": true, "list": [1]})",
      "step_time");
  BOOST_TEST(printed.numbers == (Numbers{{"step_ns", 12}, {"memory.peak", 3.5}}));
  BOOST_TEST(find_metric(printed.numbers, "step_time").value() == 12);
  BOOST_TEST(find_metric(printed.numbers, "memory.peak").value() == 3.5);
  BOOST_TEST(!find_metric(printed.numbers, "peak_memory").has_value());
  std::string deep = "1";
  for (int i = 0; i < 3000; ++i) deep = "{\"a\":" + deep + "}";
  BOOST_TEST(read_printed(deep, "x").complaint.size() > 10);
}

BOOST_AUTO_TEST_CASE(stores_give_what_their_newest_trial_measured) {
  const tests::TempFolder folder;
  tests::write_store(folder.file("runs.db"), "ok");
  const StoredNumbers stored = read_stored(folder.file("runs.db"));
  BOOST_TEST(stored.status == "ok");
  const Numbers expected = {{"step_ns", 777},
                            {"peak_bytes", 901},
                            {"tokens_per_s", 5},
                            {"loss_final", 1.5},
                            {"comm_bytes.ep", 64},
                            {"num_launches", 12},
                            {"memory_total_bytes", 901},
                            {"memory_capacity_bytes", 4096},
                            {"memory_weights_bytes", 101},
                            {"memory_gradients_bytes", 20},
                            {"op_experts.forward_ns", 20.5},
                            {"op_experts.forward_count", 8}};
  for (const auto& [name, value] : expected) {
    BOOST_REQUIRE_MESSAGE(stored.numbers.contains(name), name);
    BOOST_TEST(stored.numbers.at(name) == value, name);
  }
  BOOST_TEST(find_metric(stored.numbers, "step_time").value() == 777);
  BOOST_TEST(find_metric(stored.numbers, "peak_memory").value() == 901);
  tests::write_text(folder.file("not.db"), "not a database at all");
  BOOST_CHECK_THROW(read_stored(folder.file("not.db")), base::Error);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps

// The choice of metrics by the real CUPTI, which knows those of each chip without having it. Its
// library for that cannot be loaded into a program with sanitizers (it asks for RTLD_DEEPBIND).
#include <algorithm>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <cmath>

#include "profiler/device/cupti_metrics.h"

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(counter_metrics)

namespace {

namespace data = boost::unit_test::data;

bool has(const CuptiMetrics& metrics, const std::string& name) {
  return std::find(metrics.names().begin(), metrics.names().end(), name) != metrics.names().end();
}

BOOST_DATA_TEST_CASE(the_data_centre_chips_count_all_at_once,
                     data::make({"GA100", "GH100", "GB100", "GB102"}), chip) {
  CuptiMetrics metrics;
  BOOST_REQUIRE_EQUAL(metrics.choose(chip, {}), "");
  BOOST_TEST(metrics.left_out() == "");
  BOOST_TEST(metrics.names().size() == kNumCounters);
  BOOST_TEST(has(metrics, "sm__cycles_active.avg.pct_of_peak_sustained_elapsed"));
  BOOST_TEST(
      has(metrics, "sm__pipe_tensor_cycles_active_realtime.avg.pct_of_peak_sustained_elapsed"));
  BOOST_TEST(has(metrics, "dram__bytes_read.sum"));
  BOOST_TEST(has(metrics, "dram__bytes_write.sum"));
  BOOST_TEST(!metrics.config_image().empty());
}

BOOST_AUTO_TEST_CASE(other_names_on_other_chips) {
  CuptiMetrics metrics;
  BOOST_REQUIRE_EQUAL(metrics.choose("GB202", {}), "");
  BOOST_TEST(metrics.left_out() == "");
  BOOST_TEST(has(metrics, "dram__bytes_op_read.sum"));
  BOOST_TEST(has(metrics, "dram__bytes_op_write.sum"));
}

BOOST_AUTO_TEST_CASE(what_a_chip_cannot_is_said) {
  CuptiMetrics turing;  // its tensor counter takes two passes
  BOOST_REQUIRE_EQUAL(turing.choose("TU102", {}), "");
  BOOST_TEST_MESSAGE(turing.left_out());
  BOOST_TEST(turing.names().size() == 3U);
  BOOST_TEST(turing.left_out().starts_with("no tensor activity (TU102 has no sm__pipe_tensor"));
  BOOST_TEST(turing.left_out().find("passes with the others)") != std::string::npos);
  CuptiMetrics unknown;
  const std::string reason = unknown.choose("XX999", {});
  BOOST_TEST_MESSAGE(reason);
  BOOST_TEST(reason.starts_with("CUPTI knows no metrics of chip XX999"));
  BOOST_TEST(unknown.names().empty());
}

BOOST_AUTO_TEST_CASE(an_image_that_is_none_has_no_values) {
  CuptiMetrics metrics;
  BOOST_REQUIRE_EQUAL(metrics.choose("GH100", {}), "");
  const std::vector<uint8_t> image(4096, 0);
  for (const double value : metrics.evaluate(image, 0)) BOOST_TEST(std::isnan(value));
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler

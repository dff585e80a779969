// Text of quantities: units, rounding and the borders between units.
#include "kernels/base/units.h"

#include <boost/test/unit_test.hpp>

namespace moetune::base {

BOOST_AUTO_TEST_SUITE(units)

BOOST_AUTO_TEST_CASE(bytes) {
  BOOST_TEST(format_bytes(0) == "0 B");
  BOOST_TEST(format_bytes(512) == "512 B");
  BOOST_TEST(format_bytes(1024) == "1.00 KiB");
  BOOST_TEST(format_bytes(3435973837) == "3.20 GiB");
  BOOST_TEST(format_bytes(-2048) == "-2.00 KiB");
}

BOOST_AUTO_TEST_CASE(nanoseconds) {
  BOOST_TEST(format_ns(850) == "850 ns");
  BOOST_TEST(format_ns(12'345) == "12.3 us");
  BOOST_TEST(format_ns(4'560'000) == "4.56 ms");
  BOOST_TEST(format_ns(7'890'000'000) == "7.89 s");
  BOOST_TEST(format_ns(125'000'000'000) == "2 min 05 s");
}

BOOST_AUTO_TEST_CASE(rates_counts_and_ratios) {
  BOOST_TEST(format_flops_per_s(1.234e9) == "1.23 GFLOP/s");
  BOOST_TEST(format_count(12'345) == "12.3k");
  BOOST_TEST(format_count(4.56e6) == "4.56M");
  BOOST_TEST(format_count(7) == "7");
  BOOST_TEST(format_ratio(0.123) == "12.3 %");
}

BOOST_AUTO_TEST_CASE(a_value_has_five_digits_and_its_unit) {
  BOOST_TEST(format_value(42'871'000, "ns") == "42.871 ms");
  BOOST_TEST(format_value(0.123456, "ratio") == "12.346 %");
  BOOST_TEST(format_value(70'123, "1/s") == "70.1k/s");
  BOOST_TEST(format_value(4.87123, "nats") == "4.8712 nats");
  BOOST_TEST(format_value(123'456'789, "") == "123456789");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::base

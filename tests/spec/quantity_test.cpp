// Units of quantities: reading them, writing them, and guessing what was meant.
#include "engine/spec/quantity.h"

#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <ostream>
#include <regex>

namespace moetune::spec {

BOOST_AUTO_TEST_SUITE(quantity)

namespace {

struct Row {
  Quantity quantity;
  const char* text;
  double value;
};
std::ostream& operator<<(std::ostream& out, const Row& row) { return out << row.text; }

const Row kTexts[] = {
    {Quantity::bytes, "80GB", 80e9},
    {Quantity::bytes, "80 GiB", 80.0 * 1024 * 1024 * 1024},
    {Quantity::bytes, "1.5e3MB", 1.5e9},
    {Quantity::bytes_per_s, "450GB/s", 450e9},
    {Quantity::bytes_per_s, "400Gb/s", 50e9},
    {Quantity::bytes_per_s, "400Gbps", 50e9},
    {Quantity::bytes_per_s, "1.8TB/s", 1.8e12},
    {Quantity::flops_per_s, "989TF", 989e12},
    {Quantity::flops_per_s, "2.5 PFLOP/s", 2.5e15},
    {Quantity::nanoseconds, "25us", 25e3},
    {Quantity::nanoseconds, "25µs", 25e3},
    {Quantity::nanoseconds, "1ms", 1e6},
    {Quantity::seconds, "10min", 600},
    {Quantity::seconds, "0.5 h", 1800},
    {Quantity::watts, "700W", 700},
    {Quantity::watts, "1.2kW", 1200},
};

const Row kNoTexts[] = {
    {Quantity::bytes, "80", 0},
    {Quantity::bytes, "80GB/s", 0},
    {Quantity::bytes, "80gb", 0},
    {Quantity::bytes, "GB", 0},
    {Quantity::bytes, "", 0},
    {Quantity::bytes, "nanGB", 0},
    {Quantity::bytes, "1e999GB", 0},
    {Quantity::nanoseconds, "25 US", 0},
    {Quantity::nanoseconds, "25  us", 0},
    {Quantity::count, "2ranks", 0},
};

}  // namespace

BOOST_DATA_TEST_CASE(texts_with_units_are_read, boost::unit_test::data::make(kTexts)) {
  const std::optional<double> value = parse_quantity(sample.quantity, sample.text);
  BOOST_REQUIRE(value.has_value());
  BOOST_TEST(*value == sample.value, boost::test_tools::tolerance(1e-12));
  // Editors judge by the pattern of the schema what the program reads.
  BOOST_TEST(std::regex_match(sample.text, std::regex(unit_pattern(sample.quantity))));
}

BOOST_DATA_TEST_CASE(other_texts_are_not, boost::unit_test::data::make(kNoTexts)) {
  BOOST_TEST(!parse_quantity(sample.quantity, sample.text).has_value());
}

BOOST_AUTO_TEST_CASE(what_is_written_can_be_read) {
  for (const double value : {1.0, 450.0, 8e10, 4.5e11}) {
    const std::string text = quantity_text(Quantity::bytes_per_s, value);
    BOOST_TEST(parse_quantity(Quantity::bytes_per_s, text).value_or(-1) == value);
  }
  BOOST_TEST(quantity_text(Quantity::bytes_per_s, 4.5e11) == "450GB/s");
  BOOST_TEST(quantity_text(Quantity::seconds, 90) == "1.5min");
  BOOST_TEST(quantity_text(Quantity::watts, 1200) == "1.2kW");
  // At least 1 of the unit, where there is one so small.
  BOOST_TEST(quantity_text(Quantity::flops_per_s, 989) == "989F");
  BOOST_TEST(quantity_text(Quantity::flops_per_s, 98'900) == "98.9KF");
  BOOST_TEST(parse_quantity(Quantity::flops_per_s, "989F").value_or(-1) == 989);
}

BOOST_AUTO_TEST_CASE(what_was_meant) {
  BOOST_TEST(likely_meaning(Quantity::bytes, 80, 1e6, 1e14) == "80GB");
  BOOST_TEST(likely_meaning(Quantity::flops_per_s, 989, 1e7, 1e18) == "989TF");
  BOOST_TEST(likely_meaning(Quantity::bytes_per_s, 1e-9, 1e6, 1e14).empty());
  BOOST_TEST(likely_meaning(Quantity::bytes, 0, 1e6, 1e14).empty());
  // The meaning nearest to the usual, not the first that is possible.
  BOOST_TEST(likely_meaning(Quantity::bytes_per_s, 450'000, 1e6, 1e14) == "450GB/s");
  BOOST_TEST(likely_meaning(Quantity::bytes_per_s, 4.5e14, 1e6, 1e14) == "450GB/s");
  BOOST_TEST(likely_meaning(Quantity::nanoseconds, 4e6, 1, 1e6) == "4us");
  // Memory is counted in MiB, too.
  BOOST_TEST(likely_meaning(Quantity::bytes, 81'920, 1e5, 1e14) == "80GiB");
  BOOST_TEST(likely_meaning(Quantity::bytes, 80'000, 1e5, 1e14) == "80GB");
  BOOST_TEST(likely_meaning(Quantity::bytes, 8e10, 1e5, 1e14).empty());
}

BOOST_AUTO_TEST_CASE(keys_of_other_units) {
  BOOST_TEST(split_unit_suffix("latency_us")->stem == "latency");
  BOOST_TEST(split_unit_suffix("memory_bytes_per_s")->stem == "memory");
  BOOST_CHECK(split_unit_suffix("memory_bytes_per_s")->quantity == Quantity::bytes_per_s);
  BOOST_CHECK(split_unit_suffix("memory_gb")->quantity == Quantity::bytes);
  BOOST_TEST(!split_unit_suffix("name").has_value());
  BOOST_TEST(!split_unit_suffix("_us").has_value());
  BOOST_TEST(split_unit_suffix("bytes_per_s")->stem == "");
  BOOST_TEST(split_unit_suffix("gb_per_s")->unit == "GB/s");
  BOOST_TEST(split_unit_suffix("gigabytes_per_s")->unit == "GB/s");
  BOOST_TEST(split_unit_suffix("link_gigabits_per_s")->stem == "link");
  BOOST_TEST(split_unit_suffix("Memory_GB")->stem == "Memory");
  BOOST_TEST(split_unit_suffix("Memory_GB")->unit == "GB");
  BOOST_TEST(split_unit_suffix("bandwidth_GBps")->unit == "GB/s");
  BOOST_TEST(split_unit_suffix("bandwidth_Gbps")->unit == "Gb/s");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::spec

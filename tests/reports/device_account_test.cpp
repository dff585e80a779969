// Reading the account of a device's memory: sums over the ranks, and every text that is none.
#include "reports/device_account.h"

#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace moetune::reports {
BOOST_AUTO_TEST_SUITE(device_account)

namespace {

using nlohmann::json;

json line(const json& name, const json& bytes) { return {{"name", name}, {"bytes", bytes}}; }

json account_of(const json& lines, const json& used = 1000) {
  const json rank = {{"rank", 0}, {"lines", lines}};
  return {{"ranks", json::array({rank})}, {"driver_used_bytes", used}};
}

/// A sound account with one thing changed.
std::string changed(const char* pointer, const json& value) {
  json document = account_of(json::array({line("arenas", 600)}));
  document[json::json_pointer(pointer)] = value;
  return document.dump();
}

std::string without(const char* object, const char* key) {
  json document = account_of(json::array({line("arenas", 600)}));
  document[json::json_pointer(object)].erase(key);
  return document.dump();
}

std::string with_lines(int num_lines, int num_names) {
  json lines = json::array();
  for (int i = 0; i < num_lines; ++i) lines.push_back(line(std::to_string(i % num_names), 1));
  return account_of(lines, 1'000'000).dump();
}

/// Where the time grows with the square of the length, this takes a minute.
std::string many_objects(int count) {
  std::string text = "[{}";
  for (int i = 1; i < count; ++i) text += ",{}";
  return text + "]";
}

std::string nested(int depth) {
  json document = account_of(json::array({line("arenas", 600)}));
  std::string text = document.dump();
  text.pop_back();
  return text + ",\"x\":" + std::string(static_cast<size_t>(depth), '[') +
         std::string(static_cast<size_t>(depth), ']') + "}";
}

BOOST_AUTO_TEST_CASE(lines_of_all_ranks_add_up_and_the_rest_is_told) {
  json document = account_of(json::array({line("arenas", 600), line("graphs", 0)}));
  document["ranks"].push_back(
      {{"rank", 1},
       {"lines", json::array({line("graphs", 40), line("arenas", -100), line("CUPTI", 10)})}});
  const auto account = read_device_account(document.dump());
  BOOST_REQUIRE(account.has_value());
  BOOST_TEST(account->ranks == "2 ranks");
  BOOST_REQUIRE(account->lines.size() == 3u);
  const std::vector<std::pair<std::string, int64_t>> expected = {
      {"arenas", 500}, {"graphs", 40}, {"CUPTI", 10}};
  for (size_t i = 0; i < expected.size(); ++i) {
    BOOST_TEST(account->lines[i].name == expected[i].first);
    BOOST_TEST(account->lines[i].bytes == expected[i].second);
    BOOST_TEST(account->lines[i].used_ratio == static_cast<double>(expected[i].second) / 1000);
  }
  BOOST_TEST(account->rest.name == "not explained");
  BOOST_TEST(account->rest.bytes == 450);
  BOOST_TEST(account->rest.used_ratio == 0.45);
  BOOST_TEST(account->driver_used_bytes == 1000);
}

BOOST_AUTO_TEST_CASE(more_than_is_used_was_counted_twice) {
  const auto account =
      read_device_account(account_of(json::array({line("a", 700), line("b", 500)})).dump());
  BOOST_REQUIRE(account.has_value());
  BOOST_TEST(account->ranks == "rank 0");
  BOOST_TEST(account->rest.name == "counted twice");
  BOOST_TEST(account->rest.bytes == -200);
  const auto even = read_device_account(account_of(json::array({line("a", 1000)})).dump());
  BOOST_REQUIRE(even.has_value());
  BOOST_TEST(even->rest.name == "not explained");
  BOOST_TEST(even->rest.bytes == 0);
}

BOOST_AUTO_TEST_CASE(sizes_at_the_limits_are_read) {
  BOOST_TEST(read_device_account(with_lines(16384, 64)).has_value());
  BOOST_TEST(read_device_account(nested(6)).has_value());
  const int64_t largest = int64_t{1} << 48;
  json lines = json::array();
  for (int i = 0; i < 16384; ++i) lines.push_back(line("a", largest));
  const auto account = read_device_account(account_of(lines, largest).dump());
  BOOST_REQUIRE(account.has_value());
  BOOST_TEST(account->lines.at(0).bytes == largest * 16384);
  BOOST_TEST(account->rest.bytes == largest - largest * 16384);
}

BOOST_AUTO_TEST_CASE(long_names_are_cut_between_characters) {
  std::string name = "x";
  for (int i = 0; i < 100; ++i) name += "\u00e4";
  const auto account = read_device_account(account_of(json::array({line(name, 1)})).dump());
  BOOST_REQUIRE(account.has_value());
  BOOST_TEST(account->lines.at(0).name == name.substr(0, 79) + " \u2026");
}

const std::vector<std::string> kBroken = {
    "",
    "not json",
    "null",
    "[]",
    "{}",
    "\xff\xfe",
    changed("/ranks", "none"),
    changed("/ranks", json::array()),
    changed("/ranks", json::object()),
    changed("/ranks/0", 7),
    changed("/ranks/0/rank", "<b>"),
    changed("/ranks/0/rank", 1.5),
    changed("/ranks/0/lines", nullptr),
    changed("/ranks/0/lines", json::object()),
    changed("/ranks/0/lines/0", "text"),
    changed("/ranks/0/lines/0/name", 7),
    changed("/ranks/0/lines/0/name", json::array()),
    changed("/ranks/0/lines/0/bytes", "600"),
    changed("/ranks/0/lines/0/bytes", 600.5),
    changed("/ranks/0/lines/0/bytes", 1e300),
    changed("/ranks/0/lines/0/bytes", true),
    changed("/ranks/0/lines/0/bytes", UINT64_MAX),
    changed("/ranks/0/lines/0/bytes", INT64_MIN),
    changed("/ranks/0/lines/0/bytes", (int64_t{1} << 48) + 1),
    changed("/driver_used_bytes", 0),
    changed("/driver_used_bytes", -5),
    changed("/driver_used_bytes", "1000"),
    changed("/driver_used_bytes", UINT64_MAX),
    without("", "ranks"),
    without("", "driver_used_bytes"),
    without("/ranks/0", "rank"),
    without("/ranks/0", "lines"),
    without("/ranks/0/lines/0", "name"),
    without("/ranks/0/lines/0", "bytes"),
    with_lines(65, 65),
    with_lines(16385, 1),
    nested(9),
    nested(100'000),
    std::string(3'000'000, '['),
    many_objects(300'000),
    account_of(json::array({line("a", 1)})).dump() + std::string(5 << 20, ' '),
};

BOOST_AUTO_TEST_CASE(what_is_changed_below_is_sound_before) {
  BOOST_TEST(read_device_account(changed("/driver_used_bytes", 1000)).has_value());
}

BOOST_DATA_TEST_CASE(what_is_no_account_is_refused,
                     boost::unit_test::data::xrange(size_t{0}, kBroken.size()), index) {
  BOOST_TEST(!read_device_account(kBroken[index]).has_value(), kBroken[index].substr(0, 200));
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::reports

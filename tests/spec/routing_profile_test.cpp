// JSON form of routing profiles.
#include "engine/spec/routing_profile.h"

#include <boost/test/unit_test.hpp>

#include "tests/spec/spec_samples.h"

namespace moetune::spec {

using samples::contains;
using samples::json;
using samples::usage_error;

BOOST_AUTO_TEST_SUITE(routing_profile)

namespace {

RoutingProfile sample_profile() {
  RoutingProfile profile{2, 1, 2, 2, 3, {}};
  for (int32_t i = 0; i < 24; ++i) profile.counts.push_back(i);
  return profile;
}

std::string error_with(const char* key, const json& value) {
  json document = to_json(sample_profile());
  document[key] = value;
  return usage_error([&] { routing_profile_from_json(document); });
}

}  // namespace

BOOST_AUTO_TEST_CASE(round_trip_and_index) {
  const RoutingProfile profile = sample_profile();
  const RoutingProfile copy = routing_profile_from_json(to_json(profile));
  BOOST_TEST(copy.counts == profile.counts, boost::test_tools::per_element());
  BOOST_TEST(copy.index(1, 0, 1, 0, 2) == 20);
  BOOST_TEST(!copy.is_empty());
  BOOST_TEST(routing_profile_from_json(to_json(RoutingProfile{})).is_empty());
}

BOOST_AUTO_TEST_CASE(bad_profiles_are_refused) {
  BOOST_TEST(contains(error_with("num_steps", 3), "36 counts, the product of its sizes"));
  BOOST_TEST(contains(error_with("num_experts", -1), "'num_experts' is -1"));
  BOOST_TEST(contains(error_with("num_experts", 1e6), "counts"));
  BOOST_TEST(contains(error_with("counts", "none"), "'counts' is \"none\""));
  json counts = to_json(sample_profile())["counts"];
  counts[5] = -1;
  BOOST_TEST(contains(error_with("counts", counts), "'counts[5]' is -1"));
  BOOST_TEST(contains(error_with("extra", 1), "unknown key 'extra'"));
  json huge = to_json(sample_profile());
  for (const char* key : {"num_steps", "num_layers", "num_sequences", "num_pieces"}) {
    huge[key] = 1'000'000;
  }
  BOOST_TEST(contains(usage_error([&] { routing_profile_from_json(huge); }), "more than"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::spec

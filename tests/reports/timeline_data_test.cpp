// The timeline's slices: classes, launches of graphs, waiting, and merging without losing time.
#include "reports/timeline_data.h"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

namespace moetune::reports {
BOOST_AUTO_TEST_SUITE(timeline_data)

namespace {

Slice slice(int64_t stream, SliceClass slice_class, int64_t start_ns, int64_t end_ns) {
  Slice result;
  result.stream = stream;
  result.slice_class = slice_class;
  result.name = "op.forward";
  result.start_ns = start_ns;
  result.end_ns = end_ns;
  return result;
}

BOOST_AUTO_TEST_CASE(few_slices_stay_as_they_are) {
  const std::vector<Slice> slices = {slice(0, SliceClass::forward, 0, 5),
                                     slice(0, SliceClass::forward, 6, 9)};
  BOOST_TEST(downsample(slices, 2, 100).size() == 2u);
}

BOOST_AUTO_TEST_CASE(merging_keeps_lanes_classes_and_counts_apart) {
  std::vector<Slice> slices;
  for (int64_t stream = 0; stream < 3; ++stream) {
    for (int64_t i = 0; i < 4000; ++i) {
      slices.push_back(
          slice(stream, i < 2000 ? SliceClass::forward : SliceClass::backward, 10 * i, 10 * i + 7));
    }
  }
  const std::vector<Slice> merged = downsample(slices, 500, 40'000);
  BOOST_TEST(merged.size() <= 500u);
  BOOST_TEST(merged.size() >= 6u);  // three lanes of two classes
  std::map<std::pair<int64_t, SliceClass>, int64_t> counts;
  int64_t last_end = 0;
  int64_t last_stream = 0;
  for (const Slice& part : merged) {
    counts[{part.stream, part.slice_class}] += part.count;
    if (part.stream == last_stream) {
      BOOST_TEST(part.start_ns >= last_end);
    }
    last_end = part.end_ns;
    last_stream = part.stream;
  }
  BOOST_TEST(counts.size() == 6u);
  for (const auto& [key, count] : counts) {
    BOOST_TEST(count == 2000);
  }
}

BOOST_AUTO_TEST_CASE(what_cannot_merge_ends_the_search) {
  std::vector<Slice> slices;
  for (int64_t i = 0; i < 100; ++i) {
    slices.push_back(slice(0, i % 2 == 0 ? SliceClass::forward : SliceClass::backward, i, i + 1));
  }
  BOOST_TEST(downsample(slices, 10, 100).size() == 100u);
}

BOOST_AUTO_TEST_CASE(columns_read_back) {
  std::vector<Slice> slices = {slice(-1, SliceClass::launch, 3, 4),
                               slice(0, SliceClass::forward, 5, 25),
                               slice(0, SliceClass::backward, 30, 42)};
  slices[2].name = "other.backward";
  slices[2].wait_ns = 7;
  const nlohmann::json json = timeline_json(slices, 50);
  BOOST_TEST(json["step"] == 50);
  BOOST_REQUIRE(json["lanes"].size() == 2u);
  BOOST_TEST(json["lanes"][0]["label"] == "host");
  const auto& lane = json["lanes"][1];
  BOOST_TEST(lane["start"] == nlohmann::json({5, 25}));  // the second as a difference
  BOOST_TEST(lane["length"] == nlohmann::json({20, 12}));
  BOOST_TEST(json["names"][lane["name"][1].get<size_t>()] == "other.backward");
  BOOST_TEST(json["classes"][lane["class"][1].get<size_t>()] == "backward");
  BOOST_TEST(lane["count"] == 1);  // the same for the whole lane
  BOOST_TEST(lane["wait"] == nlohmann::json({0, 7}));
}

BOOST_AUTO_TEST_CASE(a_lane_is_named_after_what_fills_it) {
  Slice transfer = slice(1, SliceClass::communication, 0, 100);
  transfer.group = "ep";
  const Slice kernel = slice(1, SliceClass::forward, 100, 130);
  BOOST_TEST(lane_label(1, {&transfer, &kernel}) == "1 · ep");
  BOOST_TEST(lane_label(0, {&kernel}) == "0 · compute");
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::reports

// The ceiling of an imported trace's wall with what nothing in the trace explains.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <optional>
#include <span>
#include <string>

#include "profiler/analysis/imported_wall.h"
#include "tests/import/trace_texts.h"

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(unexplained_waits)

namespace {

using tests::EventText;

/// Twenty steps of 1 ms with a host that launches late; in front of the last kernel of each the
/// device stands idle for `unexplained_us` though its launch has come. `loses_kernels`: what was
/// launched meanwhile is not in the file. `more`: the name of another call.
ImportedWall wall_of(double unexplained_us, double late_us = 450, bool loses_kernels = false,
                     const std::string& more = "cudaMalloc") {
  EventText events;
  events.call(1, 1, 1'000, more);
  for (int step = 0; step < 20; ++step) {
    const double start = 1000 * step;
    const int id = 10 * step;
    events.range(start, 1000, "ProfilerStep#" + std::to_string(step));
    events.call(start + 1, 5, id + 1).kernel(start + 8, 30, id + 1);
    events.call(start + 38 + late_us, 5, id + 2).kernel(start + 45 + late_us, 30, id + 2);
    const double begin = start + 75 + late_us + unexplained_us;
    if (loses_kernels) events.call(start + 50 + late_us, 5, id + 4);
    events.call(start + 60 + late_us, 5, id + 3).kernel(begin, start + 999 - begin, id + 3);
  }
  const ImportedTrace trace = events.read();
  return classify_imported(std::span(&trace, 1));
}

bool tells(const ImportedWall& wall, const std::string& name) {
  return std::ranges::any_of(wall.evidence, [&](const Evidence& one) { return one.name == name; });
}
bool tells_most(const ImportedWall& wall) { return tells(wall, "most_ratio"); }

}  // namespace

BOOST_AUTO_TEST_CASE(a_ceiling_is_told_with_them_too) {
  const ImportedWall late = wall_of(100);
  BOOST_TEST(name_of(late.label) == "host", late.summary);
  BOOST_TEST_REQUIRE(late.most_ratio.has_value());
  BOOST_TEST(*late.most_ratio > late.share_ratio + 0.08, late.summary);
  BOOST_TEST(*late.most_ratio < late.share_ratio + 0.12);
  BOOST_TEST(tells_most(late));
}

// A launch without its kernel says that the file lacks records: then the share is a bound.
BOOST_AUTO_TEST_CASE(they_count_to_the_ceiling_where_kernels_are_missing) {
  const ImportedWall late = wall_of(100);
  const ImportedWall lossy = wall_of(100, 450, true);
  BOOST_TEST(name_of(lossy.label) == "host", lossy.summary);
  BOOST_TEST(lossy.share_ratio > late.share_ratio + 0.08, lossy.summary);
  BOOST_TEST(lossy.most_ratio.value() == lossy.share_ratio);
  BOOST_TEST(tells(lossy, "lost_records"));
  BOOST_TEST(!tells_most(lossy));
  BOOST_TEST(!tells(late, "lost_records"));
  // Graphs keep what is launched while they are captured.
  BOOST_TEST(!tells(wall_of(100, 450, true, "cudaStreamBeginCapture"), "lost_records"));
}

BOOST_AUTO_TEST_CASE(where_all_is_explained_it_is_the_ceiling) {
  const ImportedWall explained = wall_of(0);
  BOOST_TEST(name_of(explained.label) == "host", explained.summary);
  BOOST_TEST_REQUIRE(explained.most_ratio.has_value());
  BOOST_TEST(*explained.most_ratio >= explained.share_ratio);
  BOOST_TEST(*explained.most_ratio < explained.share_ratio + 0.005);
  BOOST_TEST(!tells_most(explained));
}

BOOST_AUTO_TEST_CASE(compute_has_none) {
  const ImportedWall busy = wall_of(50, 0);
  BOOST_TEST(name_of(busy.label) == "compute", busy.summary);
  BOOST_TEST(!busy.most_ratio.has_value());
  BOOST_TEST(!tells_most(busy));
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler

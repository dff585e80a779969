// Copies from one device to another are communication: nobody waits for the other's program in
// them.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "profiler/analysis/imported_wall.h"
#include "profiler/analysis/trace_figures.h"
#include "tests/import/trace_texts.h"

namespace moetune::profiler {
using tests::EventText;

BOOST_AUTO_TEST_SUITE(peer_copies)

namespace {

/// By turns: products of 100 us, and a copy of 120 us.
ImportedTrace with_copies(const char* what, const std::string& facts = "") {
  EventText events;
  for (int i = 0; i < 30; ++i) {
    events.call(4 * i, 1, 2 * i + 1).kernel(10 + 220 * i, 100, 2 * i + 1);
    events.call(4 * i + 2, 1, 2 * i + 2, "cudaMemcpyAsync")
        .copy(110 + 220 * i, 120, 2 * i + 2, what, 7, 10 << 20);
  }
  events.range(0, 10 + 220 * 30, "ProfilerStep#1");
  return events.read(facts);
}

double kernels_of(const ImportedWall& wall) {
  return wall.kernels.run[static_cast<size_t>(KernelClass::copy_kernel)];
}

}  // namespace

BOOST_AUTO_TEST_CASE(copies_between_devices_are_communication) {
  const ImportedTrace trace = with_copies("Memcpy PtoP (Device -> Device)");
  const ImportedWall wall = classify_imported(std::span(&trace, 1));
  BOOST_TEST(name_of(wall.label) == "communication", wall.summary);
  BOOST_TEST(wall.sub_cause == "transfer", wall.summary);
  BOOST_TEST(std::abs(wall.share_ratio - 120.0 / 220) < 0.02);
  BOOST_TEST(kernels_of(wall) == 0);
  // Within a device it is its work.
  const ImportedTrace own = with_copies("Memcpy DtoD (Device -> Device)");
  const ImportedWall compute = classify_imported(std::span(&own, 1));
  BOOST_TEST(name_of(compute.label) == "compute", compute.summary);
  BOOST_TEST(kernels_of(compute) > 0.5);
}

// No other rank has a part in such a copy, so it needs none to be believed: not of two, and not
// where a rank has no trace.
BOOST_AUTO_TEST_CASE(copies_between_devices_are_of_one_rank_alone) {
  for (const int num_ranks : {2, 4}) {
    std::vector<ImportedTrace> traces;
    for (int rank = 0; rank < 2; ++rank) {
      traces.push_back(with_copies("Memcpy PtoP (Device -> Device)",
                                   R"(, "distributedInfo": {"rank": )" + std::to_string(rank) +
                                       R"(, "world_size": )" + std::to_string(num_ranks) + "}"));
      traces.back().ops[0].end_ns -= rank;  // no copy of the other
    }
    const ImportedWall wall = classify_imported(traces);
    BOOST_TEST(name_of(wall.label) == "communication", wall.summary);
    BOOST_TEST(wall.sub_cause == "transfer", wall.summary);
    BOOST_TEST(wall.matching.matched.empty());
  }
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler

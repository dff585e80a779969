// The memory ledger: what is in use, what the peak was made of, and what does not fit.
#include <boost/test/unit_test.hpp>
#include <numeric>
#include <random>
#include <string>

#include "kernels/base/error.h"
#include "profiler/memory_ledger.h"

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(ledger)

namespace {

constexpr auto kWeights = static_cast<size_t>(MemoryGroup::weights);
constexpr auto kActivations = static_cast<size_t>(MemoryGroup::activations);
constexpr auto kWorkspace = static_cast<size_t>(MemoryGroup::workspace);

BOOST_AUTO_TEST_CASE(allocations_are_rounded_up) {
  BOOST_TEST(aligned_bytes(0) == 0);
  BOOST_TEST(aligned_bytes(1) == 256);
  BOOST_TEST(aligned_bytes(256) == 256);
  MemoryLedger ledger(0, 0);
  ledger.allocate("w", MemoryGroup::weights, 257);
  BOOST_TEST(ledger.in_use_bytes() == 512);
  ledger.release(MemoryGroup::weights, 257);
  BOOST_TEST(ledger.in_use_bytes() == 0);
  BOOST_TEST(ledger.peak_bytes() == 512);
  BOOST_TEST(ledger.num_allocations() == 1);
}

BOOST_AUTO_TEST_CASE(the_peak_is_split_by_group_at_its_moment) {
  MemoryLedger ledger(0, 0);
  ledger.allocate("weights", MemoryGroup::weights, 1024);
  ledger.allocate("saved", MemoryGroup::activations, 2048);
  ledger.release(MemoryGroup::activations, 2048);
  ledger.allocate("scratch", MemoryGroup::workspace, 4096);
  ledger.allocate("saved again", MemoryGroup::activations, 256);
  ledger.release(MemoryGroup::workspace, 4096);
  BOOST_TEST(ledger.peak_bytes() == 1024 + 4096 + 256);
  BOOST_TEST(ledger.peak_allocation() == "saved again");
  BOOST_TEST(ledger.peak_by_group()[kWeights] == 1024);
  BOOST_TEST(ledger.peak_by_group()[kWorkspace] == 4096);
  BOOST_TEST(ledger.peak_by_group()[kActivations] == 256);
}

BOOST_AUTO_TEST_CASE(running_out_names_the_allocation) {
  MemoryLedger ledger(3, 1024);
  ledger.allocate("weights", MemoryGroup::weights, 768);
  ledger.allocate("exactly full", MemoryGroup::workspace, 256);
  ledger.release(MemoryGroup::workspace, 256);
  try {
    ledger.allocate("layer 2 experts.w1", MemoryGroup::activations, 257);
    BOOST_FAIL("the allocation must not fit");
  } catch (const base::OutOfMemory& e) {
    BOOST_TEST(e.allocation_name == "layer 2 experts.w1");
    BOOST_TEST(e.group_name == "activations");
    BOOST_TEST(e.requested_bytes == 512);
    BOOST_TEST(e.in_use_bytes == 768);
    BOOST_TEST(e.capacity_bytes == 1024);
    BOOST_TEST(e.rank == 3);
    BOOST_TEST(std::string(e.what()).find("layer 2 experts.w1") != std::string::npos);
  }
  // Nothing was booked.
  BOOST_TEST(ledger.in_use_bytes() == 768);
  BOOST_TEST(ledger.peak_bytes() == 1024);
}

BOOST_AUTO_TEST_CASE(groups_always_sum_to_the_whole) {
  std::mt19937_64 random(8);
  MemoryLedger ledger(0, 0);
  std::vector<std::pair<MemoryGroup, int64_t>> live;
  for (int i = 0; i < 2000; ++i) {
    if (!live.empty() && random() % 2 == 0) {
      ledger.release(live.back().first, live.back().second);
      live.pop_back();
    } else {
      const auto group = static_cast<MemoryGroup>(random() % kNumMemoryGroups);
      live.emplace_back(group, static_cast<int64_t>(random() % 5000));
      ledger.allocate("random", group, live.back().second);
    }
    const GroupBytes& parts = ledger.peak_by_group();
    BOOST_TEST(std::accumulate(parts.begin(), parts.end(), int64_t{0}) == ledger.peak_bytes());
    BOOST_TEST(ledger.in_use_bytes() <= ledger.peak_bytes());
  }
}

BOOST_AUTO_TEST_CASE(groups_have_names) {
  BOOST_TEST(std::string(name_of(MemoryGroup::weights)) == "weights");
  BOOST_TEST(std::string(name_of(MemoryGroup::communication)) == "communication");
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler

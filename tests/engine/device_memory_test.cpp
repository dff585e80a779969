// Blocks in arenas: what is freed is used again, equal steps get equal addresses, sizes that change
// from step to step neither move the others nor make the arenas grow without end.
#include "engine/memory/device_memory.h"

#include <boost/test/unit_test.hpp>
#include <random>
#include <vector>

#include "engine/memory/block_allocator.h"
#include "kernels/base/error.h"

namespace moetune::engine {
BOOST_AUTO_TEST_SUITE(device_memory)

namespace {

BOOST_AUTO_TEST_CASE(blocks_do_not_overlap_and_grow_together_again) {
  std::mt19937 random(3);
  BlockAllocator blocks;
  blocks.extend(100'000);
  struct Block {
    int64_t offset;
    int64_t bytes;
  };
  std::vector<Block> live;
  for (int i = 0; i < 3000; ++i) {
    if (!live.empty() && random() % 2 == 0) {
      const size_t at = random() % live.size();
      blocks.free(live[at].offset, live[at].bytes);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(at));
      continue;
    }
    const auto bytes = static_cast<int64_t>(random() % 4000 + 1);
    const auto offset = blocks.allocate(bytes);
    if (!offset) continue;
    BOOST_TEST_REQUIRE(*offset >= 0);
    BOOST_TEST_REQUIRE(*offset + bytes <= blocks.size_bytes());
    for (const Block& other : live) {
      BOOST_TEST_REQUIRE(
          (*offset + bytes <= other.offset || other.offset + other.bytes <= *offset));
    }
    live.push_back({*offset, bytes});
  }
  BOOST_TEST(!live.empty());
  for (const Block& block : live) blocks.free(block.offset, block.bytes);
  BOOST_TEST(blocks.used_bytes() == 0);
  BOOST_TEST(blocks.allocate(100'000).value() == 0);
  BOOST_TEST(!blocks.allocate(1).has_value());
}

BOOST_AUTO_TEST_CASE(the_best_fit_is_taken_and_a_free_end_counts) {
  BlockAllocator blocks;
  blocks.extend(100);
  BOOST_TEST(blocks.allocate(30).value() == 0);
  BOOST_TEST(blocks.allocate(10).value() == 30);
  BOOST_TEST(blocks.allocate(20).value() == 40);
  blocks.free(0, 30);
  BOOST_TEST(blocks.allocate(25).value() == 0);  // of 30 and 40 free bytes
  BOOST_TEST(blocks.missing_bytes(50) == 10);
  BOOST_TEST(blocks.allocate(40).value() == 60);
  BOOST_TEST(blocks.missing_bytes(50) == 50);
  blocks.free(0, 25);
  BOOST_CHECK_THROW(blocks.free(5, 20), base::Error);
}

BOOST_AUTO_TEST_CASE(equal_steps_get_equal_addresses_whatever_routed_sizes_do) {
  const auto backend = kernels::make_cpu_backend();
  DeviceMemory memory(*backend, 0, 0);
  std::mt19937 random(5);
  std::vector<void*> first;
  for (int step = 0; step < 50; ++step) {
    std::vector<void*> fixed;
    std::vector<std::pair<void*, int64_t>> routed;
    for (int layer = 0; layer < 4; ++layer) {
      fixed.push_back(memory.allocate("saved", MemoryGroup::activations, 3000 + layer));
      const auto bytes = static_cast<int64_t>(random() % 5000 + 1);
      routed.emplace_back(memory.allocate("rows", MemoryGroup::activations, bytes, Sizing::routed),
                          bytes);
      void* scratch = memory.allocate("scratch", MemoryGroup::workspace, 5000);
      fixed.push_back(scratch);
      memory.release(MemoryGroup::workspace, scratch, 5000);
    }
    for (int layer = 3; layer >= 0; --layer) {
      const auto at = static_cast<size_t>(layer);
      memory.release(MemoryGroup::activations, routed[at].first, routed[at].second);
      memory.release(MemoryGroup::activations, fixed[2 * at], 3000 + layer);
    }
    if (step == 0) first = fixed;
    BOOST_TEST(fixed == first, boost::test_tools::per_element());
    BOOST_TEST(memory.ledger().in_use_bytes() == 0);
  }
  // Three arenas of one page of the host each.
  BOOST_TEST(memory.held_bytes() == int64_t{3} * (int64_t{2} << 20));
}

BOOST_AUTO_TEST_CASE(the_capacity_is_the_ledgers) {
  const auto backend = kernels::make_cpu_backend();
  DeviceMemory memory(*backend, 0, 10'000);
  void* block = memory.allocate("a", MemoryGroup::weights, 9'000);
  BOOST_CHECK_THROW(memory.allocate("b", MemoryGroup::workspace, 2'000), base::OutOfMemory);
  memory.release(MemoryGroup::weights, block, 9'000);
  BOOST_TEST((memory.allocate("b", MemoryGroup::workspace, 2'000) != nullptr));
  BOOST_TEST((memory.allocate("none", MemoryGroup::workspace, 0) == nullptr));
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::engine

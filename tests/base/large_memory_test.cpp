// Room for many rows: what is asked of the kernel changes no content.
#include "kernels/base/large_memory.h"

#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <vector>

namespace moetune::base {
BOOST_AUTO_TEST_SUITE(large_memory)

BOOST_AUTO_TEST_CASE(a_vector_gets_its_room_once) {
  for (const size_t count : {size_t{0}, size_t{10}, size_t{1'000'003}}) {
    std::vector<int64_t> rows;
    reserve_large(rows, count);
    BOOST_TEST(rows.capacity() >= count);
    BOOST_TEST(rows.empty());
    const int64_t* const first = rows.data();
    for (size_t i = 0; i < count; ++i) rows.push_back(static_cast<int64_t>(i));
    reserve_large(rows, count / 2);
    BOOST_TEST(rows.data() == first);
    bool is_same = true;
    for (size_t i = 0; i < count; ++i) is_same = is_same && rows[i] == static_cast<int64_t>(i);
    BOOST_TEST(is_same);
  }
}

// The hint keeps to whole huge pages within the memory, which may begin anywhere.
BOOST_AUTO_TEST_CASE(memory_that_holds_something_keeps_it) {
  std::vector<uint8_t> bytes(9'000'001, 7);
  prefer_huge_pages(bytes.data() + 1, bytes.size() - 1);
  prefer_huge_pages(nullptr, 0);
  BOOST_TEST(bytes == std::vector<uint8_t>(9'000'001, 7));
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::base

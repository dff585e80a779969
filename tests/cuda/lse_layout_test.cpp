// Row statistics moved to the by-head order and back: every value arrives, padding and the rows of
// other segments stay as they are.
#include "kernels/cuda/lse_layout.h"

#include <boost/test/unit_test.hpp>

#include "tests/cuda/cuda_fixture.h"

namespace moetune::kernels {
BOOST_AUTO_TEST_SUITE(cuda_lse_layout)

namespace {

struct Case {
  const char* name;
  int64_t batch, heads, rows_per_sequence, first_row, num_rows, padding;
};

constexpr Case kCases[] = {
    {"one value", 1, 1, 1, 0, 1, 0},
    {"whole sequences", 2, 3, 17, 0, 17, 0},
    {"a segment of padded rows", 3, 5, 24, 7, 11, 3},
    {"several blocks", 2, 8, 300, 100, 200, 0},
    {"no rows", 2, 4, 8, 3, 0, 0},
};

}  // namespace

BOOST_AUTO_TEST_CASE(goes_there_and_back) {
  for (const Case& c : kCases) {
    BOOST_TEST_CONTEXT(c.name) {
      const int64_t ld = c.heads + c.padding;
      Matrix<float> by_row(c.batch * c.rows_per_sequence, c.heads, ld);
      by_row.fill_random(1);
      Matrix<float> by_head(c.batch * c.heads, c.num_rows);
      Matrix<float> back(c.batch * c.rows_per_sequence, c.heads, ld);
      back.fill(7.0F);
      OnDevice device;
      auto* memory = static_cast<float*>(device(by_head).data);
      cuda::lse_layout(nullptr, {device(by_row), memory, c.batch, c.first_row, c.num_rows, false});
      cuda::lse_layout(nullptr, {device(back), memory, c.batch, c.first_row, c.num_rows, true});
      device.fetch(by_head);
      device.fetch(back);
      for (int64_t sequence = 0; sequence < c.batch; ++sequence) {
        for (int64_t head = 0; head < c.heads; ++head) {
          for (int64_t row = 0; row < c.rows_per_sequence; ++row) {
            const int64_t at = sequence * c.rows_per_sequence + row;
            const int64_t in_segment = row - c.first_row;
            if (in_segment < 0 || in_segment >= c.num_rows) {
              BOOST_TEST(back(at, head) == 7.0F);
            } else {
              BOOST_TEST(by_head(sequence * c.heads + head, in_segment) == by_row(at, head));
              BOOST_TEST(back(at, head) == by_row(at, head));
            }
          }
        }
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels

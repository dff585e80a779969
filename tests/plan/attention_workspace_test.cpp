// The workspace of cuDNN's backward attention against figures that the library gave (9.19, asked
// for an H100), and a call's over a rank's zig-zag chunks. tests/cuda_libs/plans asks the library
// itself.
#include "engine/plan/attention_workspace.h"

#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <ostream>

namespace moetune::plan {
BOOST_AUTO_TEST_SUITE(attention_workspace)

namespace {

namespace data = boost::unit_test::data;

struct Case {
  AttentionRun run;
  int64_t bytes;
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.bytes; }

const Case kCases[] = {{{1, 32, 4, 128, 4096, 4096}, 134'742'272},
                       {{1, 64, 8, 128, 16384, 16384}, 1'077'936'384},
                       {{4, 4, 4, 64, 128, 128}, 532'736},
                       {{1, 16, 2, 256, 4096, 4096}, 134'480'128},
                       {{1, 4, 2, 64, 9, 36}, 46'480},
                       {{1, 4, 2, 64, 9, 9}, 18'832},
                       {{1, 8, 8, 192, 256, 256}, 1'581'312},
                       {{1, 8, 2, 128, 77, 77}, 633'504}};

LayerDims dims_of(int64_t length, int64_t cp, int64_t heads, int64_t kv_heads, int64_t width) {
  LayerDims dims;
  dims.sequences = 1;
  dims.context_tokens = length;
  dims.tokens = length / cp;
  dims.heads = heads;
  dims.kv_heads = kv_heads;
  dims.head_dim = width;
  dims.cp = cp;
  return dims;
}

int64_t workspace_of(LayerDims dims, int64_t cp_rank) {
  dims.cp_rank = cp_rank;
  return attention_workspace_bytes(dims);
}

BOOST_DATA_TEST_CASE(as_the_library_says, data::make(kCases), c) {
  BOOST_TEST(cudnn_backward_bytes(c.run) == c.bytes);
}

BOOST_AUTO_TEST_CASE(a_whole_sequence_adds_its_row_statistics) {
  BOOST_TEST(workspace_of(dims_of(4096, 1, 32, 4, 128), 0) == 134'742'272 + 524'288);
  // Of an odd length, each part aligned to 256 bytes.
  BOOST_TEST(workspace_of(dims_of(77, 1, 8, 2, 128), 0) == 633'600 + 2'560);
}

BOOST_AUTO_TEST_CASE(the_largest_of_a_ranks_runs_counts) {
  // The run that sees most keys, 9 rows of 36.
  BOOST_TEST(workspace_of(dims_of(36, 2, 4, 2, 64), 0) == 46'592 + 256);
  // Chunks in the middle touch: one run of 2048 rows that sees 3072 keys.
  BOOST_TEST(workspace_of(dims_of(4096, 2, 32, 4, 128), 1) ==
             cudnn_backward_bytes({1, 32, 4, 128, 2048, 3072}) + 262'144);
  // Where heads share no keys the runs are as large as each other; the second, of 64 rows that see
  // 128 keys, has packed dk and dv beside it.
  BOOST_TEST(workspace_of(dims_of(512, 4, 4, 4, 64), 1) ==
             cudnn_backward_bytes({1, 4, 4, 64, 64, 128}) + 1'024 + 2 * 65'536);
}

BOOST_AUTO_TEST_CASE(what_a_plain_kernel_does_needs_none) {
  BOOST_TEST(workspace_of(dims_of(64, 1, 4, 2, 12), 0) == 0);
  BOOST_TEST(workspace_of(dims_of(64, 1, 4, 2, 264), 0) == 0);
  BOOST_TEST(workspace_of(dims_of(1, 1, 4, 2, 64), 0) == 0);
  BOOST_TEST(workspace_of(dims_of(8, 4, 4, 2, 64), 0) == 0);
  BOOST_TEST(workspace_of(dims_of(8, 4, 4, 2, 64), 3) > 0);  // its two rows are a run
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::plan

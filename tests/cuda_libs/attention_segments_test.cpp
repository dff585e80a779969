// From positions to runs of consecutive ones, which runs can stand for a call, how a backward pass
// over them adds up, and which versions of the library are asked for it.
#include <boost/test/unit_test.hpp>
#include <string>

#include "kernels/cuda/attention_plan.h"

namespace moetune::kernels {
BOOST_AUTO_TEST_SUITE(cuda_attention_segments)

namespace {

using cuda::AttentionSegment;
using cuda::segments_of;
using Segments = std::vector<AttentionSegment>;

Segments split(const std::vector<int32_t>& positions) { return segments_of(positions); }

/// Two sequences of 4 query rows and 8 keys.
AttentionArgs some_args() {
  AttentionArgs args;
  args.batch = 2;
  args.q.rows = 8;
  args.k.rows = 16;
  return args;
}

/// The same with four heads, two of them for keys, of 8 columns.
AttentionArgs wide_args() {
  AttentionArgs args = some_args();
  args.heads = 4;
  args.kv_heads = 2;
  args.q.cols = args.q.ld = 32;
  args.k.cols = args.k.ld = 16;
  return args;
}

std::string reason(const Segments& segments) {
  return cuda::why_not_segments_of(some_args(), segments);
}

}  // namespace

BOOST_AUTO_TEST_CASE(splits_where_positions_jump) {
  BOOST_TEST(split({}).empty());
  BOOST_TEST((split({0, 1, 2, 3}) == Segments{{0, 4, 0}}));
  BOOST_TEST((split({2, 3, 12, 13}) == Segments{{0, 2, 2}, {2, 2, 12}}));
  BOOST_TEST((split({6, 7, 8, 9}) == Segments{{0, 4, 6}}));
  BOOST_TEST((split({5, 4}) == Segments{{0, 1, 5}, {1, 1, 4}}));
  BOOST_TEST((split({3, 3}) == Segments{{0, 1, 3}, {1, 1, 3}}));
}

BOOST_AUTO_TEST_CASE(positions_are_read_once_until_their_memory_is_given_back) {
  cuda::SegmentCache cache;
  const std::vector<int32_t> memory(8);
  std::vector<int32_t> positions = {0, 1, 6, 7};
  int num_reads = 0;
  const auto get = [&](int64_t at, int64_t num_rows) {
    const auto found = cache.get(memory.data() + at, num_rows, [&] {
      ++num_reads;
      return std::vector<int32_t>(positions.begin(), positions.begin() + num_rows);
    });
    return Segments(found.begin(), found.end());
  };
  BOOST_TEST((get(0, 4) == Segments{{0, 2, 0}, {2, 2, 6}}));
  BOOST_TEST((get(0, 2) == Segments{{0, 2, 0}}));
  BOOST_TEST((get(4, 4) == get(0, 4)));
  BOOST_TEST(num_reads == 3);
  positions = {2, 3, 4, 5};
  cache.forget(memory.data(), 16);
  BOOST_TEST((get(0, 4) == Segments{{0, 4, 2}}));
  BOOST_TEST((get(0, 2) == Segments{{0, 2, 2}}));
  BOOST_TEST(num_reads == 5);
  BOOST_TEST((get(4, 4) == Segments{{0, 2, 0}, {2, 2, 6}}));  // lies behind it
  cache.forget(memory.data(), 17);
  BOOST_TEST((get(4, 4) == Segments{{0, 4, 2}}));
}

BOOST_AUTO_TEST_CASE(accepts_what_covers_the_rows) {
  BOOST_TEST(reason({{0, 4, 0}}) == "");
  BOOST_TEST(reason({{0, 2, 0}, {2, 2, 6}}) == "");
  BOOST_TEST(reason({{0, 4, 4}}) == "");
}

BOOST_AUTO_TEST_CASE(says_why_not) {
  BOOST_TEST(reason({}).find("cover") != std::string::npos);
  BOOST_TEST(reason({{0, 3, 0}}).find("cover") != std::string::npos);
  BOOST_TEST(reason({{0, 5, 0}}).find("cover") != std::string::npos);
  BOOST_TEST(reason({{2, 2, 6}, {0, 2, 0}}).find("one after the other") != std::string::npos);
  BOOST_TEST(reason({{0, 4, 5}}).find("positions 5 to 8") != std::string::npos);
  BOOST_TEST(reason({{0, 4, -1}}).find("positions -1") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(the_segment_that_sees_most_writes_the_gradients) {
  AttentionBackwardArgs args{wide_args(), {}, {}, {}, {}};
  args.dk.ld = 24;
  const Segments segments = {{0, 2, 0}, {2, 2, 6}};
  const auto parts = cuda::backward_parts(args, segments);
  BOOST_TEST_REQUIRE(parts.size() == 2U);
  BOOST_TEST((parts[0].segment == segments[1]));
  BOOST_TEST(!parts[0].is_added);
  BOOST_TEST(parts[0].packed_bytes() == 0);
  BOOST_TEST(parts[0].key.ld_dk == 24);
  BOOST_TEST(parts[0].key.num_keys == 8);
  BOOST_TEST(parts[0].key.dk_per_sequence == 8);
  BOOST_TEST((parts[1].segment == segments[0]));
  BOOST_TEST(parts[1].is_added);
  BOOST_TEST(parts[1].key.ld_dk == 16);  // packed: two key heads of 8 columns
  BOOST_TEST(parts[1].key.num_keys == 2);
  BOOST_TEST(parts[1].key.dk_per_sequence == 2);
  BOOST_TEST(parts[1].packed_bytes() == 256);  // 2 sequences * 2 keys * 16 columns * 2 bytes
  BOOST_TEST(cuda::stats_bytes(parts[1].key) == 256);
}

// The last version that cudnn-frontend works around is 9.15.0.
BOOST_AUTO_TEST_CASE(old_versions_of_the_library_are_not_asked) {
  BOOST_TEST(cuda::why_not_cudnn(91600) == "");
  BOOST_TEST(cuda::why_not_cudnn(91900) == "");
  BOOST_TEST(cuda::why_not_cudnn(91500).find("9.15.0 is older than 9.16.0") != std::string::npos);
  BOOST_TEST(cuda::why_not_cudnn(90801).find("cuDNN 9.8.1") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(graphs_are_told_apart_by_what_they_depend_on) {
  const auto key = [](const AttentionArgs& args, const AttentionSegment& segment) {
    return cuda::graph_key_of(args, segment);
  };
  const AttentionArgs args = wide_args();
  BOOST_TEST((key(args, {0, 2, 4}) == key(args, {2, 2, 4})));  // only the pointers differ
  BOOST_TEST((key(args, {0, 2, 4}) != key(args, {0, 2, 5})));
  AttentionArgs windowed = args;
  windowed.window = 6;
  BOOST_TEST((key(args, {0, 2, 4}) == key(windowed, {0, 2, 4})));  // it hides nothing yet
  BOOST_TEST((key(args, {0, 2, 5}) != key(windowed, {0, 2, 5})));
  AttentionArgs scaled = args;
  scaled.scale = 0.5;
  BOOST_TEST((key(args, {0, 2, 4}) != key(scaled, {0, 2, 4})));
  AttentionArgs strided = args;
  strided.v.ld = 64;
  BOOST_TEST((key(args, {0, 2, 4}) != key(strided, {0, 2, 4})));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels

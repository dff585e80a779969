// The order of a step's instructions where time depends on it.
#include <boost/test/unit_test.hpp>
#include <vector>

#include "engine/plan/compile.h"
#include "tests/spec/spec_samples.h"

namespace moetune::plan {
BOOST_AUTO_TEST_SUITE(program_order)

namespace {

spec::TrialSpec trial(int64_t chunks) {
  spec::TrialSpec made = spec::samples::trial();
  made.knobs = {};
  made.knobs.data_parallel_size = 2;
  made.knobs.expert_model_parallel_size = 2;
  made.knobs.ep_chunks_forward = chunks;
  made.knobs.ep_chunks_backward = chunks;
  made.hardware.num_nodes = 1;
  made.hardware.devices_per_node = 2;
  made.training.seq_length = 64;
  return made;
}

/// Ops of the first MoE layer's forward or backward pass, with their chunks.
std::vector<std::pair<Op, int>> ops_of(const spec::TrialSpec& spec, bool is_backward) {
  std::vector<std::pair<Op, int>> ops;
  const Segment* first = nullptr;
  for_each(compile(spec, 0), [&](const Item&, const Segment& segment, const Instr& instr) {
    if (segment.block != BlockKind::moe || segment.is_backward != is_backward) return;
    if (first == nullptr) first = &segment;
    if (first != &segment || instr.op == Op::count) return;
    ops.emplace_back(instr.op, instr.chunk);
  });
  return ops;
}

size_t place_of(const std::vector<std::pair<Op, int>>& ops, Op op, int chunk) {
  for (size_t i = 0; i < ops.size(); ++i) {
    if (ops[i] == std::pair(op, chunk)) return i;
  }
  BOOST_FAIL(op_row(op).name << " of chunk " << chunk << " is not there");
  return 0;
}

// Sending needs the counts only: the host makes the index lists while the rows are on their way.
BOOST_AUTO_TEST_CASE(rows_are_sent_before_the_host_writes_their_lists) {
  for (const int64_t chunks : {1, 3}) {
    const auto ops = ops_of(trial(chunks), false);
    BOOST_TEST(place_of(ops, Op::finish_route, -1) < place_of(ops, Op::dispatch, 0));
    BOOST_TEST(place_of(ops, Op::dispatch, 0) < place_of(ops, Op::write_route, -1));
    BOOST_TEST(place_of(ops, Op::dispatch, 0) < place_of(ops, Op::ffn_residual, -1));
    BOOST_TEST(place_of(ops, Op::write_route, -1) < place_of(ops, Op::sort_rows, 0));
  }
}

BOOST_AUTO_TEST_CASE(the_next_chunk_is_sent_before_the_experts_work_on_one) {
  constexpr int kChunks = 3;
  for (const bool is_backward : {false, true}) {
    const auto ops = ops_of(trial(kChunks), is_backward);
    const Op there = is_backward ? Op::combine : Op::dispatch;
    const Op back = is_backward ? Op::dispatch : Op::combine;
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const size_t work = place_of(ops, Op::expert_fc1, chunk);
      BOOST_TEST(place_of(ops, there, chunk) < work);
      if (chunk + 1 < kChunks) BOOST_TEST(place_of(ops, there, chunk + 1) < work);
      BOOST_TEST(work < place_of(ops, back, chunk));
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::plan

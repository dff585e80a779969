// What instructions cost: every operand in its own type, and attention by what its queries see.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <functional>

#include "engine/plan/compile.h"
#include "tests/spec/spec_samples.h"

namespace moetune::plan {
BOOST_AUTO_TEST_SUITE(costs)

namespace {

spec::TrialSpec trial(spec::DType dtype) {
  spec::TrialSpec made = spec::samples::trial();
  made.knobs = {};
  made.knobs.data_parallel_size = 2;
  made.knobs.expert_model_parallel_size = 2;
  made.hardware.num_nodes = 1;
  made.hardware.devices_per_node = 2;
  made.dtype = dtype;
  made.training.seq_length = 64;
  return made;
}

/// The first instruction of an op and pass.
Instr find(const spec::TrialSpec& spec, Op op, Pass pass) {
  Instr found;
  for_each(compile(spec, 0), [&](const Item&, const Segment&, const Instr& instr) {
    if (found.op == Op::count && instr.op == op && instr.pass == pass) found = instr;
  });
  BOOST_TEST_REQUIRE((found.op == op));
  return found;
}

BOOST_AUTO_TEST_CASE(each_operand_counts_in_its_own_type) {
  const spec::TrialSpec f32 = trial(spec::DType::f32);
  const spec::TrialSpec bf16 = trial(spec::DType::bf16);
  // T 64, h 32, q + 2 kv 64: x, w, y.
  constexpr int64_t kQkv = 64 * 32 + 64 * 32 + 64 * 64;
  BOOST_TEST(find(f32, Op::qkv_proj, Pass::forward).cost.bytes == 4 * kQkv);
  BOOST_TEST(find(bf16, Op::qkv_proj, Pass::forward).cost.bytes == 2 * kQkv);
  BOOST_TEST(find(bf16, Op::qkv_proj, Pass::forward).cost.flops == 2 * 64 * 32 * 64);
  // dy, x in bf16; the weight's gradient in f32, read and written.
  BOOST_TEST(find(bf16, Op::qkv_proj, Pass::wgrad).cost.bytes ==
             2 * (64 * 64 + 64 * 32) + 2 * 4 * 64 * 32);
  // A probability a slot, in f32 both times, and the slot's number.
  const Instr probs = find(bf16, Op::permute_probs, Pass::forward);
  BOOST_TEST(probs.cost.bytes == 3 * 4 * 64 * 2);
  // Master, gradient and weight of each element, moments in their type.
  const Instr adamw = find(bf16, Op::adamw, Pass::update);
  const int64_t numel = adamw.cost.flops / 12;
  BOOST_TEST(adamw.cost.bytes == numel * (3 * 4 + 4 * 4 + 2));
  BOOST_TEST(find(f32, Op::adamw, Pass::update).cost.bytes == numel * (3 * 4 + 4 * 4 + 4));
  spec::TrialSpec narrow = bf16;
  narrow.knobs.exp_avg_sq_dtype = spec::MomentType::bf16;
  BOOST_TEST(find(narrow, Op::adamw, Pass::update).cost.bytes ==
             numel * (3 * 4 + 2 * 4 + 2 * 2 + 2));
}

BOOST_AUTO_TEST_CASE(rows_of_experts_cost_as_many_as_arrive) {
  const Instr fc1 = find(trial(spec::DType::f32), Op::expert_fc1, Pass::forward);
  BOOST_TEST(fc1.is_routed);
  // 4 local experts, f 16: their weights are read whatever arrives.
  BOOST_TEST(fc1.cost.flops == 0);
  BOOST_TEST(fc1.cost.bytes >= 4 * 4 * 2 * 16 * 32);
  BOOST_TEST(fc1.cost_per_row.flops == 2 * 32 * 2 * 16);
  BOOST_TEST(cost_at(fc1, 10).flops == 10 * fc1.cost_per_row.flops);
}

BOOST_AUTO_TEST_CASE(few_rows_for_each_matrix_are_slower_by_the_row) {
  spec::TrialSpec spec = trial(spec::DType::f32);
  const Instr qkv = find(spec, Op::qkv_proj, Pass::forward);
  const Instr fc1 = find(spec, Op::expert_fc1, Pass::forward);
  const Instr wgrad = find(spec, Op::expert_fc1, Pass::wgrad);
  BOOST_TEST(qkv.cost.row_flops == 2 * 32 * 64);
  BOOST_TEST(fc1.cost.row_flops == 4 * fc1.cost_per_row.flops);  // a row for each local expert
  BOOST_TEST(cost_at(wgrad, 10).row_flops == fc1.cost.row_flops);
  spec.hardware.peak_flops_per_s = 1e9;
  spec.hardware.memory_bytes_per_s = 0;
  spec.hardware.kernel_floor_ns = 0;
  spec.hardware.half_rows[static_cast<size_t>(spec::Work::grouped)] = 16;
  // 16 rows for each of 4 experts: half of the rate; three times as many: three quarters.
  const OpCost few = cost_at(fc1, 4 * 16);
  BOOST_TEST(roofline_ns(spec.hardware, Op::expert_fc1, few) == 2 * few.flops);
  const OpCost many = cost_at(fc1, 4 * 48);
  BOOST_TEST(roofline_ns(spec.hardware, Op::expert_fc1, many) == many.flops * 4 / 3);
  // Other kinds have lengths of their own.
  BOOST_TEST(roofline_ns(spec.hardware, Op::qkv_proj, qkv.cost) == qkv.cost.flops);
}

BOOST_AUTO_TEST_CASE(attention_costs_what_its_window_sees) {
  LayerDims dims;
  dims.sequences = 2;
  dims.context_tokens = 2 * 6;
  BOOST_TEST(visible_pairs(dims) == 2 * (1 + 2 + 3 + 4 + 5 + 6));
  dims.window = 2;
  BOOST_TEST(visible_pairs(dims) == 2 * (1 + 2 + 2 + 2 + 2 + 2));
  dims.window = 100;
  BOOST_TEST(visible_pairs(dims) == 2 * 21);

  spec::TrialSpec windowed = trial(spec::DType::f32);
  const Instr whole = find(windowed, Op::core_attn, Pass::forward);
  windowed.model.attention_window.assign(windowed.model.attention_window.size(), 8);
  const Instr few = find(windowed, Op::core_attn, Pass::forward);
  BOOST_TEST(whole.cost.flops == 4 * (64 * 65 / 2) * windowed.model.q_size());
  BOOST_TEST(few.cost.flops == 4 * (8 * 9 / 2 + 56 * 8) * windowed.model.q_size());
}

BOOST_AUTO_TEST_CASE(attention_in_chunks_sees_the_keys_of_its_own) {
  LayerDims dims;
  dims.sequences = 2;
  dims.context_tokens = 2 * 8;
  dims.window = 3;
  dims.is_chunked = true;
  BOOST_TEST(visible_pairs(dims) == 2 * (6 + 6 + 3));
  dims.window = 8;
  BOOST_TEST(visible_pairs(dims) == 2 * 36);
  dims.window = 100;
  BOOST_TEST(visible_pairs(dims) == 2 * 36);
  // Positions 0, 1, 6 and 7 of eight, and 2 to 5, by chunks of 3: pairs that ranks split.
  dims.window = 3;
  dims.sequences = 1;
  dims.context_tokens = 8;
  dims.cp = 2;
  const auto pairs = [&](int64_t queries_of, int64_t keys_of) {
    dims.cp_rank = queries_of;
    return visible_pairs(dims, keys_of);
  };
  BOOST_TEST(pairs(0, 0) == 3 + 3);
  BOOST_TEST(pairs(0, 1) == 0);
  BOOST_TEST(pairs(1, 0) == 2);
  BOOST_TEST(pairs(1, 1) == 1 + 6);
}

// FLOPs of attention over 2^28 tokens do not fit 64 bits: what is beyond them is kept beside.
BOOST_AUTO_TEST_CASE(attention_over_millions_of_tokens_does_not_overflow) {
  LayerDims dims;
  dims.sequences = 1;
  const auto forward = [&](int64_t tokens) {
    dims.context_tokens = tokens;
    constexpr int64_t kCols = 8192;
    const std::vector<OperandShape> operands(5, {tokens, kCols, 2});
    return op_cost(Op::core_attn, Pass::forward, dims, operands);
  };
  // 2 FLOPs, 2 x 8192 columns, n (n + 1) / 2 pairs.
  const OpCost few = forward(1024);
  BOOST_TEST(few.flops == 2 * 2 * 8192 * (1024LL * 1025 / 2));
  BOOST_TEST(few.more_flops == 0);
  const OpCost many = forward(int64_t{1} << 28);
  BOOST_TEST(many.flops == int64_t{1} << 62);
  BOOST_TEST(many.all_flops() == std::ldexp(1.0, 70), boost::test_tools::tolerance(1e-6));
  spec::HardwareSpec hardware;
  hardware.peak_flops_per_s = 1e15;
  BOOST_TEST(roofline_ns(hardware, Op::core_attn, many) > int64_t{1'180'000} * 1'000'000'000);
}

/// Query-key pairs of each attention of the first layer's forward pass, in order.
std::vector<int64_t> pairs_of(const spec::TrialSpec& spec, int rank) {
  std::vector<int64_t> pairs;
  for_each(compile(spec, rank), [&](const Item& item, const Segment&, const Instr& instr) {
    if (item.layer != 0 || item.micro_batch != 0) return;
    if (instr.op != Op::core_attn || instr.pass != Pass::forward) return;
    pairs.push_back(instr.cost.flops / (4 * spec.model.q_size()));
  });
  return pairs;
}

struct ContextRank {
  spec::CpCommType type;
  int64_t window;
  int rank;
  std::vector<int64_t> pairs;
};

// Sequences of 64 in eight chunks of 8: rank r has chunks r and 7 - r. A chunk sees 36 pairs of its
// own keys, 64 of an earlier chunk's; with a window of 8 only 28 of the one before it.
BOOST_AUTO_TEST_CASE(a_context_rank_sees_what_its_positions_see) {
  constexpr auto kRing = spec::CpCommType::p2p;
  constexpr auto kGathered = spec::CpCommType::all_gather;
  const ContextRank kCases[] = {
      {kRing, 0, 0, {2 * 36 + 64, 128, 128, 128}},
      {kRing, 0, 3, {2 * 36 + 64, 128, 128, 128}},
      {kGathered, 0, 2, {2 * 36 + (2 + 5) * 64}},
      // Of rank 0 only the last chunk has one before it, of rank 1.
      {kRing, 8, 0, {72, 0, 0, 28}},
      {kRing, 8, 1, {72, 28, 0, 28}},
      {kRing, 8, 2, {72, 28, 0, 28}},
      {kRing, 8, 3, {72 + 28, 28, 0, 0}},
      {kGathered, 8, 0, {100}},
      {kGathered, 8, 1, {128}},
  };
  for (const ContextRank& each : kCases) {
    spec::TrialSpec spec = trial(spec::DType::f32);
    spec.knobs = {};
    spec.knobs.context_parallel_size = 4;
    spec.knobs.cp_comm_type = each.type;
    spec.model.attention_window.assign(spec.model.attention_window.size(), each.window);
    BOOST_TEST_CONTEXT((each.type == kRing ? "ring" : "gathered")
                       << ", window " << each.window << ", rank " << each.rank) {
      BOOST_TEST(pairs_of(spec, each.rank) == each.pairs, boost::test_tools::per_element());
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::plan

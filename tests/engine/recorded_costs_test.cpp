// What the program says that its ops cost is what the arguments of their calls come to: bytes of
// every operand in its own type, FLOPs of products and of attention.
#include <fmt/format.h>

#include <boost/test/unit_test.hpp>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "tests/engine/program_on_tape.h"
#include "tests/engine/recorded_layouts.h"
#include "tests/engine/recorded_run.h"

namespace moetune::engine {
namespace {

using plan::Op;
using plan::Pass;
using testing::PricedOp;

/// What is known to be priced wrongly; recomputation is as forward. Whoever mends one takes it out.
constexpr std::pair<Op, Pass> kKnownWrongCosts[] = {
    {Op::embed, Pass::forward},          {Op::embed, Pass::backward},
    {Op::attn_norm, Pass::forward},      {Op::attn_norm, Pass::backward},
    {Op::qkv_proj, Pass::forward},       {Op::qkv_proj, Pass::wgrad},
    {Op::qkv_bias, Pass::backward},      {Op::qk_norm, Pass::forward},
    {Op::qk_norm, Pass::backward},       {Op::rope, Pass::forward},
    {Op::rope, Pass::backward},          {Op::kv_reorder, Pass::forward},
    {Op::kv_reorder, Pass::backward},    {Op::core_attn, Pass::forward},
    {Op::core_attn, Pass::backward},     {Op::o_proj, Pass::forward},
    {Op::o_proj, Pass::wgrad},           {Op::o_bias, Pass::backward},
    {Op::mlp_norm, Pass::forward},       {Op::mlp_norm, Pass::backward},
    {Op::router_gemm, Pass::forward},    {Op::router_gemm, Pass::backward},
    {Op::router_gemm, Pass::wgrad},      {Op::router, Pass::forward},
    {Op::router, Pass::backward},        {Op::aux_loss, Pass::forward},
    {Op::moe_preprocess, Pass::forward}, {Op::permute, Pass::forward},
    {Op::permute, Pass::backward},       {Op::permute_probs, Pass::forward},
    {Op::permute_probs, Pass::backward}, {Op::sort_rows, Pass::forward},
    {Op::sort_rows, Pass::backward},     {Op::sort_probs, Pass::forward},
    {Op::sort_probs, Pass::backward},    {Op::expert_fc1, Pass::forward},
    {Op::expert_fc1, Pass::backward},    {Op::expert_fc1, Pass::wgrad},
    {Op::expert_act, Pass::forward},     {Op::expert_act, Pass::backward},
    {Op::expert_fc2, Pass::forward},     {Op::expert_fc2, Pass::backward},
    {Op::expert_fc2, Pass::wgrad},       {Op::unsort_rows, Pass::forward},
    {Op::unsort_rows, Pass::backward},   {Op::unpermute, Pass::forward},
    {Op::unpermute, Pass::backward},     {Op::shared_fc1, Pass::backward},
    {Op::shared_fc1, Pass::wgrad},       {Op::shared_fc2, Pass::forward},
    {Op::shared_fc2, Pass::wgrad},       {Op::mlp_fc1, Pass::forward},
    {Op::mlp_fc1, Pass::wgrad},          {Op::mlp_fc2, Pass::forward},
    {Op::mlp_fc2, Pass::wgrad},          {Op::mlp_bias, Pass::backward},
    {Op::final_norm, Pass::forward},     {Op::final_norm, Pass::backward},
    {Op::lm_head, Pass::wgrad},          {Op::cross_entropy, Pass::forward},
    {Op::grad_norm, Pass::update},       {Op::adamw, Pass::update},
};

/// A handful of FLOPs an element is all that rows, norms and activations do.
constexpr int64_t kMostFlopsPerElement = 16;

using Label = std::pair<Op, Pass>;

/// Compares one price after the other.
class Prices {
 public:
  /// Why the price is wrong; empty when it is right.
  std::string check(const PricedOp& op) {
    if (op.told.bytes != op.counted.bytes) {
      return fmt::format("{} bytes, counted {}", op.told.bytes, op.counted.bytes);
    }
    if (op.counted.flops >= 0) {
      if (op.told.flops == op.counted.flops) return {};
      return fmt::format("{} FLOPs, counted {}", op.told.flops, op.counted.flops);
    }
    // No call declares these, but they are the same small number for each element.
    if (op.counted.elements == 0) {
      return op.told.flops == 0 ? "" : fmt::format("{} FLOPs of nothing", op.told.flops);
    }
    const int64_t each = op.told.flops / op.counted.elements;
    const int64_t known = per_element_.try_emplace(label_of(op), each).first->second;
    if (each * op.counted.elements == op.told.flops && each == known &&
        each <= kMostFlopsPerElement) {
      return {};
    }
    return fmt::format("{} FLOPs for {} elements, {} for each elsewhere", op.told.flops,
                       op.counted.elements, known);
  }

  static Label label_of(const PricedOp& op) {
    return {op.op, op.pass == Pass::recompute ? Pass::forward : op.pass};
  }

 private:
  std::map<Label, int64_t> per_element_;
};

BOOST_AUTO_TEST_SUITE(recorded_costs)

BOOST_AUTO_TEST_CASE(costs_are_those_of_the_arguments) {
  Prices prices;
  std::map<Label, std::string> wrong;  ///< an example of each
  testing::for_recorded_ranks([&](const spec::TrialSpec& trial, int rank) {
    const testing::RecordedRun run = testing::record_rank(trial, rank);
    const testing::ProgramOnTape on_tape = testing::follow(trial, run, run.program);
    for (const PricedOp& op : on_tape.priced_ops()) {
      const std::string why = prices.check(op);
      if (why.empty()) continue;
      wrong.try_emplace(Prices::label_of(op), fmt::format("{} {}: {}", trial.dtype, op.where, why));
    }
  });
  for (const auto& [op, pass] : kKnownWrongCosts) {
    BOOST_TEST(wrong.erase({op, pass}) == 1U,
               plan::op_label(op, pass) << " is priced rightly: take it out of kKnownWrongCosts");
  }
  for (const auto& [label, why] : wrong) BOOST_ERROR(why);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace moetune::engine

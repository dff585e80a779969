// The table of what plans can choose: text there and back, and what is refused.
#include "engine/spec/plan_knobs.h"

#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "tests/spec/spec_samples.h"

namespace moetune::spec {

using samples::contains;
using samples::usage_error;

BOOST_AUTO_TEST_SUITE(plan_knobs)

namespace {

const PlanKnobRow& row(std::string_view name) {
  const PlanKnobRow* found = find_plan_knob(name);
  BOOST_REQUIRE_MESSAGE(found != nullptr, name);
  return *found;
}

std::string error_of(std::string_view name, std::string_view value) {
  PlanKnobs knobs;
  return usage_error([&] { set_plan_knob(knobs, row(name), value); });
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_row_reads_what_it_writes) {
  std::set<std::string_view> names;
  for (const PlanKnobRow& each : plan_knob_table()) {
    BOOST_TEST_CONTEXT(each.name) {
      BOOST_TEST(names.insert(each.name).second);
      BOOST_TEST(!each.help.empty());
      BOOST_TEST(!each.values.empty());
      PlanKnobs knobs;
      set_plan_knob(knobs, each, get_plan_knob(knobs, each));
      BOOST_TEST((knobs == PlanKnobs{}));
    }
  }
}

// Text and value tell the same apart.
BOOST_AUTO_TEST_CASE(values_are_the_same_where_their_text_is) {
  PlanKnobs other;
  for (const auto& [name, value] :
       {std::pair{"tp", "2"}, std::pair{"recompute", "moe,mlp"},
        std::pair{"capacity_factor", "1.5"}, std::pair{"fsdp", "megatron"},
        std::pair{"sequence_parallel", "false"}}) {
    set_plan_knob(other, row(name), value);
  }
  size_t num_different = 0;
  for (const PlanKnobRow& each : plan_knob_table()) {
    BOOST_TEST_CONTEXT(each.name) {
      const bool is_same = have_same(each, PlanKnobs{}, other);
      BOOST_TEST(is_same == (get_plan_knob({}, each) == get_plan_knob(other, each)));
      BOOST_TEST(have_same(each, other, other));
      num_different += is_same ? 0 : 1;
    }
  }
  BOOST_TEST(num_different == 5U);
}

// What the engine and plans both have: one row says what each calls it.
BOOST_AUTO_TEST_CASE(sizes_of_the_grid_are_the_engines) {
  Knobs engine;
  PlanKnobs plan;
  int32_t next = 2;
  int64_t replica = 1;
  for (const LayoutSize& size : layout_sizes()) {
    BOOST_TEST_CONTEXT(size.name) {
      BOOST_TEST((row(size.name).member == PlanKnobMember(size.plan_member)));
      engine.*size.member = plan.*size.plan_member = next++;
      if (size.is_of_replica) replica *= engine.*size.member;
    }
  }
  BOOST_TEST(engine.replica_ranks() == replica);
  BOOST_TEST(plan.replica_ranks() == replica);
  BOOST_TEST(plan.stage_ranks() == engine.stage_ranks());
}

BOOST_AUTO_TEST_CASE(names_may_have_dashes) {
  BOOST_TEST(find_plan_knob("micro-batch-size") == find_plan_knob("micro_batch_size"));
  BOOST_TEST(find_plan_knob("micro_batch") == nullptr);
  BOOST_TEST(find_plan_knob("") == nullptr);
}

BOOST_AUTO_TEST_CASE(values_of_every_kind) {
  PlanKnobs knobs;
  const std::pair<const char*, const char*> values[] = {
      {"tp", "8"},
      {"precision", "fp8-blockwise"},
      {"recompute", "layernorm,moe_act"},
      {"recompute_method", "block"},
      {"recompute_num_layers", "4"},
      {"cuda_graphs", "attn,moe_router,moe_preprocess"},
      {"offload", "expert_fc1"},
      {"dispatcher", "hybridep"},
      {"fsdp", "torch"},
      {"cp_comm_type", "a2a"},
      {"cross_entropy", "chunked"},
      {"optimizer", "muon"},
      {"exp_avg", "bf16"},
      {"task", "lora"},
      {"lora_rank", "16"},
      {"sequence_parallel", "false"},
      {"optimizer_offload_ratio", "0.25"},
      {"capacity_factor", "1.1"},
      {"pad_to_capacity", "true"},
  };
  for (const auto& [name, value] : values) {
    set_plan_knob(knobs, row(name), value);
    BOOST_TEST(get_plan_knob(knobs, row(name)) == value);
  }
  BOOST_TEST(knobs.tp == 8);
  BOOST_TEST((knobs.precision == PrecisionRecipe::fp8_blockwise));
  BOOST_TEST(knobs.recompute.has(PlanRecompute::moe_act));
  BOOST_TEST(!knobs.sequence_parallel);
  BOOST_TEST(knobs.optimizer_offload_ratio == 0.25F);
  // Members in table order, once each.
  set_plan_knob(knobs, row("recompute"), "moe_act, core_attn,moe_act");
  BOOST_TEST(get_plan_knob(knobs, row("recompute")) == "core_attn,moe_act");
  set_plan_knob(knobs, row("recompute"), "full");
  BOOST_TEST(get_plan_knob(knobs, row("recompute")) == "full");
  const nlohmann::json document = to_json(knobs);
  BOOST_TEST(document.size() == plan_knob_table().size());
  BOOST_TEST(document.at("tp") == 8);
  BOOST_TEST(document.at("sequence_parallel") == false);
  BOOST_TEST(document.at("capacity_factor") == 1.1);
  BOOST_TEST(document.at("recompute") == "full");
  BOOST_TEST(document.at("exp_avg") == "bf16");
}

BOOST_AUTO_TEST_CASE(what_is_refused_is_named) {
  const std::pair<const char*, const char*> values[] = {
      {"tp", "0"},
      {"tp", "-1"},
      {"tp", "1048577"},
      {"tp", "99999999999999999999"},
      {"tp", "2x"},
      {"tp", ""},
      {"tp", " 2"},
      {"first_stage_layers", "-1"},
      {"precision", "fp8"},
      {"recompute", "full,moe"},
      {"recompute", "x"},
      {"recompute", ""},
      {"recompute_method", "Block"},
      {"recompute_num_layers", "0"},
      {"task", "Lora"},
      {"lora_rank", "0"},
      {"sequence_parallel", "1"},
      {"exp_avg", "fp64"},
      {"optimizer_offload_ratio", "1.01"},
      {"capacity_factor", "-0.5"},
      {"capacity_factor", "nan"},
      {"capacity_factor", "inf"},
      {"capacity_factor", "1e9"},
  };
  for (const auto& [name, value] : values) {
    const std::string message = error_of(name, value);
    BOOST_TEST_CONTEXT(name << " = " << value << ": " << message) {
      BOOST_TEST(
          contains(message, std::string("knob '") + name + "' is '" + value + "', expected"));
      BOOST_TEST(contains(message, std::string(row(name).values)));
    }
  }
  BOOST_TEST(error_of("first_stage_layers", "0") == "");
  BOOST_TEST(error_of("recompute", std::string(1 << 20, 'x')).size() < 300);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::spec

// Random runs, written and read again in each dialect: what it can be told comes back.
#include <fmt/format.h>

#include <array>
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <random>

#include "engine/spec/dialects/concepts.h"
#include "engine/spec/dialects/values.h"
#include "tests/spec/dialects/dialect_samples.h"

namespace moetune::spec::dialects {

BOOST_AUTO_TEST_SUITE(round_trips_of_dialects)

namespace {

constexpr int kCases = 500;
constexpr uint32_t kSeed = 20260822;

class Dice {
 public:
  explicit Dice(uint32_t seed) : generator_(seed) {}

  int64_t upto(int64_t most) {
    return static_cast<int64_t>(generator_() % static_cast<uint64_t>(most + 1));
  }
  bool flip() { return upto(1) == 1; }
  template <class T, size_t Size>
  T one_of(const std::array<T, Size>& values) {
    return values[static_cast<size_t>(upto(Size - 1))];
  }
  template <HasNames E>
  E any() {
    const std::vector<E> values = all_values<E>();
    return values[static_cast<size_t>(upto(static_cast<int64_t>(values.size()) - 1))];
  }
  /// Any members that stand together.
  template <HasNames E>
  NamedSet<E> set() {
    NamedSet<E> set;
    for (const auto& row : NameTable<E>::kRows) {
      if (row.stands_alone) {
        if (upto(4) == 0) return {row.value};
      } else if (flip()) {
        set.add(row.value);
      }
    }
    return set;
  }

 private:
  std::mt19937 generator_;
};

RunConfig random_run(Dice& dice) {
  RunConfig run;
  PlanKnobs& k = run.knobs;
  constexpr std::array kSizes = {1, 2, 4, 8};
  k.tp = dice.one_of(kSizes);
  k.cp = dice.one_of(kSizes);
  k.pp = dice.one_of(kSizes);
  k.dp = dice.one_of(std::array{1, 2, 3, 8, 16});
  k.etp = dice.flip() ? 1 : k.tp;
  k.ep = 1;
  while (dice.flip() && (k.tp * k.cp * k.dp) % (k.etp * k.ep * 2) == 0) k.ep *= 2;
  k.vpp = k.pp == 1 ? 1 : static_cast<int32_t>(1 + dice.upto(3));
  k.micro_batch_size = static_cast<int32_t>(1 + dice.upto(7));
  if (dice.flip()) k.first_stage_layers = static_cast<int32_t>(dice.upto(9));
  if (dice.flip()) k.last_stage_layers = static_cast<int32_t>(dice.upto(9));
  k.precision = dice.any<PrecisionRecipe>();
  k.recompute = dice.set<PlanRecompute>();
  if (k.recompute.has(PlanRecompute::full)) {
    k.recompute_method = dice.any<RecomputeMethod>();
    k.recompute_num_layers = static_cast<int32_t>(1 + dice.upto(7));
  }
  k.cuda_graphs = dice.set<PlanGraph>();
  k.offload = dice.set<Offload>();
  k.dispatcher = dice.any<Dispatcher>();
  k.fsdp = dice.any<Fsdp>();
  k.cp_comm_type = dice.any<PlanCp>();
  k.cross_entropy = dice.any<CrossEntropy>();
  k.optimizer = dice.any<OptimizerKind>();
  for (const auto state : {&PlanKnobs::exp_avg, &PlanKnobs::exp_avg_sq, &PlanKnobs::main_params,
                           &PlanKnobs::main_grads}) {
    k.*state = dice.any<StateType>();
  }
  if (dice.upto(3) == 0) {
    k.exp_avg = k.exp_avg_sq = k.main_params = k.main_grads =
        dice.flip() ? StateType::bf16 : StateType::fp32;
  }
  k.task = dice.any<TrainingTask>();
  if (k.task == TrainingTask::lora) k.lora_rank = 8 << k.tp % 3;
  for (const Row& row : knob_rows()) {
    const auto* member = std::get_if<PlanKnobMember>(&row.target);
    if (member == nullptr) continue;
    if (const auto* is_on = std::get_if<bool PlanKnobs::*>(member)) k.** is_on = dice.flip();
  }
  k.optimizer_offload_ratio = dice.flip() ? 0.0F : static_cast<float>(dice.upto(10)) / 10.0F;
  k.capacity_factor = dice.flip() ? 0.0F : static_cast<float>(dice.upto(12)) / 8.0F;
  k.optimizer_instances = k.dp % 2 == 0 && dice.flip() ? 2 : 1;
  k.cuda_graph_warmup_steps = static_cast<int32_t>(dice.upto(4));
  k.moe_flex_dispatcher_num_sms = dice.flip() ? 0 : static_cast<int32_t>(4 * (1 + dice.upto(15)));
  run.world_size = int64_t{k.tp} * k.cp * k.dp * k.pp;
  run.global_batch_size = int64_t{k.dp} * k.micro_batch_size * (1 + dice.upto(63));
  run.seq_length = 1024 * (1 + dice.upto(31));
  if (dice.flip()) {
    k.cuda_device_max_connections = dice.flip() ? 1 : 32;
    run.environment["CUDA_DEVICE_MAX_CONNECTIONS"] =
        fmt::format("{}", k.cuda_device_max_connections);
  }
  if (dice.flip()) run.environment["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True";
  return run;
}

/// Stages by hand, in the place of what they contradict.
void write_stages_by_hand(RunConfig& run) {
  PlanKnobs& k = run.knobs;
  k.first_stage_layers = k.last_stage_layers = 0;
  const int stages = k.pp * k.vpp;
  if (stages > 1)
    run.pipeline_layout =
        fmt::format("Et|{}tL", stages > 2 ? fmt::format("(t|)*{}", stages - 2) : "");
}

/// What Megatron asks for beside other choices is written along.
void add_what_follows(RunConfig& run, Dialect dialect) {
  PlanKnobs& k = run.knobs;
  const bool has_narrow_moments = k.exp_avg != StateType::fp32 || k.exp_avg_sq != StateType::fp32;
  if (k.optimizer_offload_ratio > 0 || has_narrow_moments || k.main_params != StateType::fp32) {
    k.precision_aware_optimizer = true;
  }
  if (k.fsdp == Fsdp::torch) k.distributed_optimizer = k.gradient_accumulation_fusion = false;
  if (!k.distributed_optimizer && k.fsdp != Fsdp::megatron) k.overlap_param_gather = false;
  if (!k.offload.empty()) run.environment["NVTE_CPU_OFFLOAD_V1"] = "1";
  if (k.dispatcher == Dispatcher::deepep && dialect != Dialect::primus) k.pad_to_capacity = false;
  const bool is_deepep = k.dispatcher == Dispatcher::deepep ||
                         (dialect == Dialect::primus && k.dispatcher == Dispatcher::hybridep);
  const bool is_captured =
      k.cuda_graphs.has(PlanGraph::moe) || k.cuda_graphs.has(PlanGraph::full_iteration);
  if (is_captured && k.capacity_factor > 0 && !is_deepep) k.pad_to_capacity = true;
  const bool has_parts = !k.cuda_graphs.empty() && !k.cuda_graphs.has(PlanGraph::full_iteration);
  if (has_parts && run.environment.contains("PYTORCH_CUDA_ALLOC_CONF")) {
    run.environment["NCCL_GRAPH_REGISTER"] = "0";
  }
  if (dialect == Dialect::primus && k.precision == PrecisionRecipe::mxfp8) {
    run.environment["NVTE_ROCM_ENABLE_MXFP8"] = "1";
  }
}

/// What cannot be said is not compared: it becomes what the dialect always has.
void leave_out(RunConfig& run, Dialect dialect) {
  PlanKnobs& k = run.knobs;
  for (const Row& row : knob_rows()) {
    const auto* member = std::get_if<PlanKnobMember>(&row.target);
    const bool is_left_out = member != nullptr && row.keys[static_cast<size_t>(dialect)].empty();
    if (!is_left_out) continue;
    BOOST_REQUIRE_MESSAGE(set_text(k, *member, fallback_of(row, dialect)), row.name);
  }
  if (dialect != Dialect::torchtitan) {
    add_what_follows(run, dialect);
    if (k.main_grads != StateType::bf16) k.main_grads = StateType::fp32;
    if (k.cross_entropy == CrossEntropy::chunked && dialect != Dialect::primus) {
      k.cross_entropy = CrossEntropy::unfused;
    }
    if (k.dispatcher == Dispatcher::hybridep && dialect == Dialect::primus) {
      k.dispatcher = Dispatcher::deepep;
    }
    const bool has_task = k.task != TrainingTask::lora || dialect != Dialect::megatron_lm;
    if (!has_task) k.task = TrainingTask::pretrain;
    if (dialect == Dialect::megatron_bridge) k.fp8_param_gather = preset_gathers_fp8(k);
    return;
  }
  const bool is_alone = k.tp == 1 && k.cp == 1 && k.pp == 1 && k.ep == 1;
  const bool is_replicated = k.fsdp == Fsdp::none && !k.distributed_optimizer && is_alone;
  const bool needs_shards = !is_replicated && (k.ep > 1 || (!is_alone && k.cp == 1));
  if (needs_shards && k.optimizer_instances == k.dp) k.optimizer_instances = 1;
  const bool is_sharded = !is_replicated && (k.dp / k.optimizer_instances > 1 || k.cp > 1);
  k.fsdp = is_sharded ? Fsdp::torch : Fsdp::none;
  k.distributed_optimizer = is_sharded;
  if (!is_sharded) k.optimizer_instances = 1;
  if (k.pp > 1 && k.vpp > 2) k.vpp = 2;
  const bool has_precision =
      k.precision != PrecisionRecipe::fp16 && k.precision != PrecisionRecipe::fp8_delayed &&
      k.precision != PrecisionRecipe::fp8_blockwise && k.precision != PrecisionRecipe::nvfp4;
  if (!has_precision) k.precision = PrecisionRecipe::bf16;
  const bool are_narrow = k.exp_avg == StateType::bf16 && k.exp_avg_sq == StateType::bf16 &&
                          k.main_params == StateType::bf16 && k.main_grads == StateType::bf16;
  k.exp_avg = k.exp_avg_sq = k.main_params = k.main_grads =
      are_narrow ? StateType::bf16 : StateType::fp32;
  // All of it in bf16 leaves nothing in fp32.
  if (are_narrow && k.precision == PrecisionRecipe::fp32) k.precision = PrecisionRecipe::bf16;
  // By operation, whatever is asked for.
  if (!k.recompute.has(PlanRecompute::full) && !k.recompute.empty()) {
    k.recompute = {PlanRecompute::layernorm, PlanRecompute::moe_act};
  }
  if (k.dispatcher == Dispatcher::allgather || k.dispatcher == Dispatcher::hybridep) {
    k.dispatcher = Dispatcher::alltoall;
  }
  if (k.cp_comm_type == PlanCp::a2a) k.cp_comm_type = PlanCp::all_gather;
  if (k.cross_entropy != CrossEntropy::unfused) k.cross_entropy = CrossEntropy::native;
  if (k.optimizer != OptimizerKind::adam) k.optimizer = OptimizerKind::adam;
  if (k.optimizer_offload_ratio > 0) k.optimizer_offload_ratio = 1;
}

/// "tp=2 (not 4), ...": the knobs that differ.
std::string differences(const PlanKnobs& found, const PlanKnobs& expected) {
  std::string text;
  for (const Row& row : knob_rows()) {
    const auto* member = std::get_if<PlanKnobMember>(&row.target);
    if (member == nullptr || text_of(found, *member) == text_of(expected, *member)) continue;
    text += fmt::format("{}={} (not {}), ", row.name, text_of(found, *member),
                        text_of(expected, *member));
  }
  return text;
}

}  // namespace

BOOST_DATA_TEST_CASE(what_is_written_is_read, boost::unit_test::data::make(samples::kDialects),
                     dialect) {
  Dice dice(kSeed);
  for (int i = 0; i < kCases; ++i) {
    RunConfig run = random_run(dice);
    const bool has_layouts = dialect != Dialect::torchtitan;
    if (has_layouts && i % 5 == 0) write_stages_by_hand(run);
    const std::string text = export_run(run, dialect);
    leave_out(run, dialect);
    BOOST_TEST_CONTEXT("case " << i << "\n" << text) {
      BOOST_TEST((detect_dialect(text) == dialect));
      RunConfig found;
      BOOST_REQUIRE_NO_THROW(found = import_run(text, dialect));
      BOOST_TEST(differences(found.knobs, run.knobs) == "");
      BOOST_TEST((found.knobs == run.knobs));
      BOOST_TEST(found.global_batch_size == run.global_batch_size);
      BOOST_TEST(found.seq_length == run.seq_length);
      BOOST_TEST(found.world_size == run.world_size);
      BOOST_TEST(found.pipeline_layout == run.pipeline_layout);
      BOOST_TEST((found.environment == run.environment));
      // How torchtitan chooses what to recompute is passed on.
      std::erase(found.unknown,
                 UnknownSetting{"activation_checkpoint.selective_ac_option", "\"op\""});
      // And so is what no knob stands for and other choices imply.
      std::vector<UnknownSetting> others = found.unknown;
      std::erase_if(others, [&](const UnknownSetting& setting) {
        return find_carried(setting.key, dialect) != nullptr;
      });
      BOOST_TEST(others.empty());
      // And nothing changes when it is written once more.
      const std::string again = export_run(found, dialect);
      BOOST_TEST(export_run(import_run(again, dialect), dialect) == again);
    }
  }
}

// Megatron's assertions ask for these; what a run says itself stays.
BOOST_AUTO_TEST_CASE(what_choices_imply_is_written) {
  const auto text_with = [](Dialect dialect, auto&& change) {
    RunConfig run;
    run.dialect = dialect;
    change(run);
    return export_run(run, dialect);
  };
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  using enum Dialect;
  const auto offloads = [](RunConfig& run) { run.knobs.offload = {Offload::core_attn}; };
  BOOST_TEST(has(text_with(megatron_lm, offloads), "NVTE_CPU_OFFLOAD_V1=1"));
  BOOST_TEST(has(text_with(primus, offloads), "# moetune: NVTE_CPU_OFFLOAD_V1=1"));
  BOOST_TEST(!has(text_with(torchtitan, offloads), "NVTE_CPU_OFFLOAD_V1"));
  BOOST_TEST(has(text_with(megatron_lm,
                           [&](RunConfig& run) {
                             offloads(run);
                             run.environment["NVTE_CPU_OFFLOAD_V1"] = "0";
                           }),
                 "NVTE_CPU_OFFLOAD_V1=0"));
  const auto captures = [](PlanGraphSet graphs) {
    return [graphs](RunConfig& run) {
      run.environment["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True";
      run.knobs.cuda_graphs = graphs;
    };
  };
  BOOST_TEST(has(text_with(megatron_bridge, captures({PlanGraph::attn})), "NCCL_GRAPH_REGISTER=0"));
  BOOST_TEST(!has(text_with(megatron_bridge, captures({PlanGraph::full_iteration})),
                  "NCCL_GRAPH_REGISTER"));
  const std::string host =
      text_with(megatron_lm, [](RunConfig& run) { run.knobs.optimizer_offload_ratio = 0.5F; });
  BOOST_TEST(has(host, "--use-precision-aware-optimizer"), host);
  const std::string sharded =
      text_with(megatron_lm, [](RunConfig& run) { run.knobs.fsdp = Fsdp::torch; });
  BOOST_TEST(has(sharded, "--no-gradient-accumulation-fusion"), sharded);
  BOOST_TEST(!has(sharded, "--use-distributed-optimizer"), sharded);
  BOOST_TEST(!has(sharded, "--overlap-param-gather"), sharded);
  BOOST_TEST(has(text_with(megatron_lm, [](RunConfig& run) { run.knobs.fsdp = Fsdp::megatron; }),
                 "--overlap-param-gather"));
  const std::string whole =
      text_with(primus, [](RunConfig& run) { run.knobs.distributed_optimizer = false; });
  BOOST_TEST(!has(whole, "overlap_param_gather"), whole);
  for (const auto state : {&PlanKnobs::exp_avg, &PlanKnobs::exp_avg_sq, &PlanKnobs::main_params}) {
    const std::string narrow =
        text_with(megatron_lm, [&](RunConfig& run) { run.knobs.*state = StateType::fp16; });
    BOOST_TEST(has(narrow, "--use-precision-aware-optimizer"), narrow);
  }
  const auto pads = [](Dispatcher dispatcher) {
    return [dispatcher](RunConfig& run) {
      run.knobs.cuda_graphs = {PlanGraph::moe};
      run.knobs.capacity_factor = 1.5F;
      run.knobs.dispatcher = dispatcher;
    };
  };
  BOOST_TEST(has(text_with(megatron_lm, pads(Dispatcher::alltoall)),
                 "--moe-pad-expert-input-to-capacity"));
  BOOST_TEST(!has(text_with(megatron_lm, pads(Dispatcher::deepep)), "--moe-pad-expert"));
  const std::string stashed = text_with(megatron_bridge, [](RunConfig& run) {
    run.knobs.cuda_graphs = {PlanGraph::full_iteration};
    run.knobs.fused_grouped_mlp = true;
  });
  BOOST_TEST(has(stashed, "model.moe_paged_stash=true"), stashed);
  BOOST_TEST(has(stashed, "# model.moe_expert_rank_capacity_factor goes with"), stashed);
  const std::string turbo =
      text_with(primus, [](RunConfig& run) { run.knobs.dispatcher = Dispatcher::deepep; });
  BOOST_TEST(has(turbo, "moe_router_dtype: fp32"), turbo);
  const std::string chosen = text_with(primus, [](RunConfig& run) {
    run.knobs.dispatcher = Dispatcher::deepep;
    run.unknown.push_back({"moe_router_dtype", "fp64"});
  });
  BOOST_TEST(has(chosen, "moe_router_dtype: fp64"), chosen);
  const std::string overlapped = text_with(megatron_lm, [](RunConfig& run) {
    run.knobs.overlap_moe_expert_parallel_comm = true;
    run.unknown.push_back({"--moe-shared-expert-overlap", ""});
  });
  BOOST_TEST(!has(overlapped, "--moe-shared-expert-overlap"), overlapped);
  BOOST_TEST(has(overlapped, "# moe_shared_expert_overlap is left out"), overlapped);
  const auto padded_for = [&](Dialect dialect, Dispatcher dispatcher) {
    RunConfig run;
    run.knobs.dispatcher = dispatcher;
    run.knobs.pad_to_capacity = true;
    return export_run(run, dialect);
  };
  BOOST_TEST(has(padded_for(megatron_lm, Dispatcher::alltoall), "--moe-pad-expert-input"));
  const std::string sent = padded_for(megatron_bridge, Dispatcher::deepep);
  BOOST_TEST(!has(sent, "moe_pad_expert_input_to_capacity=true"), sent);
  BOOST_TEST(has(sent, "moe_pad_expert_input_to_capacity=false"), sent);
  BOOST_TEST(has(sent, "# moe_pad_expert_input_to_capacity is left out: DeepEP excludes it"), sent);
}

// What is searched for a framework follows from this.
BOOST_AUTO_TEST_CASE(a_dialect_has_words_for_a_value_or_not) {
  struct Value {
    Dialect dialect;
    const char* knob;
    const char* value;
    bool can_be_said;
  };
  using enum Dialect;
  const Value kValues[] = {
      {torchtitan, "dispatcher", "hybridep", false},
      {torchtitan, "dispatcher", "deepep", true},
      {torchtitan, "dispatcher", "alltoall", true},
      {torchtitan, "recompute", "moe_act", false},
      {torchtitan, "recompute", "layernorm,moe_act", false},  // and every second product
      {torchtitan, "recompute", "full", true},
      {torchtitan, "recompute", "none", true},
      {torchtitan, "fsdp", "megatron", false},
      {torchtitan, "fsdp", "none", false},  // with sharded state
      {torchtitan, "fsdp", "torch", true},
      {torchtitan, "cuda_graphs", "attn", false},
      {torchtitan, "cuda_graphs", "none", true},
      {torchtitan, "overlap_moe_expert_parallel_comm", "true", false},
      {torchtitan, "cp_comm_type", "a2a", false},
      {torchtitan, "cross_entropy", "chunked", false},
      {torchtitan, "cross_entropy", "native", true},
      {torchtitan, "precision", "nvfp4", false},
      {torchtitan, "exp_avg", "bf16", false},  // beside types of 32 bits
      {torchtitan, "precision", "fp8-current-scaling", true},
      {torchtitan, "vpp", "2", true},
      {torchtitan, "vpp", "3", false},  // 32 layers on 2 x 3 stages
      {torchtitan, "vpp", "4", true},
      {primus, "dispatcher", "hybridep", false},
      {primus, "cross_entropy", "chunked", true},
      {megatron_lm, "dispatcher", "hybridep", true},
      {megatron_lm, "cross_entropy", "chunked", false},
      {megatron_lm, "recompute", "layernorm,moe_act", true},
      {megatron_lm, "vpp", "3", true},
      {megatron_bridge, "cp_comm_type", "a2a", true},
      {megatron_bridge, "fp8_param_gather", "true", false},  // a preset has it or not
      {megatron_bridge, "cross_entropy", "chunked", false},
  };
  for (const Value& value : kValues) {
    RunConfig run;
    run.model = {{"model_type", "llama"}, {"num_hidden_layers", 32}};
    run.knobs.dp = 2;
    run.knobs.pp = 2;
    set_plan_knob(run.knobs, *find_plan_knob(value.knob), value.value);
    BOOST_TEST(can_say(run, value.knob, value.dialect) == value.can_be_said,
               name_of(value.dialect) << " " << value.knob << " " << value.value);
  }
}

BOOST_AUTO_TEST_CASE(what_a_dialect_cannot_be_told_it_does_by_itself) {
  PlanKnobs knobs;
  knobs.cuda_graphs = {PlanGraph::attn};
  knobs.tp = 4;
  follow_defaults(knobs, Dialect::torchtitan);
  BOOST_TEST(knobs.cuda_graphs.empty());
  BOOST_TEST(!knobs.moe_permute_fusion);
  BOOST_TEST(!knobs.gradient_accumulation_fusion);
  BOOST_TEST(knobs.tp == 4);
  PlanKnobs others;
  follow_defaults(others, Dialect::megatron_lm);
  BOOST_TEST((others == PlanKnobs{}));
}

BOOST_AUTO_TEST_CASE(every_knob_has_a_row) {
  size_t count = 0;
  for (const Row& row : knob_rows()) {
    count += std::holds_alternative<PlanKnobMember>(row.target) ? 1 : 0;
  }
  // As many as PlanKnobs has members: one that is added there has to be spelled here.
  BOOST_TEST(count == 50U);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::spec::dialects

// Remedies for runs of other frameworks: settings in their own words, what is set already left out,
// what a rule forbids named.
#include "sweeps/runs/remedies.h"

#include <algorithm>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <initializer_list>
#include <set>

#include "sweeps/planning/machines.h"
#include "sweeps/planning/named_files.h"

namespace moetune::sweeps {

namespace data = boost::unit_test::data;
namespace dialects = spec::dialects;

namespace {

constexpr const char* kMendedCommand =
    "torchrun pretrain_gpt.py --bf16 --tensor-model-parallel-size 2 --sequence-parallel "
    "--pipeline-model-parallel-size 4 --expert-model-parallel-size 8 --num-experts 128 "
    "--moe-router-topk 8 --num-layers 48 --hidden-size 2048 --num-attention-heads 32 "
    "--seq-length 4096 --micro-batch-size 2 --global-batch-size 256 "
    "--moe-token-dispatcher-type alltoall --recompute-granularity full --recompute-method uniform "
    "--recompute-num-layers 1 --use-distributed-optimizer";

RunToMend run_of(const std::string& command) {
  dialects::ImportOptions how;
  how.world_size = 64;
  RunToMend run;
  run.config = dialects::import_run(command, dialects::Dialect::megatron_lm, how);
  run.config->knobs.dp = static_cast<int32_t>(64 / run.config->knobs.replica_ranks());
  run.model = model_named("qwen3-30b-a3b");
  run.hardware = machine_of("h100-80g", 64);
  return run;
}

FoundWall wall_of(const std::string& label, const std::string& sub_cause, double share) {
  return {base::wall_from_name(label).value(), sub_cause, {{label, share}}};
}

const Remedy* find(const std::vector<Remedy>& remedies, std::string_view rule) {
  const auto found = std::ranges::find(remedies, rule, &Remedy::rule);
  return found == remedies.end() ? nullptr : &*found;
}

struct Expected {
  const char* label;
  const char* sub_cause;
  const char* rule;
  const char* flag;
};
std::ostream& operator<<(std::ostream& out, const Expected& row) { return out << row.rule; }

const Expected kExpected[] = {
    {"host", "launch", "fused_permutation", "--moe-permute-fusion"},
    {"host", "launch", "larger_micro_batch", "--micro-batch-size 4"},
    {"host", "allocator", "expandable_segments",
     "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"},
    {"communication", "transfer", "overlap_of_gradients", "--overlap-grad-reduce"},
    {"communication", "transfer", "overlap_of_experts", "--overlap-moe-expert-parallel-comm"},
    {"communication", "transfer", "less_tensor_parallelism", "--tensor-model-parallel-size 1"},
    {"communication", "one link", "hybrid_dispatcher", "--moe-flex-dispatcher-backend hybridep"},
    {"pipeline", "bubble", "more_micro_batches", "--micro-batch-size 1"},
    {"pipeline", "bubble", "fewer_stages", "--pipeline-model-parallel-size 2"},
    {"memory", "recompute", "selective_recomputation", "--recompute-granularity selective"},
    {"memory", "recompute", "selective_recomputation", "without --recompute-method"},
    {"memory", "recompute", "no_recomputation", "without --recompute-granularity"},
    {"memory", "capped micro-batch", "room_by_fused_loss", "--cross-entropy-loss-fusion"},
    {"memory", "capped micro-batch", "room_by_narrow_moments", "--micro-batch-size 4"},
    {"memory", "capped micro-batch", "room_by_narrow_moments", "--exp-avg-dtype bf16"},
    {"memory", "capped micro-batch", "room_by_more_expert_ranks",
     "--expert-model-parallel-size 16"},
    {"compute", "FLOPs", "products_in_fp8", "--fp8-recipe blockwise"}};

}  // namespace

BOOST_AUTO_TEST_SUITE(remedies)

BOOST_DATA_TEST_CASE(a_wall_has_remedies_in_the_frameworks_words, data::make(kExpected), row) {
  const std::vector<Remedy> found =
      remedies_of(wall_of(row.label, row.sub_cause, 0.3), run_of(kMendedCommand));
  const Remedy* remedy = find(found, row.rule);
  BOOST_TEST_REQUIRE(remedy != nullptr);
  std::string all;
  for (const std::string& flag : remedy->flags) all += flag + "; ";
  BOOST_TEST((std::ranges::find(remedy->flags, row.flag) != remedy->flags.end()), all);
  // Products in 8 bits take half of their time at best.
  BOOST_TEST(remedy->ceiling_ratio == (remedy->rule == "products_in_fp8" ? 0.15 : 0.3));
}

BOOST_AUTO_TEST_CASE(what_computes_is_saved_only_where_a_roofline_says_so) {
  FoundWall wall = wall_of("host", "launch", 0.2);
  wall.ceilings.emplace("compute", 0.6);  // what is left
  const auto unknown = remedies_of(wall, run_of(kMendedCommand));
  BOOST_TEST((find(unknown, "products_in_fp8") == nullptr));
  BOOST_TEST_REQUIRE(!unknown.empty());
  BOOST_TEST(unknown.front().ceiling_ratio == 0.2);
  wall.cause_ceilings = {{"launch", 0.2}, {"FLOPs", 0.5}, {"occupancy", 0.01}};
  const auto known = remedies_of(wall, run_of(kMendedCommand));
  const Remedy* products = find(known, "products_in_fp8");
  BOOST_TEST_REQUIRE(products != nullptr);
  BOOST_TEST(products->ceiling_ratio == 0.25);
  BOOST_TEST((find(known, "larger_products") == nullptr));
}

// The assertion says that the setting is off, whatever is known of the configuration.
BOOST_AUTO_TEST_CASE(a_rule_that_names_a_setting_asks_for_it) {
  const std::string rule =
      "rank 0: a rule is broken: sequence parallelism is required when using expert parallelism "
      "with tensor parallelism";
  for (const RunToMend& run : {RunToMend{}, run_of(kMendedCommand)}) {
    const std::vector<Remedy> found = remedies_of_rule(rule, run);
    BOOST_TEST_REQUIRE(found.size() == 1U);
    BOOST_TEST(found[0].rule == "sequence_parallel_with_experts");
    BOOST_TEST(found[0].flags == std::vector<std::string>{"--sequence-parallel"},
               boost::test_tools::per_element());
    BOOST_TEST(found[0].is_for_failure);
  }
  const auto asks_for = [](const char* sentence, const char* flag) {
    const std::vector<Remedy> found = remedies_of_rule(sentence, RunToMend{});
    return found.size() == 1 && std::ranges::find(found[0].flags, flag) != found[0].flags.end();
  };
  BOOST_TEST(asks_for("Must use --overlap-param-gather with --overlap-grad-reduce",
                      "--overlap-grad-reduce"));
  BOOST_TEST(asks_for("--overlap-param-gather only supported with distributed optimizer",
                      "--use-distributed-optimizer"));
  for (const char* other :
       {"sequence parallelism cannot be used", "256 is not divisible by 3", ""}) {
    BOOST_TEST(remedies_of_rule(other, RunToMend{}).empty(), other);
  }
}

// The command alone says enough to see that 8 ranks cannot share 4 experts.
BOOST_AUTO_TEST_CASE(a_rule_is_checked_without_model_and_machine) {
  dialects::ImportOptions how;
  how.world_size = 8;
  RunToMend run;
  run.config = dialects::import_run(
      "torchrun --nproc_per_node=8 pretrain_gpt.py --bf16 --num-experts 4 "
      "--tensor-model-parallel-size 2 --expert-model-parallel-size 4 "
      "--expert-tensor-parallel-size 2 --micro-batch-size 1 --global-batch-size 8 --num-layers 4 "
      "--hidden-size 512 --num-attention-heads 8 --seq-length 4096",
      dialects::Dialect::megatron_lm, how);
  run.config->knobs.dp = 4;
  const auto found = remedies_of(wall_of("compute", "occupancy", 0.3), run);
  const Remedy* remedy = find(found, "whole_experts");
  BOOST_TEST_REQUIRE(remedy != nullptr);
  BOOST_TEST(remedy->refused.starts_with("ep_divides_experts"), remedy->refused);
}

BOOST_AUTO_TEST_CASE(what_is_set_already_is_not_proposed) {
  const RunToMend run = run_of(std::string(kMendedCommand) + " --overlap-grad-reduce");
  const auto found = remedies_of(wall_of("communication", "transfer", 0.3), run);
  BOOST_TEST((find(found, "overlap_of_gradients") == nullptr));
  BOOST_TEST((find(found, "overlap_of_weights") != nullptr));
}

BOOST_AUTO_TEST_CASE(what_a_rule_forbids_is_named_and_comes_last) {
  // 48 layers in 4 stages of 12: no 5 virtual stages; 2 x vpp 12 = 24 of one layer each fail.
  const RunToMend run =
      run_of(std::string(kMendedCommand) + " --num-layers-per-virtual-pipeline-stage 1");
  const auto found = remedies_of(wall_of("pipeline", "bubble", 0.3), run);
  const Remedy* remedy = find(found, "more_virtual_stages");
  BOOST_TEST_REQUIRE(remedy != nullptr);
  BOOST_TEST(!remedy->refused.empty());
  BOOST_TEST(&found.back() == remedy);
}

BOOST_AUTO_TEST_CASE(other_walls_worth_a_look_follow_by_ceiling) {
  FoundWall wall = wall_of("communication", "transfer", 0.3);
  wall.ceilings.insert({{"pipeline", 0.1}, {"memory", 0.01}});
  const auto found = remedies_of(wall, run_of(kMendedCommand));
  BOOST_TEST((find(found, "more_virtual_stages") != nullptr));
  BOOST_TEST((find(found, "selective_recomputation") == nullptr));
  for (size_t i = 1; i < found.size(); ++i) {
    if (!found[i].refused.empty()) break;
    BOOST_TEST(found[i - 1].ceiling_ratio >= found[i].ceiling_ratio);
  }
}

BOOST_AUTO_TEST_CASE(a_remedy_saves_no_more_than_its_causes_cost) {
  FoundWall wall = wall_of("host", "launch", 0.3);
  wall.cause_ceilings = {{"launch", 0.2}, {"sync", 0.1}, {"allocator", 0}};
  const Remedy* graphs = nullptr;
  const auto found = remedies_of(wall, run_of(kMendedCommand));
  BOOST_TEST_REQUIRE((graphs = find(found, "graphs_of_static_parts")) != nullptr);
  BOOST_TEST(graphs->ceiling_ratio == 0.2);
  // Of another wall, too: nothing is proposed against what costs nothing.
  wall = wall_of("communication", "transfer", 0.3);
  wall.ceilings.emplace("host", 0.2);
  wall.cause_ceilings = {{"launch", 0}, {"sync", 0.2}};
  const auto others = remedies_of(wall, run_of(kMendedCommand));
  BOOST_TEST((find(others, "graphs_of_static_parts") == nullptr));
  BOOST_TEST((find(others, "no_waiting_for_counts") != nullptr));
}

// The allocator reads its settings under another name there.
BOOST_AUTO_TEST_CASE(variables_have_the_names_of_rocm_on_rocm) {
  const auto flags_on = [](bool is_rocm, const char* label, const char* cause, const char* rule,
                           const std::string& variables = "") {
    RunToMend run = run_of(variables + kMendedCommand);
    run.is_rocm = is_rocm;
    const auto found = remedies_of(wall_of(label, cause, 0.3), run);
    const Remedy* remedy = find(found, rule);
    return remedy == nullptr || remedy->flags.empty() ? std::string() : remedy->flags.front();
  };
  const std::string value = "=expandable_segments:True";
  BOOST_TEST(flags_on(false, "memory", "oom", "less_fragmentation") ==
             "PYTORCH_CUDA_ALLOC_CONF" + value);
  BOOST_TEST(flags_on(true, "memory", "oom", "less_fragmentation") ==
             "PYTORCH_HIP_ALLOC_CONF" + value);
  BOOST_TEST(flags_on(true, "host", "allocator", "expandable_segments") ==
             "PYTORCH_HIP_ALLOC_CONF" + value);
  BOOST_TEST(flags_on(true, "memory", "oom", "less_fragmentation",
                      "PYTORCH_HIP_ALLOC_CONF=max_split_size_mb:64 ") == "");
}

// Freed memory is used for a larger micro-batch at once, and only where one was held down.
BOOST_AUTO_TEST_CASE(room_is_made_for_a_capped_micro_batch_alone) {
  FoundWall wall = wall_of("memory", "capped micro-batch", 0.3);
  wall.cause_ceilings = {{"recompute", 0}, {"offload", 0}, {"capped micro-batch", 0.3}};
  const auto found = remedies_of(wall, run_of(kMendedCommand));
  BOOST_TEST(!found.empty());
  for (const Remedy& remedy : found) {
    BOOST_TEST(remedy.rule.starts_with("room_by_"), remedy.rule);
    BOOST_TEST_REQUIRE(remedy.knobs.has_value());
    BOOST_TEST(remedy.knobs->micro_batch_size == 4);
  }
  // torchtitan has no word for narrow moments: the larger micro-batch alone would not fit.
  RunToMend titan = run_of(kMendedCommand);
  titan.config->dialect = dialects::Dialect::torchtitan;
  BOOST_TEST((find(remedies_of(wall, titan), "room_by_narrow_moments") == nullptr));
  // The optimizer is sharded already, and whole layers are recomputed.
  BOOST_TEST((find(found, "room_by_sharded_optimizer") == nullptr));
  BOOST_TEST((find(found, "room_by_recomputation") == nullptr));
  for (const char* cause : {"recompute", "offload", "oom"}) {
    for (const Remedy& remedy :
         remedies_of(wall_of("memory", cause, 0.3), run_of(kMendedCommand))) {
      BOOST_TEST(!remedy.rule.starts_with("room_by_"), remedy.rule);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_slow_link_has_only_remedies_for_it) {
  FoundWall wall = wall_of("communication", "one link", 0.3);
  wall.cause_ceilings = {{"one link", 0.2}, {"transfer", 0}, {"contention", 0.1}};
  const auto found = remedies_of(wall, run_of(kMendedCommand));
  for (const char* rule : {"hybrid_dispatcher", "look_at_the_link"}) {
    const Remedy* remedy = find(found, rule);
    BOOST_TEST_REQUIRE(remedy != nullptr, rule);
    BOOST_TEST(remedy->ceiling_ratio == 0.2);
  }
  BOOST_TEST((find(found, "overlap_of_experts") == nullptr));
  BOOST_TEST((find(found, "fewer_sms_for_exchange") == nullptr));
}

// What a run breaks as it is, hides nothing else; and rules of the model need no machine.
BOOST_AUTO_TEST_CASE(every_rule_counts_without_a_machine) {
  RunToMend run = run_of(kMendedCommand);
  run.hardware = nullptr;
  spec::set_plan_knob(run.config->knobs, *spec::find_plan_knob("recompute"), "mla_up_proj");
  spec::PlanKnobs knobs = run.config->knobs;
  BOOST_TEST(rule_broken_by(run, knobs).empty());
  knobs.ep = 16;
  const std::string rule = rule_broken_by(run, knobs);
  BOOST_TEST(rule ==
             "ep_divides_plane: ep 16 x etp 2 does not divide the 16 ranks of a pipeline stage");
}

// Torchtitan takes FSDP2 beside pipeline stages, Megatron-Core does not.
BOOST_AUTO_TEST_CASE(rules_are_those_of_the_runs_own_framework) {
  RunToMend run = run_of(kMendedCommand);
  spec::PlanKnobs knobs = run.config->knobs;
  knobs.fsdp = spec::Fsdp::torch;
  BOOST_TEST(rule_broken_by(run, knobs).starts_with("fsdp_without_pipeline"));
  run.config->dialect = dialects::Dialect::torchtitan;
  BOOST_TEST(rule_broken_by(run, knobs).empty());
}

struct LoaderWords {
  dialects::Dialect dialect;
  std::string text;
  std::vector<std::string> workers;
  std::vector<std::string> garbage;
};
std::ostream& operator<<(std::ostream& out, const LoaderWords& row) {
  return out << spec::name_of(row.dialect);
}

// Twice the workers that a framework has by itself, if those are more than four.
const LoaderWords kLoaderWords[] = {
    {dialects::Dialect::megatron_lm,
     kMendedCommand,
     {"--num-workers 8"},
     {"--manual-gc", "--manual-gc-interval 100"}},
    {dialects::Dialect::megatron_bridge,
     "train.micro_batch_size=1 train.global_batch_size=64 model.tensor_model_parallel_size=2",
     {"dataset.num_workers=16"},
     {"train.manual_gc=true", "train.manual_gc_interval=100"}},
    {dialects::Dialect::torchtitan,
     "[training]\nlocal_batch_size = 1\nseq_len = 4096\n",
     {"training.dataloader.num_workers = 8"},
     {"training.gc_freq = 100"}},
    {dialects::Dialect::primus,
     "modules:\n  pre_trainer:\n    framework: megatron\n    overrides:\n"
     "      micro_batch_size: 1\n      global_batch_size: 64\n",
     {"num_workers: 16"},
     {"manual_gc: true", "manual_gc_interval: 100"}}};

BOOST_DATA_TEST_CASE(a_loader_has_remedies_in_each_frameworks_words, data::make(kLoaderWords),
                     row) {
  RunToMend run;
  run.config = dialects::import_run(row.text, row.dialect);
  const auto found = remedies_of(wall_of("host", "loader", 0.3), run);
  for (const auto& [rule, flags] : {std::pair("more_loader_workers", row.workers),
                                    std::pair("collect_garbage_together", row.garbage)}) {
    const Remedy* remedy = find(found, rule);
    BOOST_TEST_REQUIRE(remedy != nullptr, rule);
    BOOST_TEST(remedy->flags == flags, boost::test_tools::per_element());
    BOOST_TEST(remedy->is_of_wall);
  }
}

// Garbage collection is neither loading nor a copy.
BOOST_AUTO_TEST_CASE(a_loader_has_remedies_of_the_part_that_costs) {
  const auto told = [](const profiler::LoaderParts& parts) {
    FoundWall wall = wall_of("host", "loader", 0.3);
    wall.loader = parts;
    std::set<std::string> rules;
    for (const Remedy& remedy : remedies_of(wall, run_of(kMendedCommand))) {
      rules.insert(remedy.rule);
    }
    return rules;
  };
  const auto loading = told({1, 0, 0});
  BOOST_TEST(loading.contains("more_loader_workers"));
  BOOST_TEST(!loading.contains("collect_garbage_together"));
  const auto copies = told({0, 1, 0});
  BOOST_TEST(!copies.contains("more_loader_workers"));
  BOOST_TEST(!copies.contains("collect_garbage_together"));
  BOOST_TEST(copies.contains("copies_from_pinned_memory"));
  const auto stalls = told({0, 0, 1});
  BOOST_TEST(stalls.contains("more_loader_workers"));
  BOOST_TEST(stalls.contains("collect_garbage_together"));
  BOOST_TEST(!stalls.contains("copies_from_pinned_memory"));
}

BOOST_AUTO_TEST_CASE(what_a_log_echoes_is_set_already) {
  const FoundWall loader = wall_of("host", "loader", 0.3);
  RunToMend run = run_of(kMendedCommand);
  run.echoed = {{"num_workers", "16"}, {"manual_gc", "True"}, {"manual_gc_interval", "50"}};
  const auto none = remedies_of(loader, run);
  BOOST_TEST((find(none, "more_loader_workers") == nullptr));
  BOOST_TEST((find(none, "collect_garbage_together") == nullptr));
  // Defaults are echoed, too.
  run.echoed = {{"num_workers", "2"}, {"manual_gc", "False"}, {"manual_gc_interval", "0"}};
  const auto both = remedies_of(loader, run);
  BOOST_TEST((find(both, "more_loader_workers") != nullptr));
  BOOST_TEST((find(both, "collect_garbage_together") != nullptr));
  // A command with fewer workers has room for more, with as many it has not.
  const auto with = [&](const std::string& words) {
    return remedies_of(loader, run_of(kMendedCommand + (" " + words)));
  };
  BOOST_TEST((find(with("--num-workers 4"), "more_loader_workers") != nullptr));
  BOOST_TEST((find(with("--num-workers 8"), "more_loader_workers") == nullptr));
  BOOST_TEST((find(with("--manual-gc"), "collect_garbage_together") == nullptr));
}

// Torchtitan's batch is that of the layout unless it is said.
BOOST_AUTO_TEST_CASE(a_batch_that_is_not_said_follows_the_layout) {
  const auto rule_of = [](const std::string& batch, int32_t micro_batch_size) {
    RunToMend run;
    run.config = dialects::import_run("[training]\nlocal_batch_size = 1\n" + batch +
                                          "seq_len = 4096\n[parallelism]\n"
                                          "tensor_parallel_degree = 2\n"
                                          "data_parallel_shard_degree = 2\n",
                                      dialects::Dialect::torchtitan);
    spec::PlanKnobs knobs = run.config->knobs;
    knobs.micro_batch_size = micro_batch_size;
    return rule_broken_by(run, knobs);
  };
  BOOST_TEST(rule_of("", 2) == "");
  BOOST_TEST(rule_of("global_batch_size = -1\n", 2) == "");
  BOOST_TEST(rule_of("global_batch_size = 2\n", 2) ==
             "global_batch: 2 sequences are no multiple of micro-batch 2 x dp 2");
}

BOOST_AUTO_TEST_CASE(memory_in_pieces_is_joined_first) {
  FoundWall wall = wall_of("memory", "oom", 1);
  const auto plain = remedies_of(wall, run_of(kMendedCommand));
  BOOST_TEST_REQUIRE(!plain.empty());
  BOOST_TEST(plain.front().rule == "smaller_micro_batch");
  wall.is_fragmented = true;
  const auto found = remedies_of(wall, run_of(kMendedCommand));
  BOOST_TEST_REQUIRE(found.size() == plain.size());
  BOOST_TEST(found[0].rule == "less_fragmentation");
  BOOST_TEST(found[1].rule == "smaller_micro_batch");
}

BOOST_AUTO_TEST_CASE(multiprocessors_are_those_of_flex_dispatchers) {
  const FoundWall contention = wall_of("communication", "contention", 0.3);
  RunToMend run = run_of(kMendedCommand);
  BOOST_TEST((find(remedies_of(contention, run), "fewer_sms_for_exchange") == nullptr));
  run.config->knobs.dispatcher = spec::Dispatcher::hybridep;
  BOOST_TEST((find(remedies_of(contention, run), "fewer_sms_for_exchange") != nullptr));
}

BOOST_AUTO_TEST_CASE(an_exchange_that_traces_do_not_show_is_not_changed) {
  const FoundWall transfer = wall_of("communication", "transfer", 0.3);
  const auto has = [&](const RunToMend& run, const char* rule) {
    return find(remedies_of(transfer, run), rule) != nullptr;
  };
  RunToMend run = run_of(kMendedCommand);
  run.has_row_exchange = false;
  BOOST_TEST(!has(run, "overlap_of_experts"));
  BOOST_TEST(!has(run, "hybrid_dispatcher"));
  BOOST_TEST(has(run, "overlap_of_gradients"));
  run.has_row_exchange = true;
  run.is_on_one_node = true;
  BOOST_TEST(has(run, "overlap_of_experts"));
  BOOST_TEST(!has(run, "hybrid_dispatcher"));
  // Of this one gathering is the exchange.
  run = run_of(kMendedCommand);
  run.config->knobs.dispatcher = spec::Dispatcher::allgather;
  run.has_row_exchange = false;
  BOOST_TEST(has(run, "hybrid_dispatcher"));
}

// Of 30 % in communication the tensor-parallel groups have five sixths; experts do not communicate.
BOOST_AUTO_TEST_CASE(communication_has_the_remedies_of_its_groups) {
  FoundWall wall = wall_of("communication", "transfer", 0.3);
  wall.groups.ratios = {{"tp", 0.25}, {"dp_cp", 0.05}};
  const auto found = remedies_of(wall, run_of(kMendedCommand));
  const Remedy* tensor = find(found, "less_tensor_parallelism");
  const Remedy* gradients = find(found, "overlap_of_gradients");
  BOOST_TEST_REQUIRE(tensor != nullptr);
  BOOST_TEST_REQUIRE(gradients != nullptr);
  BOOST_TEST(std::abs(tensor->ceiling_ratio - 0.25) < 1e-9);
  BOOST_TEST(std::abs(gradients->ceiling_ratio - 0.05) < 1e-9);
  BOOST_TEST(found.front().ceiling_ratio > 0.2);
  BOOST_TEST((find(found, "overlap_of_experts") == nullptr));
  BOOST_TEST((find(found, "hybrid_dispatcher") == nullptr));
  // Weights are gathered, gradients reduced.
  const std::string plain(kMendedCommand);
  const auto ceiling_of = [&](const char* rule, const std::string& more, double gathers) {
    FoundWall split = wall;
    split.groups.ratios = {{"dp_cp", 0.3}};
    split.groups.gather_ratios = {{"dp_cp", gathers}};
    split.groups.reduction_ratios = {{"dp_cp", 0.3 - gathers}};
    const auto told = remedies_of(split, run_of(plain + more));
    const Remedy* remedy = find(told, rule);
    return remedy == nullptr ? 0 : remedy->ceiling_ratio;
  };
  const auto is = [](double a, double b) { return std::abs(a - b) < 1e-9; };
  BOOST_TEST(is(ceiling_of("overlap_of_weights", "", 0), 0));
  BOOST_TEST(is(ceiling_of("overlap_of_gradients", "", 0), 0.3));
  BOOST_TEST(is(ceiling_of("overlap_of_gradients", "", 0.1), 0.2));
  // It overlaps both, or what is left.
  BOOST_TEST(is(ceiling_of("overlap_of_weights", "", 0.1), 0.3));
  BOOST_TEST(is(ceiling_of("overlap_of_weights", " --overlap-grad-reduce", 0.1), 0.1));
  // What sends and receives is neither gradients nor weights, and may be rows of experts.
  wall.groups.ratios = {{std::string(profiler::kUnknownMessages), 0.3}};
  const auto exchanging = remedies_of(wall, run_of(kMendedCommand));
  BOOST_TEST((find(exchanging, "overlap_of_experts") != nullptr));
  for (const char* rule : {"overlap_of_gradients", "less_tensor_parallelism"}) {
    BOOST_TEST((find(exchanging, rule) == nullptr), rule);
  }
  // What is not known may be anybody's: a third of all.
  wall.groups = {};
  wall.groups.ratios = {{"tp", 0.2}};
  wall.groups.unknown_ratio = 0.1;
  const auto unsure = remedies_of(wall, run_of(kMendedCommand));
  for (const char* rule : {"overlap_of_gradients", "overlap_of_experts"}) {
    const Remedy* remedy = find(unsure, rule);
    BOOST_TEST_REQUIRE(remedy != nullptr, rule);
    BOOST_TEST(std::abs(remedy->ceiling_ratio - 0.1) < 1e-9);
  }
  // Named groups that only communicate beside other work cost nothing.
  wall.groups = {};
  wall.groups.ratios = {{"dp_cp", 0}};
  BOOST_TEST((find(remedies_of(wall, run_of(kMendedCommand)), "overlap_of_gradients") == nullptr));
}

// Which tensors go to the host nobody says: all words that may be the run's are named.
BOOST_AUTO_TEST_CASE(an_offload_that_nobody_states_is_turned_off_first) {
  RunToMend run;
  run.has_unsaid_offload = true;
  const FoundWall wall = wall_of("memory", "offload", 0.6);
  const auto found = remedies_of(wall, run);
  BOOST_TEST_REQUIRE(found.size() >= 3U);
  BOOST_TEST(found[0].rule == "no_offload");
  for (const char* flag :
       {"without --optimizer-cpu-offload", "without --fine-grained-activation-offloading"}) {
    BOOST_TEST((std::ranges::find(found[0].flags, flag) != found[0].flags.end()), flag);
  }
  BOOST_TEST(found[1].rule == "less_offload");
  BOOST_TEST(found[1].flags == std::vector<std::string>{"--optimizer-offload-fraction 0.5"},
             boost::test_tools::per_element());
  // Others do not take it for set.
  const Remedy* moments = find(found, "narrow_moments");
  BOOST_TEST_REQUIRE(moments != nullptr);
  BOOST_TEST(moments->flags.front() == "--use-precision-aware-optimizer");
  run.has_unsaid_offload = false;
  BOOST_TEST((find(remedies_of(wall, run), "no_offload") == nullptr));
}

// What goes to the host and does not come back may be a checkpoint: only a run that says it
// offloads is told to stop.
BOOST_AUTO_TEST_CASE(tensors_that_do_not_come_back_may_be_of_no_setting) {
  FoundWall wall = wall_of("memory", "offload", 0.6);
  wall.is_offload_one_way = true;
  BOOST_TEST(remedies_of(wall, RunToMend()).empty());
  const auto found = remedies_of(wall, run_of("--optimizer-cpu-offload "
                                              "--use-precision-aware-optimizer"));
  BOOST_TEST((find(found, "no_offload") != nullptr));
}

// Memory is left for what is computed a second time, whatever holds the run back. Nothing has to be
// freed for that.
BOOST_AUTO_TEST_CASE(recomputation_that_memory_does_not_ask_for_is_turned_off) {
  FoundWall wall = wall_of("compute", "FLOPs", 0.9);
  const auto has_remedy = [&](const RunToMend& run, const char* rule) {
    return find(remedies_of(wall, run), rule) != nullptr;
  };
  BOOST_TEST(!has_remedy(run_of(kMendedCommand), "no_recomputation"));
  wall.needless_recompute_ratio = 0.25;
  const auto found = remedies_of(wall, run_of(kMendedCommand));
  const Remedy* none = find(found, "no_recomputation");
  BOOST_TEST_REQUIRE(none != nullptr);
  BOOST_TEST(none->ceiling_ratio == 0.25);
  BOOST_TEST(!none->is_of_wall);
  const std::string flag = "without --recompute-granularity";
  BOOST_TEST((std::ranges::find(none->flags, flag) != none->flags.end()));
  BOOST_TEST((find(found, "selective_recomputation") != nullptr));
  BOOST_TEST((find(found, "narrow_moments") == nullptr));
  // Where no command is known, the default of the framework says nothing of it.
  RunToMend unknown;
  BOOST_TEST(!has_remedy(unknown, "no_recomputation"));
  unknown.has_unsaid_recompute = true;
  BOOST_TEST(has_remedy(unknown, "no_recomputation"));
}

// It has no recipe with blocks, but one with a scale for each tensor.
BOOST_AUTO_TEST_CASE(products_in_fp8_have_torchtitans_words) {
  RunToMend run;
  run.config = dialects::import_run("[training]\nlocal_batch_size = 1\nseq_len = 4096\n",
                                    dialects::Dialect::torchtitan);
  const auto found = remedies_of(wall_of("compute", "FLOPs", 0.3), run);
  const Remedy* remedy = find(found, "products_in_fp8");
  BOOST_TEST_REQUIRE(remedy != nullptr);
  BOOST_TEST(remedy->ceiling_ratio == 0.15);
  BOOST_TEST(std::ranges::any_of(remedy->flags, [](const std::string& flag) {
    return flag.starts_with("model.converters") &&
           flag.find("quantize.linear.float8") != std::string::npos;
  }));
}

// Where a block of layers is recomputed the others can be.
BOOST_AUTO_TEST_CASE(more_than_a_block_can_be_recomputed) {
  const FoundWall oom = wall_of("memory", "oom", 1);
  RunToMend run = run_of(kMendedCommand);
  BOOST_TEST((find(remedies_of(oom, run), "more_recomputation") == nullptr));
  run.config->knobs.recompute_method = spec::RecomputeMethod::block;
  run.config->knobs.recompute_num_layers = 4;
  const std::vector<Remedy> found = remedies_of(oom, run);
  const Remedy* remedy = find(found, "more_recomputation");
  BOOST_TEST_REQUIRE(remedy != nullptr);
  for (const char* flag : {"--recompute-method uniform", "--recompute-num-layers 1"}) {
    BOOST_TEST((std::ranges::find(remedy->flags, flag) != remedy->flags.end()), flag);
  }
}

BOOST_AUTO_TEST_CASE(an_unknown_wall_has_no_remedy) {
  BOOST_TEST(remedies_of({base::Wall::unknown, "", {{"unknown", 0.9}, {"host", 0.1}}}, {}).empty());
}

BOOST_AUTO_TEST_CASE(a_dense_model_is_not_told_of_experts) {
  RunToMend run = run_of(kMendedCommand);
  run.model = model_named("llama3-8b");
  BOOST_TEST((find(remedies_of(wall_of("imbalance", "experts", 0.3), run), "capacity_of_experts") ==
              nullptr));
}

struct ClassRatio {
  profiler::KernelClass id;
  double ratio;
};

void set_ratios(profiler::KernelCosts::Ratios& ratios, std::initializer_list<ClassRatio> rows) {
  ratios = {};
  for (const ClassRatio& row : rows) ratios[static_cast<size_t>(row.id)] = row.ratio;
}

bool has_ceiling(const std::vector<Remedy>& remedies, std::string_view rule, double expected) {
  const Remedy* remedy = find(remedies, rule);
  return remedy != nullptr && std::abs(remedy->ceiling_ratio - expected) < 1e-9;
}

// Of 60 % that compute, products take 40, kernels by element 12, sorting of rows 5, attention 3.
BOOST_AUTO_TEST_CASE(a_remedy_of_compute_saves_no_more_than_its_kernels_run) {
  using profiler::KernelClass;
  RunToMend run = run_of(kMendedCommand);
  run.config->knobs.fused_activation = false;
  FoundWall wall = wall_of("compute", "", 0.6);
  const auto plain = remedies_of(wall, run);
  BOOST_TEST(has_ceiling(plain, "products_in_fp8", 0.3));  // nobody knows the kernels
  BOOST_TEST(has_ceiling(plain, "fused_activations", 0.6));
  set_ratios(wall.kernels.run, {{KernelClass::gemm, 0.3},
                                {KernelClass::grouped_gemm, 0.1},
                                {KernelClass::elementwise, 0.12},
                                {KernelClass::moe_routing, 0.05},
                                {KernelClass::attention, 0.03}});
  const auto found = remedies_of(wall, run);
  BOOST_TEST(has_ceiling(found, "larger_products", 0.3));  // half of all: each has twice the rows
  BOOST_TEST(has_ceiling(found, "whole_experts", 0.4));
  BOOST_TEST(has_ceiling(found, "products_in_fp8", 0.2));  // half of 40 %
  BOOST_TEST(has_ceiling(found, "fused_rows", 0.17));
  BOOST_TEST(has_ceiling(found, "fused_activations", 0.12));
  for (size_t i = 1; i < found.size(); ++i) {
    if (found[i - 1].refused.empty() != found[i].refused.empty()) continue;
    BOOST_TEST(found[i - 1].ceiling_ratio >= found[i].ceiling_ratio);
  }
  // Of ranks that wait for one another, the step has more of it than any single one.
  wall.ceilings["compute"] = 0.9;
  const auto waiting = remedies_of(wall, run);
  BOOST_TEST(has_ceiling(waiting, "products_in_fp8", 0.3));
  BOOST_TEST(has_ceiling(waiting, "fused_activations", 0.18));
  // What bandwidth costs is no more than that: whichever is less counts.
  wall.ceilings["compute"] = 0.6;
  wall.cause_ceilings = {{"FLOPs", 0.36}, {"bandwidth", 0.04}, {"occupancy", 0.2}};
  const auto split = remedies_of(wall, run);
  BOOST_TEST(has_ceiling(split, "products_in_fp8", 0.18));
  BOOST_TEST(has_ceiling(split, "fused_activations", 0.04));
  // What is not there has no remedy, kernels that may be anything have each.
  wall.cause_ceilings.clear();
  set_ratios(wall.kernels.run, {{KernelClass::gemm, 0.6}});
  BOOST_TEST((find(remedies_of(wall, run), "fused_activations") == nullptr));
  set_ratios(wall.kernels.run, {{KernelClass::gemm, 0.5}, {KernelClass::other, 0.1}});
  const auto unsure = remedies_of(wall, run);
  BOOST_TEST(has_ceiling(unsure, "fused_activations", 0.1));
  BOOST_TEST(has_ceiling(unsure, "products_in_fp8", 0.3));
}

// Twice the rows of a micro-batch are half the launches and fuller products, whatever the wall is.
BOOST_AUTO_TEST_CASE(a_change_against_several_causes_saves_their_sum) {
  FoundWall wall = wall_of("compute", "FLOPs", 0.7);
  wall.ceilings["host"] = 0.1;
  wall.cause_ceilings = {{"FLOPs", 0.5}, {"bandwidth", 0.1}, {"occupancy", 0.1}, {"launch", 0.1}};
  BOOST_TEST(
      has_ceiling(remedies_of(wall, run_of(kMendedCommand)), "larger_micro_batch", 0.1 + 0.05));
  // No more than half of the step.
  wall = wall_of("host", "launch", 0.45);
  wall.ceilings["compute"] = 0.5;
  wall.cause_ceilings = {{"launch", 0.45}, {"occupancy", 0.4}};
  const auto found = remedies_of(wall, run_of(kMendedCommand));
  BOOST_TEST(has_ceiling(found, "larger_micro_batch", 0.5));
  BOOST_TEST((find(found, "larger_products") == nullptr));
  // A cause that is not the wall's is not told for its own sake.
  wall = wall_of("compute", "FLOPs", 0.9);
  wall.cause_ceilings = {{"FLOPs", 0.7}, {"occupancy", 0.2}};
  const auto alone = remedies_of(wall, run_of(kMendedCommand));
  BOOST_TEST((find(alone, "larger_products") == nullptr));
}

// The host is busy all the time: with sorting of rows 4 %, by element 6 %, with products 40 %.
BOOST_AUTO_TEST_CASE(a_remedy_of_launches_saves_no_more_than_its_kernels_take) {
  using profiler::KernelClass;
  RunToMend run = run_of(kMendedCommand);
  run.config->knobs.moe_grouped_gemm = false;
  FoundWall wall = wall_of("host", "launch", 0.3);
  wall.cause_ceilings = {{"launch", 0.3}};
  set_ratios(wall.kernels.launch, {{KernelClass::gemm, 0.4},
                                   {KernelClass::elementwise, 0.06},
                                   {KernelClass::moe_routing, 0.04},
                                   {KernelClass::norm, 0.5}});
  set_ratios(wall.kernels.run, {{KernelClass::moe_routing, 0.01}});
  const auto found = remedies_of(wall, run);
  BOOST_TEST(has_ceiling(found, "graphs_of_static_parts", 0.3));
  BOOST_TEST(has_ceiling(found, "grouped_products", 0.3));
  BOOST_TEST(has_ceiling(found, "fused_permutation", 0.1));
}

// Three remedies of the pipeline would fit; the table has those against a bubble first.
BOOST_AUTO_TEST_CASE(of_other_walls_the_remedies_that_save_most_are_told) {
  FoundWall wall = wall_of("communication", "transfer", 0.3);
  wall.ceilings.emplace("pipeline", 0.2);
  wall.cause_ceilings = {{"transfer", 0.3}, {"bubble", 0.06}, {"uneven stage", 0.15}};
  const auto found = remedies_of(wall, run_of(kMendedCommand));
  BOOST_TEST(has_ceiling(found, "fewer_layers_at_the_ends", 0.15));
  const auto is_of_bubble = [](const Remedy& remedy) {
    return remedy.rule == "more_virtual_stages" || remedy.rule == "more_micro_batches" ||
           remedy.rule == "fewer_stages";
  };
  BOOST_TEST(std::ranges::count_if(found, is_of_bubble) == 1);
}

// In each dialect that can say it; a row that nobody can be told is dead.
BOOST_AUTO_TEST_CASE(every_row_is_proposed_to_some_run) {
  std::set<std::string> proposed;
  for (const char* label :
       {"communication", "host", "compute", "pipeline", "imbalance", "memory"}) {
    for (const char* more : {"", " --optimizer-cpu-offload --optimizer-offload-fraction 1.0",
                             " --expert-tensor-parallel-size 2"}) {
      for (const Remedy& remedy :
           remedies_of(wall_of(label, "", 0.5), run_of(kMendedCommand + std::string(more)))) {
        proposed.insert(remedy.rule);
      }
    }
  }
  RunToMend plain = run_of(kMendedCommand);
  plain.config->knobs.moe_grouped_gemm = false;
  plain.config->knobs.recompute = {};
  plain.config->knobs.fused_activation = false;
  plain.config->knobs.fused_attention = false;
  plain.config->knobs.cross_entropy = spec::CrossEntropy::unfused;
  plain.config->knobs.distributed_optimizer = false;
  for (const char* label : {"host", "compute", "memory"}) {
    for (const Remedy& remedy : remedies_of(wall_of(label, "", 0.5), plain)) {
      proposed.insert(remedy.rule);
    }
  }
  RunToMend flex = run_of(kMendedCommand);
  flex.config->knobs.dispatcher = spec::Dispatcher::deepep;
  for (const Remedy& remedy : remedies_of(wall_of("communication", "", 0.5), flex)) {
    proposed.insert(remedy.rule);
  }
  for (const char* table : {"",
                            "[parallelism]\nexpert_parallel_degree = 8\n"
                            "fsdp_reshard_after_forward = \"never\"\n"}) {
    RunToMend titan;
    titan.config = dialects::import_run(
        std::string("[training]\nlocal_batch_size = 1\nseq_len = 4096\n") + table,
        dialects::Dialect::torchtitan, {.world_size = 8});
    for (const char* label : {"communication", "memory"}) {
      for (const Remedy& remedy : remedies_of(wall_of(label, "", 0.5), titan)) {
        proposed.insert(remedy.rule);
      }
    }
  }
  for (const std::string_view rule : remedy_rules()) {
    BOOST_TEST(proposed.count(std::string(rule)) == 1U, rule);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps

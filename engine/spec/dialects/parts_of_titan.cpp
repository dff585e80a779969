// What torchtitan says with several settings, and what it says otherwise than Megatron: the batch,
// data-parallel degrees, schedules, checkpointing of activations, compilation.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "engine/spec/dialects/parts.h"
#include "engine/spec/dialects/text_cursor.h"
#include "engine/spec/dialects/values.h"
#include "engine/spec/json_reader.h"

namespace moetune::spec::dialects {
namespace {

using Words = std::vector<std::string>;

/// What runs a list of actions in a file, of one stage a rank and of several.
constexpr std::string_view kListedSingle = "PipelineScheduleSingle";
constexpr std::string_view kListed = "PipelineScheduleMulti";
constexpr std::string_view kDualPipe = "DualPipeV";

/// A schedule of torch (pipelining/schedules.py, get_schedule_class).
struct Schedule {
  std::string_view name;
  bool has_one_stage = false;       ///< a rank
  bool has_two_stages = false;      ///< a rank, no more
  bool has_forwards_first = false;  ///< all of them come before the first backward
  bool has_rounds = false;          ///< it refuses micro-batches that make no even rounds
  bool fills_stages = false;        ///< with at least a micro-batch each
  bool splits_backward = false;     ///< into that of inputs and that of weights
};
constexpr std::array kSchedules = {
    Schedule{.name = "1F1B", .has_one_stage = true, .fills_stages = true},
    Schedule{.name = "Interleaved1F1B", .has_rounds = true},
    Schedule{.name = "GPipe", .has_one_stage = true, .has_forwards_first = true},
    Schedule{.name = "LoopedBFS", .has_forwards_first = true},
    Schedule{.name = "InterleavedZeroBubble", .has_rounds = true, .splits_backward = true},
    Schedule{.name = "ZBVZeroBubble", .has_two_stages = true, .splits_backward = true},
    Schedule{
        .name = kDualPipe, .has_two_stages = true, .fills_stages = true, .splits_backward = true},
    Schedule{.name = "FlexibleInterleaved1F1B", .has_rounds = true},
    Schedule{.name = kListedSingle, .has_one_stage = true},
    Schedule{.name = kListed}};
constexpr std::string_view kFloat8Linear = "quantize.linear.float8";
constexpr std::string_view kFloat8Experts = "quantize.grouped_mm.float8";
constexpr std::string_view kMxLinear = "quantize.linear.mx";
constexpr std::string_view kMxExperts = "quantize.grouped_mm.mx";
/// The nearest that we have to "selective": by operation it keeps attention, collectives and every
/// second product, and computes all else of a layer again.
constexpr PlanRecomputeSet kSelective{PlanRecompute::layernorm, PlanRecompute::moe_act};

/// Null of a name that torch does not know. It takes capitals for small letters.
const Schedule* find_schedule(std::string_view name) {
  const auto lowered = [](char letter) {
    return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  };
  const auto is_named = [&](const Schedule& schedule) {
    return std::ranges::equal(schedule.name, name, {}, lowered, lowered);
  };
  const auto* const found = std::find_if(kSchedules.begin(), kSchedules.end(), is_named);
  return found == kSchedules.end() ? nullptr : found;
}

std::string unknown_schedule_text(std::string_view name) {
  std::vector<std::string> names;
  for (const Schedule& schedule : kSchedules) names.emplace_back(schedule.name);
  const std::string meant = nearest_name(name, names);
  return meant.empty() ? fmt::format("known are {}", fmt::join(names, ", "))
                       : fmt::format("did you mean '{}'?", meant);
}

/// The schedule that prices stand for.
std::string_view usual_schedule(const PlanKnobs& k) {
  return k.vpp == 1 ? "1F1B" : "Interleaved1F1B";
}

/// Whether a schedule takes as many virtual stages.
bool takes_stages_of(const PlanKnobs& k, const Schedule& schedule) {
  return k.pp > 1 && schedule.has_one_stage == (k.vpp == 1) &&
         (!schedule.has_two_stages || k.vpp == 2);
}

/// In which order a run with these knobs goes, where that is not the usual one of its stages.
const Schedule* other_schedule(const RunConfig& run, const PlanKnobs& k) {
  if (run.has_listed_schedule && k.pp > 1)
    return find_schedule(k.vpp == 1 ? kListedSingle : kListed);
  const Schedule* stated = find_schedule(run.pipeline_schedule);
  return stated != nullptr && takes_stages_of(k, *stated) ? stated : nullptr;
}

int32_t as_knob(Reading& in, std::string_view row, int64_t value) {
  if (value >= 1 && value <= kMostRanks) return static_cast<int32_t>(value);
  in.problem(fmt::format("'{}' makes {}, expected from 1 to {}", in.key(row), value, kMostRanks));
  return 1;
}

void read_degrees(Reading& in) {
  PlanKnobs& k = in.run.knobs;
  const int64_t replicas = in.parts.integer("data_parallel_replicate_degree").value_or(1);
  int64_t shards = in.parts.integer("data_parallel_shard_degree").value_or(-1);
  const int64_t world = in.run.world_size;
  if (replicas < 1 || replicas > kMostRanks || shards == 0 || shards > kMostRanks) {
    in.problem(fmt::format("'{}' is {} and '{}' is {}, expected from 1 to {}",
                           in.key("data_parallel_replicate_degree"), replicas,
                           in.key("data_parallel_shard_degree"), shards, kMostRanks));
    return;
  }
  const int64_t others = k.replica_ranks() * replicas;
  if (shards < 0 && world > 0) {
    if (world % others != 0) {
      in.problem(fmt::format("{} ranks are no multiple of '{}' {} x {}", world,
                             in.key("data_parallel_replicate_degree"), replicas,
                             in.replica_text()));
      return;
    }
    shards = world / others;
  } else if (shards < 0) {
    in.note("the number of ranks is not said: one replica is taken, with FSDP2");
    k.fsdp = Fsdp::torch;
    k.distributed_optimizer = true;
    k.optimizer_instances = static_cast<int32_t>(replicas);
    k.dp = static_cast<int32_t>(replicas);
    return;
  } else if (world > 0 && world != others * shards) {
    in.problem(fmt::format("'{}' {} x '{}' {} x {} are {} ranks, not {}",
                           in.key("data_parallel_replicate_degree"), replicas,
                           in.key("data_parallel_shard_degree"), shards, in.replica_text(),
                           others * shards, world));
    return;
  } else {
    in.run.world_size = others * shards;
  }
  k.dp = as_knob(in, "data_parallel_shard_degree", replicas * shards);
  // Ranks that share sequences have shards, too.
  const bool is_sharded = k.dense_copies() > replicas;
  k.fsdp = is_sharded ? Fsdp::torch : Fsdp::none;
  k.distributed_optimizer = is_sharded;
  k.optimizer_instances = is_sharded ? static_cast<int32_t>(replicas) : 1;
  if (!is_sharded && k.dp > 1 && !k.has_replicas_only()) {
    in.note(
        fmt::format("'{}' {} beside other parallelism needs shards: they are taken (models that "
                    "are not refused keep whole weights in 32 bits)",
                    in.key("data_parallel_replicate_degree"), replicas));
  }
}

void write_degrees(Writing& out) {
  const PlanKnobs& k = out.knobs();
  // Experts are spread over shards only, and DDP beside stages or slices of tensors is refused
  // ("DDP has not supported > 1D parallelism"). What torchtitan was told of it is told again.
  const bool may_be_replicated =
      k.has_replicas_only() || (out.run.dialect == Dialect::torchtitan && k.dense_copies() == k.dp);
  const bool is_replicated = k.fsdp == Fsdp::none && !k.distributed_optimizer && may_be_replicated;
  int64_t replicas = is_replicated ? k.dp : k.optimizer_instances;
  // Ranks that share sequences are shards of a replica.
  const bool is_whole = k.dense_copies() == k.dp && !k.has_replicas_only();
  const bool needs_shards = !is_replicated && (k.ep > 1 || is_whole);
  if (k.dp % replicas != 0 || (needs_shards && replicas == k.dp && replicas > 1)) {
    out.cannot_say(fmt::format("optimizer_instances={}", k.optimizer_instances),
                   "it leaves no shards");
    replicas = 1;
  }
  out.parts.say("data_parallel_replicate_degree", replicas);
  out.parts.say("data_parallel_shard_degree", out.run.world_size > 0 ? k.dp / replicas : -1);
  if (k.fsdp == Fsdp::megatron ||
      (k.fsdp == Fsdp::none && !is_replicated && k.dense_copies() > 1)) {
    out.cannot_say(fmt::format("fsdp={}", name_of(k.fsdp)), "it shards with FSDP2 here");
  }
}

/// On main the batch counts tokens.
bool read_tokens(Reading& in) {
  if (!in.parts.has("num_tokens_per_microbatch_per_dp_rank")) return false;
  PlanKnobs& k = in.run.knobs;
  const int64_t tokens = *in.parts.integer("num_tokens_per_microbatch_per_dp_rank");
  const int64_t all = in.parts.integer("num_tokens_per_train_step").value_or(-1);
  const int64_t micro_batches = k.pp > 1 ? in.parts.integer("num_pp_microbatches").value_or(1) : 1;
  const int64_t length = in.run.seq_length;
  if (tokens < 1 || tokens % length != 0 || (all > 0 && all % length != 0)) {
    in.note(fmt::format("'{}' ({}) are no whole sequences of {} tokens",
                        in.key("num_tokens_per_microbatch_per_dp_rank"), tokens, length));
  }
  k.micro_batch_size =
      as_knob(in, "num_tokens_per_microbatch_per_dp_rank", std::max<int64_t>(1, tokens / length));
  if (micro_batches < 1 || micro_batches > kMostRanks) {
    in.problem(fmt::format("'{}' is {}, expected from 1 to {}", in.key("num_pp_microbatches"),
                           micro_batches, kMostRanks));
    return true;
  }
  const int64_t sequences = int64_t{k.micro_batch_size} * micro_batches;
  const int64_t of_replicas = in.run.world_size > 0 ? sequences * k.dp : 0;
  in.run.global_batch_size = all > 0 ? std::max<int64_t>(1, all / length) : of_replicas;
  if (k.pp > 1) in.run.pass_sequences = sequences;
  in.run.is_batch_derived = all <= 0;
  return true;
}

void read_batch(Reading& in) {
  if (read_tokens(in)) return;
  PlanKnobs& k = in.run.knobs;
  const int64_t local = in.parts.integer("local_batch_size").value_or(8);
  const int64_t global = in.parts.integer("sequences_per_step").value_or(-1);
  const int64_t micro = in.parts.integer("pipeline_parallel_microbatch_size").value_or(1);
  const int32_t of_replica = as_knob(in, "local_batch_size", local);
  k.micro_batch_size =
      k.pp > 1 ? as_knob(in, "pipeline_parallel_microbatch_size", micro) : of_replica;
  if (k.pp > 1) in.run.pass_sequences = of_replica;
  const int64_t of_replicas = int64_t{of_replica} * k.dp;
  const bool has_ranks = in.run.world_size > 0;
  in.run.global_batch_size = global > 0 ? global : (has_ranks ? of_replicas : 0);
  in.run.is_batch_derived = global <= 0;
  if (k.pp > 1 && has_ranks && global > of_replicas) {
    in.note(fmt::format("the pipeline drains every {} sequences: moetune takes it to run through",
                        of_replicas));
  }
}

void write_batch(Writing& out) {
  const PlanKnobs& k = out.knobs();
  const int64_t global = out.run.global_batch_size;
  if (global > 0) out.parts.say("sequences_per_step", global);
  if (k.pp == 1) {
    out.parts.say("local_batch_size", int64_t{k.micro_batch_size});
    return;
  }
  if (global == 0 || global % k.dp != 0) {
    out.cannot_say("a pipeline's batch", "the global batch is no multiple of the replicas");
    return;
  }
  // All of a replica's batch in one pass of the pipeline.
  out.parts.say("local_batch_size", global / k.dp);
  out.parts.say("pipeline_parallel_microbatch_size", int64_t{k.micro_batch_size});
}

/// Stages of a rank by the layers of a stage, as torchtitan makes them: what the first and the last
/// stage have less counts as layers, and the stages are rounded up.
void read_layers_per_stage(Reading& in, const Schedule& schedule) {
  constexpr std::string_view kLayers = "pipeline_parallel_layers_per_stage";
  PlanKnobs& k = in.run.knobs;
  const std::optional<int64_t> of_stage = in.parts.integer(kLayers);
  if (!of_stage) return;
  if (in.options.num_layers == 0) {
    in.parts.leave(kLayers);
    in.note(
        fmt::format("'{}' counts layers, and how many there are is not said: {} stages a rank "
                    "are taken",
                    in.key(kLayers), k.vpp));
    return;
  }
  int64_t layers = in.options.num_layers;
  for (const char* end :
       {"pipeline_parallel_first_stage_less_layers", "pipeline_parallel_last_stage_less_layers"}) {
    const int64_t less = in.parts.integer(end).value_or(0);
    if (less > in.options.num_layers) {
      in.problem(fmt::format("'{}' is {}, and the model has {} layers", in.key(end), less,
                             in.options.num_layers));
      return;
    }
    layers += less;
  }
  const int64_t stages = *of_stage < 1 ? 0 : (layers + *of_stage - 1) / *of_stage;
  if (stages == 0 || stages % k.pp != 0) {
    in.problem(fmt::format("'{}' {} makes {} stages of {} layers, which '{}' {} does not divide",
                           in.key(kLayers), *of_stage, stages, layers, in.key("pp"), k.pp));
    return;
  }
  const int64_t of_rank = stages / k.pp;
  if ((of_rank == 1) != schedule.has_one_stage || (schedule.has_two_stages && of_rank != 2)) {
    in.problem(fmt::format("'{}' {} makes {} stages a rank of {} layers, and '{}' '{}' takes {}",
                           in.key(kLayers), *of_stage, of_rank, layers,
                           in.key("pipeline_parallel_schedule"), schedule.name,
                           schedule.has_one_stage    ? "one"
                           : schedule.has_two_stages ? "two"
                                                     : "two or more"));
    return;
  }
  k.vpp = static_cast<int32_t>(of_rank);
}

/// The first word of a setting that no part reads; empty: it is not said.
std::string_view said_of(const Reading& in, std::string_view key) {
  const Setting* setting = in.settings.find(key);
  return setting == nullptr || setting->words.empty() ? std::string_view()
                                                      : std::string_view(setting->words.front());
}

/// Whether the run has its schedule in a file of its own.
bool has_listed_schedule(const Reading& in) {
  return !said_of(in, "parallelism.pipeline_parallel_schedule_csv").empty();
}

/// Whether experts' exchange hides behind the other direction's work: DualPipeV's default.
bool overlaps_directions(const Reading& in) {
  const PlanKnobs& k = in.run.knobs;
  return k.pp > 1 && k.ep > 1 && in.run.pipeline_schedule == kDualPipe &&
         said_of(in, "parallelism.pipeline_parallel_expert_parallel_overlap") != "false";
}

void read_schedule(Reading& in) {
  PlanKnobs& k = in.run.knobs;
  const std::string name = in.parts.word("pipeline_parallel_schedule");
  if (k.pp == 1) return;
  const Schedule* schedule = find_schedule(name);
  // Also beside a file: how many stages a rank has, and which, follows from the name.
  if (schedule == nullptr) {
    in.problem(fmt::format("'{}' '{}' is no schedule of torch; {}",
                           in.key("pipeline_parallel_schedule"), shown(name),
                           unknown_schedule_text(name)));
    return;
  }
  in.run.has_listed_schedule = has_listed_schedule(in);
  if (in.run.has_listed_schedule) {
    in.note("the pipeline's schedule is a file's: its order of forwards and backwards is not read");
  } else if (schedule->name == kListedSingle || schedule->name == kListed) {
    in.problem(
        fmt::format("'{}' '{}' runs the order of a file: "
                    "'parallelism.pipeline_parallel_schedule_csv' names none",
                    in.key("pipeline_parallel_schedule"), schedule->name));
    return;
  }
  k.vpp = schedule->has_one_stage ? 1 : 2;
  if (schedule->name != usual_schedule(k)) {
    in.run.pipeline_schedule = schedule->name;
    in.note(fmt::format("'{}' is '{}': taken as {}{}", in.key("pipeline_parallel_schedule"),
                        schedule->name, usual_schedule(k),
                        holds_all_micro_batches(in.run, k)
                            ? ", but memory holds all micro-batches of a step"
                            : ", with its time and memory"));
  }
  read_layers_per_stage(in, *schedule);
  const auto first = in.parts.integer("pipeline_parallel_first_stage_less_layers");
  const auto last = in.parts.integer("pipeline_parallel_last_stage_less_layers");
  if (first != 0 || last != 0) {
    in.run.has_lighter_ends = true;
    in.note("the first and the last stage have fewer layers: an even split is taken");
    in.parts.leave("pipeline_parallel_first_stage_less_layers");
    in.parts.leave("pipeline_parallel_last_stage_less_layers");
  }
}

void write_schedule(Writing& out) {
  const PlanKnobs& k = out.knobs();
  if (k.pp == 1) return;
  const std::string& stated = out.run.pipeline_schedule;
  const Schedule* schedule = find_schedule(stated);
  const bool is_kept = schedule != nullptr && takes_stages_of(k, *schedule);
  out.parts.say("pipeline_parallel_schedule",
                is_kept ? std::string_view(stated) : usual_schedule(k));
  if (!out.run.has_lighter_ends) {
    out.parts.say("pipeline_parallel_first_stage_less_layers", int64_t{0});
    out.parts.say("pipeline_parallel_last_stage_less_layers", int64_t{0});
  }
  if (k.vpp <= 2) return;
  const int64_t layers = out.traits.value("num_layers", int64_t{0});
  const int64_t stages = int64_t{k.pp} * k.vpp;
  if (layers == 0 || layers % stages != 0) {
    out.cannot_say(fmt::format("vpp={}", k.vpp), "the layers of a stage are not a whole number");
  } else {
    out.parts.say("pipeline_parallel_layers_per_stage", layers / stages);
  }
}

void read_types(Reading& in) {
  PlanKnobs& k = in.run.knobs;
  const std::string dtype = in.parts.word("dtype");
  const std::string param = in.parts.word("mixed_precision_param");
  k.precision =
      param == "bfloat16" || dtype == "bfloat16" ? PrecisionRecipe::bf16 : PrecisionRecipe::fp32;
  if (dtype == "bfloat16") {
    k.exp_avg = k.exp_avg_sq = k.main_params = k.main_grads = StateType::bf16;
  } else if (dtype != "float32") {
    in.problem(
        fmt::format("'{}' is '{}', expected bfloat16 or float32", in.key("dtype"), shown(dtype)));
  }
  std::vector<std::string> others;
  for (const std::string& name : in.parts.list("converters")) {
    if (name == kFloat8Linear || name == kFloat8Experts || name == "float8") {
      k.precision = PrecisionRecipe::fp8_current;
    } else if (name == kMxLinear || name == kMxExperts || name == "mx") {
      k.precision = PrecisionRecipe::mxfp8;
    } else {
      in.note(fmt::format("the converter '{}' is not known", shown(name)));
      in.parts.leave("converters");
    }
  }
  const std::string recipe = in.parts.word("float8_recipe");
  const bool is_float8 = k.precision == PrecisionRecipe::fp8_current;
  if (is_float8 && !recipe.empty() && recipe != "tensorwise") {
    in.note(
        fmt::format("'{}' is '{}': taken as tensorwise", in.key("float8_recipe"), shown(recipe)));
  }
  if (!is_float8) in.parts.leave("float8_recipe");
  if (is_float8) in.parts.list("float8_experts");
  if (k.precision == PrecisionRecipe::mxfp8) in.parts.list("mx_experts");
}

/// A dense model has no products of experts to convert.
Words converters_of(const RunConfig& run, std::string_view linear, std::string_view experts) {
  Words names = {std::string(linear)};
  if (!names_dense_model(run)) names.emplace_back(experts);
  return names;
}

void write_types(Writing& out) {
  const PlanKnobs& k = out.knobs();
  const std::array states = {k.exp_avg, k.exp_avg_sq, k.main_params, k.main_grads};
  const bool is_narrow =
      std::ranges::all_of(states, [](StateType type) { return type == StateType::bf16; });
  const bool is_wide =
      std::ranges::all_of(states, [](StateType type) { return type == StateType::fp32; });
  if (is_narrow) out.parts.say("dtype", "bfloat16");
  if (!is_narrow && !is_wide) {
    out.cannot_say("types of moments, weights and gradients that differ", "fp32 is written");
    constexpr std::array<std::string_view, 4> kStates = {"exp_avg", "exp_avg_sq", "main_params",
                                                         "main_grads"};
    for (size_t i = 0; i < states.size(); ++i) {
      if (states[i] != StateType::fp32) out.unsaid.emplace_back(kStates[i]);
    }
  }
  const bool has_experts = !names_dense_model(out.run);
  switch (k.precision) {
    case PrecisionRecipe::bf16:
      break;
    case PrecisionRecipe::fp32:
      out.parts.say("mixed_precision_param", "float32");
      break;
    case PrecisionRecipe::fp8_current:
      out.parts.say("converters", converters_of(out.run, kFloat8Linear, kFloat8Experts));
      out.parts.say("float8_recipe", "tensorwise");
      if (has_experts) out.parts.say("float8_experts", Words{"experts"});
      break;
    case PrecisionRecipe::mxfp8:
      out.parts.say("converters", converters_of(out.run, kMxLinear, kMxExperts));
      if (has_experts) out.parts.say("mx_experts", Words{"experts"});
      break;
    default:
      out.cannot_say(fmt::format("precision={}", name_of(k.precision)), "bf16 is written");
  }
}

/// By operation ("op"), or whole layers: every N-th ("2").
void read_selective(Reading& in) {
  const std::string option = in.parts.word("selective_ac_option");
  in.parts.leave("selective_ac_option");  // no knob stands for it
  if (parse_integer(option) == 1) {
    in.run.knobs.recompute = {PlanRecompute::full};
    return;
  }
  in.run.knobs.recompute = kSelective;
  if (parse_integer(option)) {
    in.note(
        fmt::format("'{}' is 'selective', of one layer in {} ('{}'): taken as norms and "
                    "activations of all layers",
                    in.key("activation_checkpoint"), shown(option), in.key("selective_ac_option")));
  } else {
    in.note(
        fmt::format("'{}' is 'selective', by operation: taken as norms and activations, though "
                    "every second product is computed again as well",
                    in.key("activation_checkpoint")));
  }
}

void read_memory(Reading& in) {
  PlanKnobs& k = in.run.knobs;
  const std::string mode = in.parts.word("activation_checkpoint");
  if (mode == "full") {
    k.recompute = {PlanRecompute::full};
  } else if (mode == "selective") {
    read_selective(in);
  } else if (mode != "none") {
    k.recompute = kSelective;
    in.note(
        fmt::format("'{}' is '{}', for which moetune has no word: taken as norms and "
                    "activations, computed again",
                    in.key("activation_checkpoint"), shown(mode)));
    in.parts.leave("activation_checkpoint");
  }
  if (mode != "none" && overlaps_directions(in)) {
    in.note(fmt::format("torchtitan 0.2.2 refuses {} of experts on several ranks beside '{}' '{}'",
                        kDualPipe, in.key("activation_checkpoint"), shown(mode)));
  }
  if (in.parts.flag("enable_cpu_offload")) {
    k.optimizer_offload_ratio = 1;
    in.note("weights and gradients are in the host's memory as well as the optimizer's state");
  }
}

/// Whether the run's own text recomputes by operation, by layer or by a budget: also unasked.
bool is_selective_itself(const RunConfig& run) {
  if (run.dialect != Dialect::torchtitan || run.stated.empty()) return false;
  const std::string key = key_of(row_of("activation_checkpoint"), run.dialect);
  const auto mode = std::ranges::find(run.stated, key, &StatedSetting::key);
  return mode == run.stated.end() || (mode->value.find("none") == std::string::npos &&
                                      mode->value.find("full") == std::string::npos);
}

void write_memory(Writing& out) {
  const PlanKnobs& k = out.knobs();
  const bool is_full = k.recompute.has(PlanRecompute::full);
  const auto is_kept = [&](const UnknownSetting& setting) {
    return setting.key == key_of(row_of("activation_checkpoint"), Dialect::torchtitan);
  };
  if (is_full || k.recompute.empty()) {
    out.parts.say("activation_checkpoint", is_full ? "full" : "none");
  } else if (k.recompute != kSelective || !is_selective_itself(out.run)) {
    out.parts.say("activation_checkpoint", "selective");
    out.parts.say("selective_ac_option", "op");
    out.cannot_say("recompute=" + k.recompute.text(), "it chooses by operation");
  } else if (std::ranges::none_of(out.run.unknown, is_kept)) {
    out.parts.say("activation_checkpoint", "selective");  // its option stays as it is
  }
  if (k.optimizer_offload_ratio == 0) return;
  out.parts.say("enable_cpu_offload", true);
  out.cannot_say(fmt::format("optimizer_offload_ratio={}", k.optimizer_offload_ratio),
                 "it offloads all of it, and weights and gradients");
}

void read_kernels(Reading& in) {
  const bool is_on = in.parts.flag("compile");
  const std::vector<std::string> parts = in.parts.list("compile_components");
  const auto compiles = [&](std::string_view name) {
    return is_on && std::ranges::find(parts, name) != parts.end();
  };
  in.run.knobs.fused_activation = compiles("model");
  const Schedule* schedule = other_schedule(in.run, in.run.knobs);
  if (compiles("model") && schedule != nullptr && schedule->splits_backward) {
    in.note(fmt::format("torch refuses '{}' of compiled models: it is priced all the same",
                        schedule->name));
  }
  in.run.knobs.cross_entropy = compiles("loss") ? CrossEntropy::native : CrossEntropy::unfused;
}

void write_kernels(Writing& out) {
  const CrossEntropy loss = out.knobs().cross_entropy;
  std::vector<std::string> parts;
  if (out.knobs().fused_activation) parts.emplace_back("model");
  if (loss != CrossEntropy::unfused) parts.emplace_back("loss");
  if (loss == CrossEntropy::te || loss == CrossEntropy::chunked) {
    out.cannot_say(fmt::format("cross_entropy={}", name_of(loss)), "the loss is compiled");
  }
  if (parts.empty()) return;
  out.parts.say("compile", true);
  out.parts.say("compile_components", std::move(parts));
}

}  // namespace

bool names_dense_model(const RunConfig& run) {
  if (run.is_dense) return true;
  if (run.dialect != Dialect::torchtitan || run.knobs.ep > 1) return false;
  const std::string& name = run.model_name;
  if (name.starts_with("llama3")) return true;
  if (!name.starts_with("qwen3/") && !name.starts_with("qwen3 ")) return false;
  // "debugmodel_moe", "30B-A3B", "235B-A22B", on main "qwen3_30b_a3b".
  constexpr std::array<std::string_view, 5> kOfExperts = {"moe", "A3B", "A22B", "a3b", "a22b"};
  return std::ranges::none_of(
      kOfExperts, [&](std::string_view word) { return name.find(word) != std::string::npos; });
}

bool holds_all_micro_batches(const RunConfig& run, const PlanKnobs& knobs) {
  const Schedule* schedule = other_schedule(run, knobs);
  return schedule != nullptr && schedule->has_forwards_first;
}

bool has_rounds(const RunConfig& run, const PlanKnobs& knobs) {
  const Schedule* schedule = other_schedule(run, knobs);
  return schedule == nullptr || schedule->has_rounds;
}

bool fills_stages(const RunConfig& run, const PlanKnobs& knobs) {
  const Schedule* schedule = other_schedule(run, knobs);
  return schedule != nullptr && schedule->fills_stages;
}

bool has_usual_schedule(const RunConfig& run, const PlanKnobs& knobs) {
  return other_schedule(run, knobs) == nullptr;
}

void read_parts_of_titan(Reading& reading) {
  for (void (*read)(Reading&) :
       {read_degrees, read_batch, read_schedule, read_types, read_memory, read_kernels}) {
    read(reading);
  }
}

void write_parts_of_titan(Writing& writing) {
  for (void (*write)(Writing&) :
       {write_degrees, write_batch, write_schedule, write_types, write_memory, write_kernels}) {
    write(writing);
  }
  const PlanKnobs& k = writing.knobs();
  if (k.etp != 1 && k.etp != k.tp) {
    writing.cannot_say(fmt::format("etp={}", k.etp), "it takes 1 or the tensor-parallel size");
  }
}

}  // namespace moetune::spec::dialects

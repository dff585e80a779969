// What Megatron-LM and those that build on it say with several settings at once. All three have the
// same parts under keys of their own.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "engine/spec/dialects/parts.h"
#include "engine/spec/dialects/recipe_name.h"
#include "engine/spec/dialects/text_cursor.h"
#include "engine/spec/dialects/values.h"
#include "engine/spec/pipeline_layout.h"

namespace moetune::spec::dialects {
namespace {

constexpr int64_t kMostStages = 10'000;
constexpr std::string_view kShardedGradients = "megatron_fsdp_main_grads_dtype";

std::vector<std::string> names_in(const auto& set, const auto& all) {
  std::vector<std::string> names;
  for (const auto member : all) {
    if (set.has(member)) names.emplace_back(name_of(member));
  }
  return names;
}

/// The members of a set that have one of the names; others are noted.
template <class E>
NamedSet<E> set_of(const std::vector<std::string>& names, std::string_view row, Reading& in) {
  NamedSet<E> set;
  for (const std::string& name : names) {
    if (const auto member = find_by_name<E>(name)) {
      set.add(*member);
    } else {
      in.note(fmt::format("'{}' names '{}', for which moetune has no word: left out", in.key(row),
                          shown(name)));
    }
  }
  return set;
}

void both_said(Reading& in, std::string_view one, std::string_view other) {
  in.problem(
      fmt::format("'{}' and '{}' contradict each other: leave one", in.key(one), in.key(other)));
}

/// Where something else says the layers of the first stage and the last, Megatron counts neither
/// embedding nor loss as one.
void contradict_counted_ends(Reading& in, std::string_view row) {
  for (const std::string& key : keys_of_counted_ends(in.run)) {
    in.problem(fmt::format("'{}' and '{}' contradict each other: leave one", in.key(row), key));
  }
}

/// A hand-written layout says all stages itself.
void read_layout(Reading& in, std::optional<int64_t> stages, std::optional<int64_t> layers) {
  PlanKnobs& k = in.run.knobs;
  constexpr std::string_view kLayout = "pipeline_model_parallel_layout";
  if (k.first_stage_layers > 0) both_said(in, kLayout, "first_stage_layers");
  if (k.last_stage_layers > 0) both_said(in, kLayout, "last_stage_layers");
  if (layers) both_said(in, kLayout, "num_layers_per_virtual_pipeline_stage");
  contradict_counted_ends(in, kLayout);
  const bool may_both_be_said = in.dialect == Dialect::megatron_bridge;
  if (stages && !may_both_be_said) {
    both_said(in, kLayout, "num_virtual_stages_per_pipeline_rank");
  }
  in.problems.attempt([&] {
    const auto count = static_cast<int64_t>(pipeline_stages_of(in.run.pipeline_layout).size());
    if (count % k.pp != 0) {
      in.problem(fmt::format("'{}' has {} stages, which '{}' ({}) does not divide", in.key(kLayout),
                             count, in.key("pp"), k.pp));
      return;
    }
    k.vpp = static_cast<int32_t>(count / k.pp);
    if (stages && may_both_be_said && *stages != k.vpp) {
      in.problem(fmt::format("'{}' has {} stages a rank and '{}' is {}", in.key(kLayout), k.vpp,
                             in.key("num_virtual_stages_per_pipeline_rank"), *stages));
    }
  });
}

void read_stages(Reading& in) {
  PlanKnobs& k = in.run.knobs;
  constexpr std::string_view kStages = "num_virtual_stages_per_pipeline_rank";
  constexpr std::string_view kLayers = "num_layers_per_virtual_pipeline_stage";
  const auto stages = in.parts.integer(kStages);
  const auto layers = in.parts.integer(kLayers);
  if (stages && layers) both_said(in, kStages, kLayers);
  for (const std::string_view row : {"first_stage_layers", "last_stage_layers"}) {
    const bool is_said =
        row == "first_stage_layers" ? k.first_stage_layers > 0 : k.last_stage_layers > 0;
    if (is_said && in.run.pipeline_layout.empty()) contradict_counted_ends(in, row);
  }
  if (!in.run.pipeline_layout.empty()) {
    read_layout(in, stages, layers);
  } else if (stages) {
    if (*stages < 1 || *stages > kMostStages) {
      in.problem(
          fmt::format("'{}' is {}, expected from 1 to {}", in.key(kStages), *stages, kMostStages));
      return;
    }
    k.vpp = static_cast<int32_t>(*stages);
  } else if (layers) {
    const auto total = in.traits.find("num_layers");
    const bool is_said = total != in.traits.end();
    if (!is_said && in.options.num_layers == 0) {
      in.note(
          fmt::format("'{}' counts layers, and how many there are is not said", in.key(kLayers)));
      in.parts.leave(kLayers);
      return;
    }
    const int64_t num_layers = is_said ? total->get<int64_t>() : in.options.num_layers;
    const std::vector<std::string> counted = keys_of_counted_ends(in.run);
    const int64_t all = num_layers + static_cast<int64_t>(counted.size());
    if (*layers < 1 || num_layers < 1 || all % k.pp != 0 || all / k.pp % *layers != 0 ||
        all / k.pp / *layers > kMostStages) {
      const std::string beside =
          counted.empty() ? std::string()
                          : fmt::format(" (and {} with {})", all, fmt::join(counted, " and "));
      in.problem(fmt::format(
          "'{}' ({}) does not divide the layers of a rank: '{}' is {}{}, '{}' is {}",
          in.key(kLayers), *layers, in.key("num_layers"), num_layers, beside, in.key("pp"), k.pp));
      return;
    }
    k.vpp = static_cast<int32_t>(all / k.pp / *layers);
  }
}

/// The size that Megatron-LM sets by itself: what a log tells of it holds, what a file says does
/// not.
void read_computed_stages(Reading& in) {
  constexpr std::string_view kComputed = "virtual_pipeline_model_parallel_size";
  const auto stages = in.parts.integer(kComputed);
  PlanKnobs& k = in.run.knobs;
  if (!stages || *stages == k.vpp) return;
  if (in.options.is_echo && *stages >= 1 && *stages <= kMostStages) {
    k.vpp = static_cast<int32_t>(*stages);
    return;
  }
  in.parts.leave(kComputed);
  in.note(
      fmt::format("'{}' ({}) changes nothing: '{}' or '{}' says the virtual stages of a rank: {}",
                  in.key(kComputed), *stages, in.key("num_virtual_stages_per_pipeline_rank"),
                  in.key("pipeline_model_parallel_layout"),
                  k.vpp == 1 ? "there are none" : fmt::format("there are {}", k.vpp)));
}

void write_stages(Writing& out) {
  const bool is_in_layout =
      !out.run.pipeline_layout.empty() || out.traits.contains("hybrid_layer_pattern");
  if (out.knobs().vpp > 1 && !is_in_layout) {
    out.parts.say("num_virtual_stages_per_pipeline_rank", int64_t{out.knobs().vpp});
  } else if (out.overrides_others) {
    out.parts.say("num_virtual_stages_per_pipeline_rank", "null");
  }
}

constexpr std::string_view kRecomputeMethod = "full_recompute_method";
constexpr std::string_view kRecomputeCount = "full_recompute_num_layers";

/// Full recomputation says of how many layers at a time, and how they are chosen. Primus may name
/// the layers instead; recipes and what was not given may say the rest.
void check_full_recompute(Reading& in) {
  const bool is_said_elsewhere = in.may_stand_elsewhere() || names_recomputed_layers(in);
  const bool has_all =
      !in.parts.word(kRecomputeMethod).empty() && in.parts.integer(kRecomputeCount);
  if (!has_all && !is_said_elsewhere && !in.options.is_echo) {
    in.problem(fmt::format("'{}' full needs '{}' and '{}'", in.key("recompute_granularity"),
                           in.key(kRecomputeMethod), in.key(kRecomputeCount)));
  }
}

/// Which layers full recomputation takes. What is not said is that of each layer by itself.
void read_recomputed_layers(Reading& in) {
  PlanKnobs& k = in.run.knobs;
  const std::string method = in.parts.word(kRecomputeMethod);
  const auto layers = in.parts.integer(kRecomputeCount);
  if (!method.empty() && method != "none") {
    if (const auto known = find_by_name<RecomputeMethod>(method)) {
      k.recompute_method = *known;
    } else {
      in.problem(fmt::format("'{}' is '{}', expected uniform or block", in.key(kRecomputeMethod),
                             shown(method)));
    }
  }
  // The first none of them: it is how shipped configurations switch recomputation off.
  if (layers == 0 && k.recompute_method == RecomputeMethod::block && !names_recomputed_layers(in)) {
    k.recompute = {};
    k.recompute_method = RecomputeMethod::uniform;
    in.note(fmt::format("'{}' is 0 with '{}' block: nothing is recomputed", in.key(kRecomputeCount),
                        in.key(kRecomputeMethod)));
    return;
  }
  if (layers) {
    const PlanKnobMember count = &PlanKnobs::recompute_num_layers;
    if (!set_text(k, count, std::to_string(*layers))) {
      in.problem(fmt::format("'{}' is '{}', expected {}", in.key(kRecomputeCount), *layers,
                             values_of(count)));
    }
  } else if (k.recompute_method == RecomputeMethod::block) {
    in.note(fmt::format("'{}' is block without '{}': 1 is taken", in.key(kRecomputeMethod),
                        in.key(kRecomputeCount)));
  }
}

void read_recompute(Reading& in) {
  std::string granularity = in.parts.word("recompute_granularity");
  const std::string method = in.parts.word(kRecomputeMethod);
  const auto layers = in.parts.integer(kRecomputeCount);
  std::vector<std::string> modules = in.parts.list("recompute_modules");
  constexpr std::string_view kOfExperts = "moe_layer_recompute";
  if (in.parts.flag(kOfExperts)) {
    if (granularity == "full") both_said(in, "recompute_granularity", kOfExperts);
    granularity = "selective";
    if (modules.empty()) modules = {"core_attn"};
    modules.emplace_back(name_of(PlanRecompute::moe));
  }
  PlanRecomputeSet& recompute = in.run.knobs.recompute;
  if (granularity.empty() || granularity == "none") {
    if (!modules.empty() || !method.empty()) {
      in.note(fmt::format("nothing is recomputed without '{}'", in.key("recompute_granularity")));
    }
  } else if (granularity == "full") {
    recompute = {PlanRecompute::full};
    check_full_recompute(in);
    if (!modules.empty() && modules != std::vector<std::string>{"core_attn"}) {
      in.note(fmt::format("'{}' says nothing beside '{}' full", in.key("recompute_modules"),
                          in.key("recompute_granularity")));
    }
    read_recomputed_layers(in);
    read_listed_layers(in);
  } else if (granularity == "selective") {
    if (!method.empty()) both_said(in, "recompute_granularity", kRecomputeMethod);
    if (layers) both_said(in, "recompute_granularity", kRecomputeCount);
    if (modules.empty()) modules = {"core_attn"};
    std::erase(modules, "full");
    recompute = set_of<PlanRecompute>(modules, "recompute_modules", in);
  } else {
    in.problem(fmt::format("'{}' is '{}', expected full or selective",
                           in.key("recompute_granularity"), shown(granularity)));
  }
}

/// Whether the run's list of recomputed layers goes along.
bool writes_listed_layers(const Writing& out) {
  if (out.dialect != Dialect::primus || out.run.dialect != out.dialect) return false;
  return std::ranges::any_of(out.run.unknown, [](const UnknownSetting& setting) {
    return setting.key == "recompute_layer_ids" && setting.value != "null";
  });
}

void write_recompute(Writing& out) {
  const PlanRecomputeSet& recompute = out.knobs().recompute;
  if (out.overrides_others) {
    out.parts.say("recompute_granularity", "null");
    for (const std::string_view part : {kRecomputeMethod, kRecomputeCount}) {
      out.parts.say(part, "null");
    }
  }
  if (recompute.empty()) return;
  if (recompute.has(PlanRecompute::full)) {
    out.parts.say("recompute_granularity", "full");
    // The list goes along, and Primus refuses a method beside it.
    if (writes_listed_layers(out)) return;
    out.parts.say(kRecomputeMethod, name_of(out.knobs().recompute_method));
    out.parts.say(kRecomputeCount, int64_t{out.knobs().recompute_num_layers});
    return;
  }
  out.parts.say("recompute_granularity", "selective");
  out.parts.say("recompute_modules", names_in(recompute, all_values<PlanRecompute>()));
}

void read_graphs(Reading& in) {
  const std::string impl = in.parts.word("cuda_graph_impl");
  std::vector<std::string> modules = in.parts.list("cuda_graph_modules");
  PlanGraphSet& graphs = in.run.knobs.cuda_graphs;
  const auto names = [&](std::string_view name) {
    return std::ranges::find(modules, name) != modules.end();
  };
  if (impl.empty() || impl == "none") {
    // Primus' own default is "full", which means nothing there.
    if (!modules.empty() && !names("full")) {
      in.note(fmt::format("nothing is captured without '{}'", in.key("cuda_graph_impl")));
    }
  } else if (impl == "full_iteration" || (impl == "local" && names("full_iteration"))) {
    graphs = {PlanGraph::full_iteration};
    in.parts.flag("check_for_nan_in_loss_and_grad");  // has to be off, and is written again
  } else if (impl == "local" || impl == "transformer_engine") {
    if (modules.empty() || names("full")) {
      modules = {"attn", "mlp"};
      if (in.traits.value("num_experts", int64_t{0}) > 0) modules.emplace_back("moe");
      in.note("whole layers are captured: taken as " +
              std::string(modules.size() == 2 ? "attn and mlp" : "attn, mlp and moe"));
    }
    std::erase(modules, "full_iteration");
    graphs = set_of<PlanGraph>(modules, "cuda_graph_modules", in);
  } else {
    in.problem(
        fmt::format("'{}' is '{}', expected one of none, local, transformer_engine, full_iteration",
                    in.key("cuda_graph_impl"), shown(impl)));
  }
}

void write_graphs(Writing& out) {
  const PlanGraphSet& graphs = out.knobs().cuda_graphs;
  if (graphs.empty()) out.parts.say("cuda_graph_impl", "none");
  if (graphs.empty()) return;
  if (!graphs.has(PlanGraph::full_iteration)) {
    out.parts.say("cuda_graph_impl", "transformer_engine");
    out.parts.say("cuda_graph_modules", names_in(graphs, all_values<PlanGraph>()));
    return;
  }
  // The Megatron-LM that Primus is built on calls it a scope.
  const bool is_scope = out.dialect == Dialect::primus;
  out.parts.say("cuda_graph_impl", is_scope ? "local" : "full_iteration");
  if (is_scope) out.parts.say("cuda_graph_modules", "full_iteration");
  // The check reads the loss on the host, which a graph cannot.
  out.parts.say("check_for_nan_in_loss_and_grad", false);
}

void read_offload(Reading& in) {
  const bool is_on = in.parts.flag("fine_grained_activation_offloading");
  const std::vector<std::string> modules = in.parts.list("offload_modules");
  if (is_on) {
    in.run.knobs.offload = set_of<Offload>(modules, "offload_modules", in);
  } else if (!modules.empty()) {
    in.note(fmt::format("nothing is offloaded without '{}'",
                        in.key("fine_grained_activation_offloading")));
  }
  if (!in.parts.flag("optimizer_cpu_offload")) return;
  const double ratio = parse_number(in.parts.word("optimizer_offload_fraction")).value_or(-1);
  if (ratio < 0 || ratio > 1) {
    in.problem(fmt::format("'{}' is {}, expected from 0 to 1", in.key("optimizer_offload_fraction"),
                           ratio));
  } else {
    in.run.knobs.optimizer_offload_ratio = static_cast<float>(ratio);
  }
}

void write_offload(Writing& out) {
  const PlanKnobs& k = out.knobs();
  out.parts.say("fine_grained_activation_offloading", !k.offload.empty());
  if (!k.offload.empty()) {
    out.parts.say("offload_modules", names_in(k.offload, all_values<Offload>()));
  }
  out.parts.say("optimizer_cpu_offload", k.optimizer_offload_ratio > 0);
  if (k.optimizer_offload_ratio > 0) {
    out.parts.say("optimizer_offload_fraction", fmt::format("{}", k.optimizer_offload_ratio));
  }
}

void read_dispatcher(Reading& in) {
  const std::string type = in.parts.word("moe_token_dispatcher_type");
  Dispatcher& dispatcher = in.run.knobs.dispatcher;
  const bool has_turbo = in.parts.is_on("enable_primus_turbo");
  const bool is_sync_free =
      has_turbo && in.parts.integer("turbo_sync_free_moe_stage").value_or(0) >= 2;
  in.parts.leave("turbo_sync_free_moe_stage");
  const bool is_deepep = in.parts.flag("moe_enable_deepep") ||
                         (has_turbo && in.parts.is_on("use_turbo_deepep")) || is_sync_free;
  if (is_deepep && in.dialect == Dialect::primus) {
    dispatcher = Dispatcher::deepep;
  } else if (type == "alltoall" || type == "alltoall_seq") {
    dispatcher = Dispatcher::alltoall;
  } else if (type == "allgather") {
    dispatcher = Dispatcher::allgather;
  } else if (type == "flex") {
    const std::string backend = in.parts.word("moe_flex_dispatcher_backend");
    dispatcher = backend == "deepep" ? Dispatcher::deepep : Dispatcher::hybridep;
    if (backend == "ncclep") {
      in.note("the dispatcher ncclep is not known: taken as hybridep");
    } else if (backend != "deepep" && backend != "hybridep") {
      in.problem(fmt::format("'{}' is '{}', expected one of deepep, hybridep, ncclep",
                             in.key("moe_flex_dispatcher_backend"), shown(backend)));
    }
  } else {
    in.problem(fmt::format("'{}' is '{}', expected one of allgather, alltoall, flex",
                           in.key("moe_token_dispatcher_type"), shown(type)));
  }
  if (is_sync_free) in.run.knobs.moe_permute_fusion = true;  // which that stage turns on by itself
  if (has_turbo && in.parts.is_on("use_turbo_grouped_gemm")) in.run.knobs.moe_grouped_gemm = true;
}

void write_dispatcher(Writing& out) {
  const Dispatcher dispatcher = out.knobs().dispatcher;
  constexpr std::string_view kType = "moe_token_dispatcher_type";
  // A run that is not known to have experts may be dense.
  const bool has_experts = out.overrides_others || out.knobs().ep > 1 ||
                           out.traits.value("num_experts", int64_t{0}) > 0 ||
                           out.run.model.contains("num_experts");
  const bool is_stated = std::ranges::find(out.run.stated, key_of(row_of(kType), out.run.dialect),
                                           &StatedSetting::key) != out.run.stated.end();
  const bool is_default = name_of(dispatcher) == fallback_of(row_of(kType), out.dialect);
  if (is_default && !has_experts && !is_stated) return;
  if (dispatcher == Dispatcher::alltoall || dispatcher == Dispatcher::allgather) {
    out.parts.say(kType, name_of(dispatcher));
    if (out.dialect == Dialect::primus) out.parts.say("moe_enable_deepep", false);
    return;
  }
  out.parts.say("moe_token_dispatcher_type", "flex");
  if (out.dialect != Dialect::primus) {
    out.parts.say("moe_flex_dispatcher_backend", name_of(dispatcher));
    return;
  }
  out.parts.say("moe_enable_deepep", true);
  if (dispatcher == Dispatcher::hybridep)
    out.cannot_say("dispatcher=hybridep", "deepep is written");
}

void read_cross_entropy(Reading& in) {
  const bool is_fused = in.parts.flag("cross_entropy_loss_fusion");
  const std::string impl = in.parts.word("cross_entropy_fusion_impl");
  CrossEntropy& loss = in.run.knobs.cross_entropy;
  loss =
      !is_fused ? CrossEntropy::unfused : (impl == "te" ? CrossEntropy::te : CrossEntropy::native);
  if (is_fused && impl != "te" && impl != "native") {
    in.note(fmt::format("'{}' is '{}': taken as native", in.key("cross_entropy_fusion_impl"),
                        shown(impl)));
  }
  if (in.parts.flag("enable_fused_linear_ce")) loss = CrossEntropy::chunked;
}

void write_cross_entropy(Writing& out) {
  const CrossEntropy loss = out.knobs().cross_entropy;
  const bool is_chunked = loss == CrossEntropy::chunked;
  if (is_chunked) {
    if (out.dialect == Dialect::primus) {
      out.parts.say("enable_fused_linear_ce", true);
    } else {
      out.cannot_say("cross_entropy=chunked");
    }
  }
  const bool is_fused = loss == CrossEntropy::native || loss == CrossEntropy::te;
  out.parts.say("cross_entropy_loss_fusion", is_fused);
  if (is_fused) out.parts.say("cross_entropy_fusion_impl", name_of(loss));
}

bool has_wide_weights(const PlanKnobs& k) {
  return k.precision == PrecisionRecipe::fp32 || k.params_dtype == StateType::fp32;
}

/// FSDP's own type of main gradients (since 2026-03) stands instead of --main-grads-dtype; left
/// alone it is that of the gradients, so of the weights. Recipes of Megatron-Bridge say theirs
/// elsewhere.
void read_sharded_gradients(Reading& in) {
  if (in.dialect == Dialect::megatron_bridge && !in.parts.has(kShardedGradients)) return;
  std::string type = in.parts.word(kShardedGradients);
  if (type == "torch.float32") type = "fp32";
  if (type == "torch.bfloat16") type = "bf16";
  const bool is_told = type == "fp32" || type == "bf16";
  const bool is_wide = is_told ? type == "fp32" : has_wide_weights(in.run.knobs);
  in.run.knobs.main_grads = is_wide ? StateType::fp32 : StateType::bf16;
  if (!is_told && type != "auto") {
    in.note(fmt::format("'{}' is '{}': taken as auto", in.key(kShardedGradients), shown(type)));
  }
}

void read_sharding(Reading& in) {
  const bool is_megatron = in.parts.flag("use_megatron_fsdp");
  const bool is_torch = in.parts.flag("use_torch_fsdp2");
  if (is_megatron && is_torch) both_said(in, "use_megatron_fsdp", "use_torch_fsdp2");
  Fsdp& fsdp = in.run.knobs.fsdp;
  fsdp = is_megatron ? Fsdp::megatron : (is_torch ? Fsdp::torch : Fsdp::none);
  if (!is_megatron) return;
  read_sharded_gradients(in);
  if (in.parts.word("ckpt_format") != "fsdp_dtensor") in.parts.leave("ckpt_format");
  const bool is_said = in.parts.has("data_parallel_sharding_strategy");
  const std::string strategy = in.parts.word("data_parallel_sharding_strategy");
  // It was no_shard as long as it went by --use-custom-fsdp, and beyond.
  if (!is_said && in.dialect == Dialect::megatron_lm) {
    in.note(fmt::format("'{}' is not said: {}, as in {}; older releases shard nothing unasked",
                        in.key("data_parallel_sharding_strategy"), strategy,
                        dialect_row(in.dialect).release));
  }
  if (strategy != "optim_grads_params") {
    in.parts.leave("data_parallel_sharding_strategy");
    in.note(fmt::format("'{}' is '{}': moetune knows only optim_grads_params",
                        in.key("data_parallel_sharding_strategy"), shown(strategy)));
  }
}

void write_sharding(Writing& out) {
  out.parts.say("use_torch_fsdp2", out.knobs().fsdp == Fsdp::torch);
  out.parts.say("use_megatron_fsdp", out.knobs().fsdp == Fsdp::megatron);
  if (out.knobs().fsdp != Fsdp::megatron) return;
  out.parts.say("data_parallel_sharding_strategy", "optim_grads_params");
  out.parts.say("ckpt_format", "fsdp_dtensor");         // it takes no other
  if (out.dialect == Dialect::megatron_bridge) return;  // it takes no word for a type there
  const bool is_wide = out.knobs().main_grads != StateType::bf16;
  const bool is_as_weights = is_wide == (out.knobs().precision == PrecisionRecipe::fp32);
  out.parts.say(kShardedGradients, is_as_weights ? "auto" : (is_wide ? "fp32" : "bf16"));
}

/// What the name of Megatron-Bridge's recipe says is trained.
std::optional<TrainingTask> task_of_name(const RunConfig& run) {
  if (run.dialect != Dialect::megatron_bridge) return std::nullopt;
  return task_in_recipe(run.model_name);
}

/// Adapters that are none of LoRA's: their run is priced as one that trains all weights.
constexpr std::string_view kOtherAdapter = "dora";

void read_task(Reading& in) {
  PlanKnobs& k = in.run.knobs;
  std::string adapter = in.parts.word("peft");
  std::ranges::transform(adapter, adapter.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  });
  if (in.parts.word("stage") == "sft" || in.parts.flag("sft")) k.task = TrainingTask::sft;
  const bool is_bridge = in.dialect == Dialect::megatron_bridge;
  // Only adapters have a rank: the recipe brings them where the command does not.
  const bool has_rank = in.parts.has("lora_dim");
  const std::string mode = in.parts.word("mode");
  if (adapter.empty() && mode == kOtherAdapter) adapter = mode;
  const auto by_mode = mode == kOtherAdapter ? TrainingTask::sft : task_in_recipe(mode);
  const auto by_name = by_mode ? by_mode : task_of_name(in.run);
  // Beside adapters that the command turns off, or that nobody knows, all weights are tuned.
  if (by_name && *by_name != TrainingTask::pretrain) k.task = TrainingTask::sft;
  const bool has_adapters = has_rank && by_mode != TrainingTask::sft;
  const bool is_implied =
      is_bridge && adapter.empty() && (has_adapters || by_name == TrainingTask::lora);
  if (in.parts.flag("lora") || is_implied || adapter.find("lora") != std::string::npos) {
    k.task = TrainingTask::lora;
  }
  if (k.task != TrainingTask::lora) {
    in.parts.leave("peft");
    if (k.task == TrainingTask::pretrain || adapter == mode) in.parts.leave("mode");
    if (!adapter.empty() && adapter != "none") {
      in.note(fmt::format("'{}' is '{}', for which moetune has no word: all weights are trained",
                          in.key(adapter == mode ? "mode" : "peft"), shown(adapter)));
    }
    return;
  }
  if (is_bridge && !has_rank) {
    in.note(fmt::format("'{}' is not said: rank {} is taken", in.key("lora_dim"), k.lora_rank));
    return;
  }
  const PlanKnobMember rank = &PlanKnobs::lora_rank;
  const std::string text = in.parts.word("lora_dim");
  if (!set_text(k, rank, text)) {
    in.problem(
        fmt::format("'{}' is '{}', expected {}", in.key("lora_dim"), shown(text), values_of(rank)));
  }
}

void write_task(Writing& out) {
  const TrainingTask task = out.knobs().task;
  if (task == TrainingTask::pretrain) return;
  const bool is_bridge = out.dialect == Dialect::megatron_bridge;
  if (task == TrainingTask::sft) {
    // Other adapters go along as they are said.
    const bool has_others = std::ranges::any_of(out.run.unknown, [](const UnknownSetting& setting) {
      return setting.key == "--mode" && setting.value == kOtherAdapter;
    });
    if (is_bridge && (has_others || task_of_name(out.run) == TrainingTask::sft)) return;
    if (is_bridge) {
      out.parts.say("mode", "sft");
    } else if (out.dialect == Dialect::primus) {
      out.parts.say("stage", "sft");
    } else {
      out.parts.say("sft", true);
    }
    return;
  }
  if (out.dialect == Dialect::megatron_lm) {
    out.cannot_say("task=lora");
    return;
  }
  if (is_bridge) {
    // In older releases by its adapters.
    out.parts.say(is_said(out.run, row_of("peft")) ? "peft" : "mode", "lora");
  } else {
    out.parts.say("stage", "sft");
    out.parts.say("lora", true);
  }
  out.parts.say("lora_dim", int64_t{out.knobs().lora_rank});
}

constexpr std::string_view kModules = "transformer_impl";
constexpr const char* kOwnModules = "local";

/// Whatever the backend, Megatron-Core's own attention has the scores of all pairs in memory.
/// Whether experts have a grouped product is said for itself.
void read_modules(Reading& in) {
  const std::string modules = in.parts.word(kModules);
  in.run.has_own_modules = modules == kOwnModules;
  const bool is_usual = modules == fallback_of(row_of(kModules), in.dialect);
  if (!in.run.has_own_modules && !is_usual) in.parts.leave(kModules);
  if (!in.run.has_own_modules || !in.run.knobs.fused_attention) return;
  in.run.knobs.fused_attention = false;
  in.note(fmt::format("'{}' is {}: attention keeps the scores of all pairs of tokens",
                      in.key(kModules), kOwnModules));
}

/// Attention without scores is Transformer Engine's, whatever the run said before.
void write_modules(Writing& out) {
  if (out.run.has_own_modules && !out.knobs().fused_attention) {
    out.parts.say(kModules, kOwnModules);
  }
}

}  // namespace

void read_parts_of_megatron(Reading& reading) {
  for (void (*read)(Reading&) : {read_stages, read_computed_stages, read_precision, read_recompute,
                                 read_graphs, read_offload, read_dispatcher, read_cross_entropy,
                                 read_sharding, read_task, read_modules, read_weights_of_preset}) {
    read(reading);
  }
}

void write_parts_of_megatron(Writing& writing) {
  for (void (*write)(Writing&) :
       {write_stages, write_precision, write_recompute, write_graphs, write_offload,
        write_dispatcher, write_cross_entropy, write_sharding, write_task, write_modules,
        write_weights_of_preset}) {
    write(writing);
  }
}

}  // namespace moetune::spec::dialects

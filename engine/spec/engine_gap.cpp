// What of a model and of planned choices the engine does not run: one table each. What plans assume
// of a model.
#include "engine/spec/engine_gap.h"

#include <algorithm>

#include "engine/spec/hf_family.h"
#include "kernels/base/error.h"

namespace moetune::spec {

namespace {

bool mixes_with(const ModelSpec& model, Mixer mixer) {
  return std::ranges::any_of(model.layer_kinds,
                             [&](const LayerKind& kind) { return kind.mixer == mixer; });
}

/// Attention or an MLP alone in a layer.
bool has_half_layers(const ModelSpec& model) {
  return std::ranges::any_of(model.layer_kinds, [](const LayerKind& kind) {
    return kind.mixer == Mixer::none || kind.feed_forward == FeedForward::none;
  });
}

struct Gap {
  const char* what;  ///< that it is, for a sentence
  bool (*is_there)(const ModelSpec&);
};
constexpr Gap kGaps[] = {
    {"multi-head latent attention", [](const ModelSpec& m) { return mixes_with(m, Mixer::mla); }},
    {"Gated DeltaNet", [](const ModelSpec& m) { return mixes_with(m, Mixer::gdn); }},
    {"Mamba-2", [](const ModelSpec& m) { return mixes_with(m, Mixer::mamba); }},
    {"a layer of attention or an MLP alone", has_half_layers},
    {"multi-token prediction", [](const ModelSpec& m) { return m.mtp.depth > 0; }},
    {"a gate on attention", [](const ModelSpec& m) { return m.has_attention_gate; }},
    {"attention with sinks", [](const ModelSpec& m) { return m.has_attention_sinks; }},
    {"attention in chunks", [](const ModelSpec& m) { return m.has_chunked_windows; }},
    {"an MLP without a gate", [](const ModelSpec& m) { return !m.has_gated_mlp; }},
    {"a gate on the shared expert", [](const ModelSpec& m) { return m.has_shared_gate; }},
    {"a bias on the router's scores", [](const ModelSpec& m) { return m.has_router_bias; }},
    {"an expert with biases", [](const ModelSpec& m) { return m.has_expert_bias; }},
    {"an expert on a latent width", [](const ModelSpec& m) { return m.moe_latent_size > 0; }},
    {"LayerNorm", [](const ModelSpec& m) { return m.has_layer_norm; }},
    {"a learned embedding of positions",
     [](const ModelSpec& m) { return m.has_learned_positions; }},
    {"a model without positions", [](const ModelSpec& m) { return m.rope.type == "none"; }},
    {"rotation of a part of a head", [](const ModelSpec& m) { return m.rope.rotary_ratio != 1; }},
    {"a padded vocabulary", [](const ModelSpec& m) { return m.padded_vocab_size > 0; }},
    {"dropout", [](const ModelSpec& m) { return m.hidden_dropout > 0 || m.attention_dropout > 0; }},
    {"the activation relu2", [](const ModelSpec& m) { return m.hidden_act == "relu2"; }},
};

std::vector<std::string> gaps_of(const ModelSpec& model) {
  std::vector<std::string> gaps;
  for (const Gap& gap : kGaps) {
    if (gap.is_there(model)) gaps.emplace_back(gap.what);
  }
  const Family* family = find_family(model.family);
  if (gaps.empty() && family != nullptr && !family->runs_in_engine) {
    gaps.push_back("the family " + model.family);
  }
  return gaps;
}

using Planned = const PlanKnobs&;

/// Tells one part of a planned step, where the choices ask for it.
struct PlannedPass {
  std::string (*what)(Planned);  ///< empty: the choices do not ask for it
  const char* stand_in = "";
  bool is_in_played_step = false;
};

std::string where(bool is_there, const char* what) { return is_there ? what : ""; }

std::string recompute_gap(Planned k, PlanRecompute module) {
  return k.recompute.has(module) ? fmt::format("recomputation of {}", name_of(module)) : "";
}

std::string graph_gap(Planned k, PlanGraph part) {
  return k.cuda_graphs.has(part) ? fmt::format("a graph of {}", name_of(part)) : "";
}

/// Of a moment, which the engine has in 32 bits and in bf16.
std::string state_gap(const char* what, StateType type) {
  const bool is_run = type == StateType::fp32 || type == StateType::bf16;
  return is_run ? "" : fmt::format("{} in {}", what, name_of(type));
}

/// Of what the engine has in 32 bits alone.
std::string wide_gap(const char* what, StateType type) {
  return type == StateType::fp32 ? "" : fmt::format("{} in {}", what, name_of(type));
}

constexpr PlannedPass kPlannedPasses[] = {
    {[](Planned k) { return where(k.fsdp != Fsdp::none, "FSDP"); }, "", true},
    {[](Planned k) {
       const bool is_run =
           k.precision == PrecisionRecipe::bf16 || k.precision == PrecisionRecipe::fp32;
       return is_run ? "" : fmt::format("{} products", name_of(k.precision));
     },
     "", true},
    {[](Planned k) {
       // Products of these types are named, and bring them.
       const bool is_told =
           k.precision == PrecisionRecipe::fp32 || k.precision == PrecisionRecipe::fp16;
       return k.params_dtype == StateType::bf16 || is_told
                  ? ""
                  : fmt::format("weights and activations in {}", name_of(k.params_dtype));
     },
     "bf16 stands for it"},
    {[](Planned k) {
       const bool is_run = (k.ep == 1 && k.etp == 1) || k.dispatcher == Dispatcher::alltoall;
       return is_run ? "" : fmt::format("the dispatcher {}", name_of(k.dispatcher));
     },
     "", true},
    {[](Planned k) { return where(!k.offload.empty(), "offload of activations"); }, "", true},
    {[](Planned k) { return where(k.optimizer_offload_ratio > 0, "offload of the optimizer"); }, "",
     true},
    {[](Planned k) {
       return where(k.overlap_moe_expert_parallel_comm, "overlap over micro-batches");
     },
     "", true},
    {[](Planned k) {
       return where(k.exchanges_heads(), "the exchange of heads among context-parallel ranks");
     },
     "", true},
    {[](Planned k) { return where(k.capacity_factor > 0, "an expert capacity"); }},
    {[](Planned k) {
      return k.task == TrainingTask::lora ? fmt::format("LoRA of rank {}", k.lora_rank) : "";
    }},
    {[](Planned k) {
      return k.optimizer == OptimizerKind::adam
                 ? ""
                 : fmt::format("the optimizer {}", name_of(k.optimizer));
    }},
    {[](Planned k) { return state_gap("the mean of gradients", k.exp_avg); }, "bf16 stands for it"},
    {[](Planned k) { return state_gap("the mean of squared gradients", k.exp_avg_sq); },
     "bf16 stands for it"},
    {[](Planned k) { return wide_gap("main weights", k.main_params); }, "fp32 stands for it"},
    {[](Planned k) { return wide_gap("gradients", k.main_grads); }, "fp32 stands for it"},
    {[](Planned k) {
      return k.optimizer_instances > 1
                 ? fmt::format("{} instances of the optimizer", k.optimizer_instances)
                 : "";
    }},
    {[](Planned k) {
       return where(k.tp > 1 && !k.sequence_parallel,
                    "tensor parallelism without sequence parallelism");
     },
     "sequence parallelism stands for it"},
    {[](Planned k) { return where(!k.fused_attention, "attention with scores in memory"); },
     "fused attention stands for it"},
    {[](Planned k) {
       return where(k.fused_grouped_mlp, "experts' products and activation in one kernel");
     },
     "", true},
    {[](Planned k) { return where(!k.moe_grouped_gemm, "experts whose products are not grouped"); },
     "", true},
    {[](Planned k) { return where(k.delay_wgrad_compute, "delayed weight gradients"); }},
    {[](Planned k) { return where(k.fp8_param_gather, "weights that are gathered in FP8"); }},
    {[](Planned k) { return where(k.fp8_attention, "attention in FP8"); }, "", true},
    {[](Planned k) {
      return where(k.tp_comm_overlap && k.tp > 1, "overlap of tensor parallelism's communication");
    }},
    {[](Planned k) { return recompute_gap(k, PlanRecompute::mla_up_proj); }},
    {[](Planned k) { return recompute_gap(k, PlanRecompute::mlp); }},
    {[](Planned k) { return recompute_gap(k, PlanRecompute::shared_experts); }},
    {[](Planned k) { return recompute_gap(k, PlanRecompute::gdn_norm_out); }},
    {[](Planned k) {
       const bool is_run = !k.recompute.has(PlanRecompute::full) || k.recomputes_each_layer();
       return is_run ? ""
                     : fmt::format("recomputation by {} of {}", name_of(k.recompute_method),
                                   k.recompute_num_layers);
     },
     "each layer stands for it"},
    {[](Planned k) { return graph_gap(k, PlanGraph::mamba); }},
    {[](Planned k) { return graph_gap(k, PlanGraph::mlp); }},
    {[](Planned k) { return graph_gap(k, PlanGraph::moe); }},
};

}  // namespace

std::string engine_gap(const ModelSpec& model) {
  const std::vector<std::string> gaps = gaps_of(model);
  if (gaps.empty()) return {};
  return fmt::format("{} is planned, not run, by the engine yet", gaps.front());
}

std::vector<EngineGap> engine_gaps(const ModelSpec& model) {
  std::vector<EngineGap> gaps;
  for (std::string& what : gaps_of(model)) gaps.push_back({"engine_runs_model", std::move(what)});
  return gaps;
}

std::vector<EngineGap> engine_gaps(const PlanKnobs& knobs) {
  std::vector<EngineGap> gaps;
  for (const PlannedPass& pass : kPlannedPasses) {
    std::string what = pass.what(knobs);
    if (what.empty()) continue;
    gaps.push_back({"engine_runs_knob", std::move(what), pass.stand_in, pass.is_in_played_step});
  }
  return gaps;
}

std::string model_assumption(const ModelSpec& model) {
  const Family* family = find_family(model.family);
  if (family == nullptr || family->assumed.empty()) return {};
  return fmt::format("{}: {}", family->name, family->assumed);
}

void refuse_engine_gap(const ModelSpec& model, const Source& source) {
  const std::string gap = engine_gap(model);
  if (gap.empty()) return;
  throw base::UsageError(
      fmt::format("{}key 'model_type' is \"{}\": {}; it runs llama, mixtral and qwen3_moe",
                  source.prefix("model_type"), model.family, gap));
}

}  // namespace moetune::spec

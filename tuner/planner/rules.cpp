// The table of legality. Sources: docs/planner.md.
#include "tuner/planner/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/spec/implied_knobs.h"
#include "engine/spec/pipeline_layout.h"
#include "tuner/planner/captured_parts.h"

namespace moetune::tuner::planner {

namespace {

using spec::Mixer;
using spec::PlanGraph;
using spec::PlanGraphSet;
using spec::PlanKnobs;
using spec::PlanRecompute;
using spec::PrecisionRecipe;
using Run = const PlanRun&;

bool divides(int64_t size, int64_t count) { return count % size == 0; }

bool has_mamba(Run run) { return has_mixer(*run.model, Mixer::mamba); }
bool has_gdn(Run run) { return has_mixer(*run.model, Mixer::gdn); }

bool has_windows(Run run) {
  return std::ranges::any_of(run.model->attention_window, [](int64_t keys) { return keys > 0; });
}

bool is_of_megatron(Run run) { return run.is_of_megatron; }

bool batch_divides(Run run) {
  return divides(int64_t{run.knobs.micro_batch_size} * run.knobs.dp, run.global_batch_size);
}

int64_t all_stages(Run run) { return run.knobs.pp * num_virtual_stages(run); }

/// Stages without a layer that Megatron-Core takes where none are written.
int64_t most_lone_stages(Run run) {
  const bool may_stand_alone =
      is_of_megatron(run) && run.knobs.pp > 1 && !counts_stage_layers(run) && !has_mamba(run);
  return may_stand_alone ? spec::most_lone_stages(run.model->mtp.depth) : 0;
}

/// Whether there has to be a micro-batch for each stage. torch's 1F1B refuses fewer,
/// Megatron-Core's does not.
bool fills_stages(Run run) {
  const bool is_1f1b = run.has_usual_schedule && run.knobs.pp > 1 && num_virtual_stages(run) == 1;
  return run.fills_stages || (is_1f1b && !is_of_megatron(run));
}

constexpr RuleOf kAnyEngine = RuleOf::any_engine;

constexpr PlanRule of_choices(PlanRule rule) {
  rule.is_of_choices = true;
  return rule;
}

constexpr PlanRule of_knobs(PlanRule rule) {
  rule.is_of_knobs = true;
  return rule;
}

constexpr PlanRule of_chosen_knobs(PlanRule rule) { return of_knobs(of_choices(rule)); }

constexpr PlanRule kRules[] = {
    {"world_size",
     [](Run run) {
       const PlanKnobs& k = run.knobs;
       return k.world_size() == run.hardware->num_devices();
     },
     [](Run run) {
       const PlanKnobs& k = run.knobs;
       return fmt::format("tp {} x cp {} x dp {} x pp {} does not make the {} devices", k.tp, k.cp,
                          k.dp, k.pp, run.hardware->num_devices());
     },
     kAnyEngine},
    {"tp_divides_heads",
     [](Run run) {
       const int64_t heads = run.model->num_heads;
       return heads == 0 || divides(run.knobs.tp, heads);
     },
     [](Run run) {
       return fmt::format("tp {} does not divide the {} attention heads", run.knobs.tp,
                          run.model->num_heads);
     },
     kAnyEngine},
    {"tp_within_groups",
     [](Run run) {
       const int64_t groups = run.model->num_kv_heads;
       return groups == 0 || has_mixer(*run.model, Mixer::mla) || divides(run.knobs.tp, groups) ||
              divides(groups, run.knobs.tp);
     },
     [](Run run) {
       return fmt::format("tp {} neither divides the {} key-value groups nor is a multiple",
                          run.knobs.tp, run.model->num_kv_heads);
     },
     kAnyEngine},
    {"tp_divides_widths",
     [](Run run) {
       return divides(run.knobs.tp, run.model->hidden_size) &&
              divides(run.knobs.tp, std::max<int64_t>(run.model->ffn_size, 0)) &&
              divides(run.knobs.tp, run.model->shared_ffn_size);
     },
     [](Run run) {
       return fmt::format("tp {} does not divide the widths of the model", run.knobs.tp);
     },
     kAnyEngine},
    {"pp_within_layers",
     [](Run run) {
       const int64_t without_layer = int64_t{run.knobs.pp} * run.knobs.vpp - run.model->num_layers;
       return !run.stages.empty() || without_layer <= 0 || without_layer <= most_lone_stages(run);
     },
     [](Run run) {
       return fmt::format("pp {} x vpp {} are more stages than the model's {} layers", run.knobs.pp,
                          run.knobs.vpp, run.model->num_layers);
     },
     kAnyEngine},
    of_knobs(
        {"vpp_needs_pp", [](Run run) { return run.knobs.vpp == 1 || run.knobs.pp > 1; },
         [](Run run) { return fmt::format("vpp {} without pipeline stages", run.knobs.vpp); }}),
    {"schedule_fills_stages",
     [](Run run) { return !fills_stages(run) || micro_batches_of_pass(run) >= all_stages(run); },
     [](Run run) {
       return fmt::format("{} micro-batches are fewer than the {} stages that the schedule fills",
                          micro_batches_of_pass(run), all_stages(run));
     }},
    {"stages_hold_layers",
     [](Run run) {
       const spec::PlanKnobs& k = run.knobs;
       if (k.pp == 1 || !run.stages.empty() || !run.stage_layers.empty()) return true;
       return (k.first_stage_layers <= 0 && k.last_stage_layers <= 0) || splits_by_itself(run);
     },
     [](Run run) {
       return fmt::format(
           "{} layers do not split with {} in the first of {} stages (virtual ones: {} each) and "
           "{} "
           "in the last",
           run.model->num_layers, run.knobs.first_stage_layers, run.knobs.pp, run.knobs.vpp,
           run.knobs.last_stage_layers);
     },
     kAnyEngine},
    {"cp_divides_sequence",
     [](Run run) {
       return run.knobs.cp == 1 || divides(2 * int64_t{run.knobs.cp}, run.seq_length);
     },
     [](Run run) {
       return fmt::format("2 x cp {} does not divide the sequence of {}", run.knobs.cp,
                          run.seq_length);
     },
     kAnyEngine},
    {"cp_divides_heads",
     [](Run run) {
       const spec::PlanKnobs& k = run.knobs;
       return !k.exchanges_heads() || (divides(int64_t{k.tp} * k.cp, run.model->num_heads) &&
                                       divides(int64_t{k.tp} * k.cp, run.model->num_kv_heads));
     },
     [](Run run) {
       return fmt::format(
           "cp_comm_type a2a: tp {} x cp {} does not divide the {} heads and {} "
           "key-value groups",
           run.knobs.tp, run.knobs.cp, run.model->num_heads, run.model->num_kv_heads);
     },
     kAnyEngine},
    {"tp_divides_tokens",
     [](Run run) { return divides(run.knobs.tp, run.seq_length / run.knobs.cp); },
     [](Run run) {
       return fmt::format("tp {} does not divide the {} tokens of a context-parallel rank",
                          run.knobs.tp, run.seq_length / run.knobs.cp);
     },
     kAnyEngine},
    {"ep_divides_experts",
     [](Run run) {
       return has_experts(run) ? divides(run.knobs.ep, run.model->num_experts) : run.knobs.ep == 1;
     },
     [](Run run) {
       return has_experts(run) ? fmt::format("ep {} does not divide the {} experts", run.knobs.ep,
                                             run.model->num_experts)
                               : fmt::format("ep {}, and the model has no experts", run.knobs.ep);
     },
     kAnyEngine},
    {"etp_divides_width",
     [](Run run) {
       return has_experts(run) ? divides(run.knobs.etp, run.model->moe_ffn_size)
                               : run.knobs.etp == 1;
     },
     [](Run run) {
       return has_experts(run) ? fmt::format("etp {} does not divide the experts' width {}",
                                             run.knobs.etp, run.model->moe_ffn_size)
                               : fmt::format("etp {}, and the model has no experts", run.knobs.etp);
     },
     kAnyEngine},
    {"ep_divides_plane",
     [](Run run) {
       const PlanKnobs& k = run.knobs;
       return divides(int64_t{k.ep} * k.etp, k.stage_ranks());
     },
     [](Run run) {
       const PlanKnobs& k = run.knobs;
       return fmt::format("ep {} x etp {} does not divide the {} ranks of a pipeline stage", k.ep,
                          k.etp, k.stage_ranks());
     },
     kAnyEngine},
    {"batch_divides", batch_divides,
     [](Run run) {
       return fmt::format("micro-batch {} x dp {} does not divide the global batch of {}",
                          run.knobs.micro_batch_size, run.knobs.dp, run.global_batch_size);
     },
     kAnyEngine},
    {"pass_divides",
     [](Run run) {
       return run.pass_sequences == 0 || run.knobs.pp == 1 ||
              (divides(run.knobs.micro_batch_size, run.pass_sequences) &&
               divides(run.pass_sequences * run.knobs.dp, run.global_batch_size));
     },
     [](Run run) {
       return fmt::format(
           "a pass of {} sequences is no multiple of micro-batch {}, or it x dp {} does not divide "
           "the global batch of {}",
           run.pass_sequences, run.knobs.micro_batch_size, run.knobs.dp, run.global_batch_size);
     }},
    {"vpp_divides_micro_batches",
     [](Run run) {
       return num_virtual_stages(run) == 1 || !run.has_rounds ||
              divides(micro_batches_of_round(run), micro_batches_of_pass(run));
     },
     [](Run run) {
       const int64_t all = micro_batches_of_pass(run);
       if (is_of_megatron(run)) {
         return fmt::format("{} micro-batches are no multiple of pp {}, as virtual stages need",
                            all, run.knobs.pp);
       }
       return fmt::format("{} micro-batches are no whole number in each of {} rounds of pp {}", all,
                          all / run.knobs.pp, run.knobs.pp);
     }},
    {"sequence_parallel_with_experts",
     [](Run run) { return run.knobs.tp == 1 || run.knobs.sequence_parallel || !has_experts(run); },
     [](Run) { return std::string("experts with tp need sequence parallelism"); }},
    of_chosen_knobs(
        {"overlap_needs_ep",
         [](Run run) {
           const PlanKnobs& k = run.knobs;
           return !k.overlap_moe_expert_parallel_comm ||
                  (k.ep > 1 && k.dispatcher != spec::Dispatcher::allgather &&
                   (k.pp == 1 || num_virtual_stages(run) > 1));
         },
         [](Run run) {
           if (!has_experts(run)) {
             return std::string("overlap of the experts' exchange, and the model has no experts");
           }
           return std::string(
               "overlap of the experts' exchange needs ep, an all-to-all dispatcher, and virtual "
               "stages where there are pipeline stages");
         }}),
    of_chosen_knobs(
        {"overlap_or_recompute",
         [](Run run) {
           const PlanKnobs& k = run.knobs;
           return !k.overlap_moe_expert_parallel_comm ||
                  (!k.recompute.has(PlanRecompute::full) && !k.recompute.has(PlanRecompute::moe));
         },
         [](Run) {
           return std::string("overlap of the experts' exchange excludes recompute full and moe");
         }}),
    of_chosen_knobs(
        {"overlap_beside_fsdp",
         [](Run run) {
           const PlanKnobs& k = run.knobs;
           const bool is_asked =
               k.overlap_moe_expert_parallel_comm && k.fsdp == spec::Fsdp::megatron;
           const bool is_layer_captured =
               !k.cuda_graphs.empty() && !k.cuda_graphs.has(PlanGraph::full_iteration);
           return !is_asked || (k.pp == 1 && !is_layer_captured);
         },
         [](Run) {
           return std::string(
               "overlap of the experts' exchange beside FSDP excludes pipeline stages and graphs "
               "of parts of a layer");
         }}),
    of_chosen_knobs(
        {"graphs_or_recompute",
         [](Run run) {
           const PlanKnobs& k = run.knobs;
           return !k.recompute.has(PlanRecompute::full) || k.cuda_graphs.empty() ||
                  k.cuda_graphs.has(PlanGraph::full_iteration);
         },
         [](Run) { return std::string("full recompute excludes graphs of parts of a layer"); }}),
    of_chosen_knobs({"static_shapes",
                     [](Run run) { return !captures_experts(run) || has_static_shapes(run); },
                     [](Run) {
                       return std::string(
                           "graphs after the router need static shapes: capacity_factor and "
                           "pad_to_capacity, or "
                           "fused_grouped_mlp with its paged stash");
                     }}),
    of_choices(
        {"recompute_fits_model",
         [](Run run) {
           const PlanKnobs& k = run.knobs;
           // torchtitan chooses by operation, whatever modules there are.
           if (!is_of_megatron(run)) return true;
           return (!k.recompute.has(PlanRecompute::mla_up_proj) ||
                   has_mixer(*run.model, Mixer::mla)) &&
                  (!k.recompute.has(PlanRecompute::moe_act) || has_experts(run));
         },
         [](Run) { return std::string("a module is recomputed that the model does not have"); }}),
    of_chosen_knobs({"moe_act_needs_grouped_products",
                     [](Run run) {
                       const PlanKnobs& k = run.knobs;
                       return !is_of_megatron(run) || !has_experts(run) || k.moe_grouped_gemm ||
                              !k.recompute.has(PlanRecompute::moe_act);
                     },
                     [](Run) { return std::string("recompute moe_act needs moe_grouped_gemm"); }}),
    // Its checkpointing takes one layer, or with blocks none.
    of_choices(
        {"mtp_recompute_each_layer",
         [](Run run) {
           const PlanKnobs& k = run.knobs;
           return !is_of_megatron(run) || run.model->mtp.depth == 0 ||
                  !k.recompute.has(PlanRecompute::full) || k.recomputes_block() ||
                  k.recompute_num_layers == 1;
         },
         [](Run run) {
           return fmt::format(
               "recompute_num_layers {}: multi-token prediction is recomputed each layer by itself "
               "only",
               run.knobs.recompute_num_layers);
         }}),
    of_chosen_knobs(
        {"fsdp_without_pipeline",
         [](Run run) {
           const PlanKnobs& k = run.knobs;
           return !is_of_megatron(run) || k.fsdp != spec::Fsdp::torch || (k.pp == 1 && k.ep == 1);
         },
         [](Run) { return std::string("FSDP2 excludes pipeline stages and expert parallelism"); }}),
    of_knobs({"own_modules_without_cp",
              [](Run run) { return !has_own_modules(run) || run.knobs.cp == 1; },
              [](Run run) {
                return fmt::format(
                    "cp {}: Megatron-Core's own attention (transformer_impl local) takes whole "
                    "sequences",
                    run.knobs.cp);
              }}),
    {"own_modules_divide_groups",
     [](Run run) {
       return !has_own_modules(run) || run.model->num_kv_heads == 0 ||
              has_mixer(*run.model, Mixer::mla) || divides(run.knobs.tp, run.model->num_kv_heads);
     },
     [](Run run) {
       return fmt::format(
           "tp {} does not divide the {} key-value groups, as Megatron-Core's own attention "
           "(transformer_impl local) needs",
           run.knobs.tp, run.model->num_kv_heads);
     }},
    of_chosen_knobs(
        {"own_modules_delay_nothing",
         [](Run run) {
           return !has_own_modules(run) ||
                  (!run.knobs.delay_wgrad_compute && run.knobs.offload.empty());
         },
         [](Run) {
           return std::string(
               "delay_wgrad_compute and offload of activations need Transformer Engine's "
               "modules, not "
               "transformer_impl local");
         }}),
    of_chosen_knobs(
        {"router_graph_or_recompute",
         [](Run run) {
           const PlanKnobs& k = run.knobs;
           return !k.recompute.has(PlanRecompute::moe) || !k.cuda_graphs.has(PlanGraph::moe_router);
         },
         [](Run) { return std::string("recompute moe excludes a graph of moe_router"); }}),
    of_chosen_knobs(
        {"graphs_of_router",
         [](Run run) {
           const PlanGraphSet& graphs = run.knobs.cuda_graphs;
           const bool has_router = graphs.has(PlanGraph::moe_router);
           return (!has_router || !graphs.has(PlanGraph::moe)) &&
                  (has_router || !graphs.has(PlanGraph::moe_preprocess));
         },
         [](Run) {
           return std::string(
               "a graph of moe_router excludes one of moe, and moe_preprocess needs it");
         }}),
    // What a graph computes a second time would draw other random numbers.
    of_chosen_knobs(
        {"graph_without_dropout",
         [](Run run) {
           const PlanGraphSet& graphs = run.knobs.cuda_graphs;
           const spec::PlanRecomputeSet& again = run.knobs.recompute;
           if (!is_of_megatron(run)) return true;
           const bool has_attention =
               graphs.has(PlanGraph::attn) && again.has(PlanRecompute::core_attn);
           const bool has_output = (graphs.has(PlanGraph::mlp) && again.has(PlanRecompute::mlp)) ||
                                   (graphs.has(PlanGraph::moe) && again.has(PlanRecompute::moe));
           return (!has_attention || !run.has_attention_dropout) &&
                  (!has_output || !run.has_hidden_dropout);
         },
         [](Run) { return std::string("dropout excludes graphs of what is recomputed"); }}),
    // A host that counts rows cannot be captured.
    of_chosen_knobs({"graph_of_counted_rows",
                     [](Run run) {
                       const PlanKnobs& k = run.knobs;
                       return !is_of_megatron(run) ||
                              !k.cuda_graphs.has(PlanGraph::moe_preprocess) ||
                              k.dispatcher != spec::Dispatcher::alltoall ||
                              k.capacity_factor <= 0 || k.pad_to_capacity;
                     },
                     [](Run) {
                       return std::string(
                           "a graph of moe_preprocess with dispatcher alltoall and a "
                           "capacity_factor needs pad_to_capacity");
                     }}),
    of_chosen_knobs(
        {"overlap_needs_16_bits",
         [](Run run) {
           return !run.knobs.overlap_moe_expert_parallel_comm ||
                  run.knobs.precision != PrecisionRecipe::fp32;
         },
         [](Run) { return std::string("overlap of the experts' exchange needs bf16 or fp16"); }}),
    of_chosen_knobs({"overlap_beside_shared_experts",
                     [](Run run) {
                       return !run.overlaps_shared_experts ||
                              !run.knobs.overlap_moe_expert_parallel_comm;
                     },
                     [](Run) {
                       return std::string(
                           "overlap of the experts' exchange excludes moe_shared_expert_overlap");
                     }}),
    of_chosen_knobs(
        {"capacity_beside_balance",
         [](Run run) { return !run.balances_without_capacity || run.knobs.capacity_factor <= 0; },
         [](Run) {
           return std::string(
               "a capacity_factor takes moe_router_load_balancing_type aux_loss, "
               "seq_aux_loss, global_aux_loss or none only");
         }}),
    of_knobs({"tp_overlap_needs_sequence_parallel",
              [](Run run) {
                const PlanKnobs& k = run.knobs;
                return !is_of_megatron(run) || !k.tp_comm_overlap || k.tp == 1 ||
                       k.sequence_parallel;
              },
              [](Run) { return std::string("tp_comm_overlap needs sequence_parallel"); }}),
    of_choices({"overlap_fits_model",
                [](Run run) {
                  return !run.knobs.overlap_moe_expert_parallel_comm ||
                         (!has_mamba(run) && run.model->mtp.depth <= 1);
                },
                [](Run) {
                  return std::string(
                      "overlap of the experts' exchange takes at most one layer of multi-token "
                      "prediction and "
                      "no Mamba layers");
                }}),
    {"hybrid_without_vpp",
     [](Run run) { return !has_mamba(run) || !run.stages.empty() || run.knobs.vpp == 1; },
     [](Run run) {
       return fmt::format("vpp {}: a hybrid pattern is cut into virtual stages by hand only",
                          run.knobs.vpp);
     }},
    {"tp_divides_mamba",
     [](Run run) {
       return !has_mamba(run) || (divides(run.knobs.tp, run.model->mamba.num_groups) &&
                                  divides(run.knobs.tp, run.model->mamba.num_heads));
     },
     [](Run run) {
       return fmt::format("tp {} does not divide the {} groups and {} heads of Mamba", run.knobs.tp,
                          run.model->mamba.num_groups, run.model->mamba.num_heads);
     },
     kAnyEngine},
    {"ranks_divide_gdn",
     [](Run run) {
       const int64_t ranks = int64_t{run.knobs.tp} * run.knobs.cp;
       return !has_gdn(run) || (divides(ranks, run.model->gdn.num_key_heads) &&
                                divides(ranks, run.model->gdn.num_value_heads));
     },
     [](Run run) {
       return fmt::format(
           "tp {} x cp {} does not divide the {} key and {} value heads of Gated DeltaNet",
           run.knobs.tp, run.knobs.cp, run.model->gdn.num_key_heads,
           run.model->gdn.num_value_heads);
     },
     kAnyEngine},
    {"cp_fits_attention",
     [](Run run) {
       const PlanKnobs& k = run.knobs;
       if (k.cp == 1 || k.cp_comm_type == spec::PlanCp::a2a) return true;
       return !run.model->has_attention_sinks &&
              (!has_windows(run) || k.cp_comm_type == spec::PlanCp::all_gather);
     },
     [](Run) {
       return std::string(
           "context parallelism with sinks needs cp_comm_type a2a, with sliding windows a2a or "
           "all_gather");
     }},
    {"etp_without_bias", [](Run run) { return run.knobs.etp == 1 || !run.model->has_expert_bias; },
     [](Run run) {
       return fmt::format("etp {}: experts with biases cannot be sliced", run.knobs.etp);
     }},
    of_chosen_knobs(
        {"delayed_wgrad",
         [](Run run) {
           const PlanKnobs& k = run.knobs;
           return !k.delay_wgrad_compute ||
                  (k.overlap_moe_expert_parallel_comm &&
                   !(run.model->has_attention_bias && k.cuda_graphs.has(PlanGraph::attn)));
         },
         [](Run) {
           return std::string(
               "delay_wgrad_compute needs overlap of the experts' exchange, and excludes a "
               "graph of "
               "attention with biases");
         }}),
    of_knobs({"precision_of_machine",
              [](Run run) {
                const spec::HardwareSpec& machine = *run.hardware;
                switch (run.knobs.precision) {
                  case PrecisionRecipe::fp8_current:
                  case PrecisionRecipe::fp8_delayed:
                  case PrecisionRecipe::fp8_blockwise:
                    return machine.fp8_flops_per_s > 0;
                  case PrecisionRecipe::mxfp8:
                  case PrecisionRecipe::nvfp4:
                    return machine.fp4_flops_per_s > 0;
                  default:
                    return true;
                }
              },
              [](Run run) {
                return fmt::format("{} has no {}", run.hardware->name,
                                   name_of(run.knobs.precision));
              },
              kAnyEngine}),
    of_chosen_knobs({"dispatcher_of_machine",
                     [](Run run) {
                       return !has_experts(run) ||
                              run.knobs.dispatcher != spec::Dispatcher::hybridep ||
                              !is_of_amd(*run.hardware);
                     },
                     [](Run run) { return spec::hybridep_refusal(*run.hardware); }, kAnyEngine}),
    // Megatron-Core asserts that there is somebody to send rows to; torchtitan's DeepEP knows no
    // slices of experts.
    of_chosen_knobs({"flex_dispatcher_needs_ep",
                     [](Run run) {
                       const PlanKnobs& k = run.knobs;
                       const bool is_flex = k.dispatcher == spec::Dispatcher::deepep ||
                                            k.dispatcher == spec::Dispatcher::hybridep;
                       if (!has_experts(run) || !is_flex) return true;
                       return is_of_megatron(run) ? k.ep > 1 || k.etp > 1 : k.ep > 1 && k.etp == 1;
                     },
                     [](Run run) {
                       return fmt::format(
                           "{} needs {}: ep {} x etp {}", name_of(run.knobs.dispatcher),
                           is_of_megatron(run) ? "ep x etp above 1" : "ep above 1 and etp 1",
                           run.knobs.ep, run.knobs.etp);
                     }}),
    // DeepEP sends what was routed, not what a capacity has room for.
    of_chosen_knobs(
        {"deepep_without_padding",
         [](Run run) {
           const PlanKnobs& k = run.knobs;
           return !is_of_megatron(run) || run.takes_padded_deepep || !has_experts(run) ||
                  k.dispatcher != spec::Dispatcher::deepep || !k.pad_to_capacity;
         },
         [](Run) { return std::string("dispatcher deepep excludes pad_to_capacity"); }}),
    of_chosen_knobs(
        {"delayed_scaling_or_recompute",
         [](Run run) {
           const PlanKnobs& k = run.knobs;
           return k.precision != PrecisionRecipe::fp8_delayed ||
                  (!k.recompute.has(PlanRecompute::moe_act) &&
                   !k.recompute.has(PlanRecompute::layernorm));
         },
         [](Run) { return std::string("fp8-delayed excludes recompute moe_act and layernorm"); }}),
    of_knobs({"offload_fits",
              [](Run run) {
                const PlanKnobs& k = run.knobs;
                return !k.offload.has(spec::Offload::attn_proj) ||
                       k.offload.has(spec::Offload::core_attn);
              },
              [](Run) { return std::string("offload of attn_proj needs that of core_attn"); }}),
    // Megatron-Core offloads beside recomputation of parts, and refuses what is within one of them
    // (transformer_config.py). Within a checkpoint of the layer nothing is kept that could go.
    of_chosen_knobs({"offload_or_recompute",
                     [](Run run) {
                       const PlanKnobs& k = run.knobs;
                       const bool is_in_experts = k.offload.has(spec::Offload::expert_fc1) ||
                                                  k.offload.has(spec::Offload::moe_act);
                       return (k.offload.empty() || !k.recompute.has(PlanRecompute::full)) &&
                              (!is_in_experts || !k.recompute.has(PlanRecompute::moe));
                     },
                     [](Run run) {
                       return std::string(run.knobs.recompute.has(PlanRecompute::full)
                                              ? "recompute full excludes offload of activations"
                                              : "recompute moe excludes offload of expert_fc1 and "
                                                "moe_act");
                     }}),
    of_chosen_knobs({"host_optimizer",
                     [](Run run) {
                       const PlanKnobs& k = run.knobs;
                       return !is_of_megatron(run) || k.optimizer_offload_ratio <= 0 ||
                              k.precision_aware_optimizer;
                     },
                     [](Run) {
                       return std::string(
                           "optimizer_offload_ratio needs precision_aware_optimizer");
                     }}),
    of_chosen_knobs(
        {"narrow_weights",
         [](Run run) {
           const PlanKnobs& k = run.knobs;
           if (!is_of_megatron(run) || !k.fp8_param_gather) return true;
           const bool is_sharded = k.distributed_optimizer || k.fsdp != spec::Fsdp::none;
           return is_sharded &&
                  (k.optimizer_offload_ratio <= 0 || k.precision == PrecisionRecipe::fp8_delayed);
         },
         [](Run) {
           return std::string(
               "fp8_param_gather needs the distributed optimizer or Megatron's FSDP, and excludes "
               "optimizer_offload_ratio with other scaling than delayed");
         }}),
    of_chosen_knobs({"fsdp_optimizer",
                     [](Run run) {
                       return run.knobs.fsdp == spec::Fsdp::none ||
                              run.knobs.optimizer != spec::OptimizerKind::muon;
                     },
                     [](Run) { return std::string("FSDP excludes the optimizer muon"); }}),
    of_chosen_knobs(
        {"gather_overlap_needs_reduce",
         [](Run run) {
           const PlanKnobs& k = run.knobs;
           const bool is_shared = k.distributed_optimizer || k.fsdp == spec::Fsdp::megatron;
           return !is_of_megatron(run) || k.dp * k.cp == 1 || !is_shared ||
                  !k.overlap_param_gather || k.overlap_grad_reduce;
         },
         [](Run) { return std::string("overlap_param_gather needs overlap_grad_reduce"); }}),
};

}  // namespace

void complete(const spec::ModelSpec& model, const spec::HardwareSpec& hardware, PlanKnobs& knobs) {
  if (knobs.recompute.has(PlanRecompute::moe) && knobs.cuda_graphs.has(PlanGraph::moe_router)) {
    knobs.cuda_graphs = {PlanGraph::attn};
  }
  spec::set_implied(knobs);
  const bool has_overlap = knobs.overlap_moe_expert_parallel_comm;
  knobs.delay_wgrad_compute =
      has_overlap && !(model.has_attention_bias && knobs.cuda_graphs.has(PlanGraph::attn));
  // Megatron-Core asserts this before Blackwell: communication must not start before its input.
  const bool is_ordered = hardware.fp4_flops_per_s <= 0 && (knobs.tp > 1 || knobs.cp > 1) &&
                          knobs.fsdp == spec::Fsdp::none && !has_overlap;
  if (is_ordered) knobs.cuda_device_max_connections = 1;
  // And the contrary with FSDP.
  if (knobs.fsdp == spec::Fsdp::megatron && knobs.cuda_device_max_connections == 1) {
    knobs.cuda_device_max_connections = PlanKnobs{}.cuda_device_max_connections;
  }
}

const PlanRule* broken_rule(const PlanRun& run) {
  for (const PlanRule& rule : kRules) {
    if (!rule.holds(run)) return &rule;
  }
  return nullptr;
}

bool holds_rules_of_choices(const PlanRun& run) {
  return std::ranges::all_of(
      kRules, [&](const PlanRule& rule) { return !rule.is_of_choices || rule.holds(run); });
}

std::vector<const PlanRule*> broken_rules(const PlanRun& run) {
  std::vector<const PlanRule*> broken;
  for (const PlanRule& rule : kRules) {
    if (!rule.holds(run)) broken.push_back(&rule);
  }
  return broken;
}

std::vector<const PlanRule*> broken_rules_of_knobs(const PlanRun& run) {
  std::vector<const PlanRule*> broken;
  for (const PlanRule& rule : kRules) {
    if (rule.is_of_knobs && !rule.holds(run)) broken.push_back(&rule);
  }
  return broken;
}

bool breaks_more(const PlanRun& run, const PlanRun& other) {
  return std::ranges::any_of(
      kRules, [&](const PlanRule& rule) { return !rule.holds(run) && rule.holds(other); });
}

}  // namespace moetune::tuner::planner

// The rows of choices that nothing here prices. They stay among the unknown settings of a run, so
// that the same dialect writes them as they were, and are translated into the words of another.
#include <algorithm>

#include "engine/spec/dialects/concepts.h"

namespace moetune::spec::dialects {
namespace {

using enum Dialect;

constexpr Part kSwitch{Kind::flag};
constexpr Part kWhole{Kind::integer};
constexpr Part kNumeric{Kind::number};
constexpr Part kText{Kind::word};
constexpr Part kTexts{Kind::list};

/// Megatron-Bridge has it below model, Primus by the same name.
constexpr ByDialect of_model(std::string_view flag, std::string_view titan = "") {
  return {flag, kSame, titan, kSame};
}
constexpr ByDialect placed(std::string_view flag, std::string_view bridge,
                           std::string_view titan = "", std::string_view primus = kSame) {
  return {flag, bridge, titan, primus};
}
constexpr ByDialect of_primus(std::string_view key) { return {"", "", "", key}; }
constexpr ByDialect of_titan(std::string_view key) { return {"", "", key, ""}; }
/// A row of what follows the layout.
constexpr Row following(std::string_view name, Part part, ByDialect keys) {
  return {.name = name, .target = part, .keys = keys, .fallbacks = {}, .follows_layout = true};
}

constexpr Row kCarried[] = {
    // The layout.
    following("hierarchical_context_parallel_sizes", kTexts,
              of_model("--hierarchical-context-parallel-sizes")),
    following("account_for_embedding_in_pipeline_split", kSwitch,
              of_model("--account-for-embedding-in-pipeline-split")),
    following("account_for_loss_in_pipeline_split", kSwitch,
              of_model("--account-for-loss-in-pipeline-split")),
    following("microbatch_group_size", kWhole,
              placed("--microbatch-group-size-per-virtual-pipeline-stage",
                     "model.microbatch_group_size_per_vp_stage")),
    {"context_parallel_load_balancer",
     kText,
     of_titan("parallelism.context_parallel_load_balancer"),
     {}},
    following("pipeline_parallel_schedule_csv", kText,
              of_titan("parallelism.pipeline_parallel_schedule_csv")),
    following("module_fqns_per_model_part", kTexts,
              of_titan("parallelism.module_fqns_per_model_part")),
    {"fsdp_reshard_after_forward", kText, of_titan("parallelism.fsdp_reshard_after_forward"), {}},
    following("pipeline_parallel_expert_parallel_overlap", kSwitch,
              of_titan("parallelism.pipeline_parallel_expert_parallel_overlap")),
    following("patch_zero_bubble", kSwitch, of_primus("patch_zero_bubble")),
    following("patch_primus_pipeline", kSwitch, of_primus("patch_primus_pipeline")),
    following("pp_algorithm", kText, of_primus("pp_algorithm")),
    following("decoder_pipeline_manual_split_list", kTexts,
              of_primus("decoder_pipeline_manual_split_list")),
    {"train_iters", kWhole, placed("--train-iters", "train.train_iters"), {}},
    // Precision, recompute, offload.
    {"fp4_param_gather",
     kSwitch,
     placed("--fp4-param-gather", "mixed_precision.fp4_param_gather"),
     {}},
    {"reuse_grad_buf_for_mxfp8_param_ag",
     kSwitch,
     placed("--reuse-grad-buf-for-mxfp8-param-ag",
            "mixed_precision.reuse_grad_buf_for_mxfp8_param_ag"),
     {}},
    {"fp8_output_proj", kSwitch, of_model("--fp8-output-proj"), {}},
    following("recompute_layer_ids", kTexts, of_primus("recompute_layer_ids")),
    {"memory_budget", kNumeric, of_titan("activation_checkpoint.memory_budget"), {}},
    following("cpu_offloading_num_layers", kWhole, of_model("--cpu-offloading-num-layers")),
    {"delay_offload_until_cuda_graph", kSwitch, of_model("--delay-offload-until-cuda-graph"), {}},
    {"activation_offload_fraction", kNumeric, of_model("--activation-offload-fraction"), {}},
    {"min_offloaded_tensor_size", kWhole, of_model("--min-offloaded-tensor-size"), {}},
    {"delta_offload_bytes_across_pp_ranks",
     kWhole,
     of_model("--delta-offload-bytes-across-pp-ranks"),
     {}},
    {"fine_grained_offloading_max_inflight_offloads",
     kWhole,
     of_model("--fine-grained-offloading-max-inflight-offloads"),
     {}},
    {"overlap_cpu_optimizer_d2h_h2d",
     kSwitch,
     placed("--overlap-cpu-optimizer-d2h-h2d", "optimizer.overlap_cpu_optimizer_d2h_h2d"),
     {}},
    // Experts.
    {"moe_hybridep_num_sms_preprocessing",
     kWhole,
     {"--moe-hybridep-num-sms-preprocessing", kSame, "", ""},
     {}},
    {"moe_permute_fusion_into_hybridep",
     kSwitch,
     of_model("--moe-permute-fusion-into-hybridep"),
     {}},
    {"high_priority_a2a_comm_stream", kSwitch, of_model("--high-priority-a2a-comm-stream"), {}},
    {"moe_ncclep_zero_copy", kSwitch, of_model("--moe-ncclep-zero-copy"), {}},
    {"moe_dispatch_fwd_dtype", kText, of_model("--moe-dispatch-fwd-dtype"), {}},
    {"moe_combine_bwd_dtype", kText, of_model("--moe-combine-bwd-dtype"), {}},
    {"turbo_deepep_num_cu", kWhole, of_primus("turbo_deepep_num_cu"), {}},
    {"turbo_deepep_use_comm_stream", kSwitch, of_primus("turbo_deepep_use_comm_stream"), {}},
    {"moe_shared_expert_overlap", kSwitch, of_model("--moe-shared-expert-overlap"), {}},
    {"moe_router_load_balancing_type", kTexts, of_model("--moe-router-load-balancing-type"), {}},
    {"moe_aux_loss_coeff", kTexts, of_model("--moe-aux-loss-coeff"), {}},
    {"moe_router_bias_update_rate", kNumeric, of_model("--moe-router-bias-update-rate"), {}},
    {"moe_router_dtype", kText, of_model("--moe-router-dtype"), {}},
    {"moe_router_fusion", kSwitch, of_model("--moe-router-fusion"), {}},
    {"moe_use_fused_router_with_aux_score",
     kSwitch,
     of_primus("moe_use_fused_router_with_aux_score"),
     {}},
    {"moe_router_padding_for_quantization",
     kSwitch,
     of_model("--moe-router-padding-for-quantization"),
     {}},
    {"moe_router_force_load_balancing",
     kSwitch,
     of_model("--moe-router-force-load-balancing", "debug.moe_force_load_balance"),
     {}},
    {"moe_router_force_load_balancing_type",
     kText,
     of_primus("moe_router_force_load_balancing_type"),
     {}},
    {"moe_router_force_biased", kNumeric, of_model("--moe-router-force-biased"), {}},
    {"moe_token_drop_policy", kText, of_model("--moe-token-drop-policy"), {}},
    {"moe_expert_rank_capacity_factor",
     kNumeric,
     {"--moe-expert-rank-capacity-factor", kSame, "", ""},
     {}},
    {"moe_paged_stash", kSwitch, {"--moe-paged-stash", kSame, "", ""}, {}},
    {"moe_paged_stash_page_size", kWhole, {"--moe-paged-stash-page-size", kSame, "", ""}, {}},
    {"moe_paged_stash_buffer_size_factor_cuda",
     kNumeric,
     {"--moe-paged-stash-buffer-size-factor-cuda", kSame, "", ""},
     {}},
    {"moe_paged_stash_buffer_size_factor_cpu",
     kNumeric,
     {"--moe-paged-stash-buffer-size-factor-cpu", kSame, "", ""},
     {}},
    {"moe_mlp_glu_interleave_size", kWhole, of_model("--moe-mlp-glu-interleave-size"), {}},
    {"moe_use_grouped_tensor", kSwitch, of_model("--moe-use-grouped-tensor"), {}},
    {"turbo_grouped_gemm_backend", kText, of_primus("turbo_grouped_gemm_backend"), {}},
    {"patch_moe_overlap", kSwitch, of_primus("patch_moe_overlap"), {}},
    {"use_turbo_mega_moe", kSwitch, of_primus("use_turbo_mega_moe"), {}},
    // Overlap, graphs, runtime.
    {"ddp_bucket_size", kWhole, placed("--ddp-bucket-size", "comm_overlap.bucket_size"), {}},
    {"ddp_num_buckets", kWhole, {"--ddp-num-buckets", "", "", kSame}, {}},
    following("overlap_param_gather_with_optimizer_step", kSwitch,
              placed("--overlap-param-gather-with-optimizer-step",
                     "comm_overlap.overlap_param_gather_with_optimizer_step")),
    {"align_param_gather",
     kSwitch,
     placed("!--no-align-param-gather", "comm_overlap.align_param_gather", "",
            "align_param_gather"),
     {}},
    {"overlap_p2p_communication",
     kSwitch,
     placed("!--no-overlap-p2p-communication", "comm_overlap.overlap_p2p_comm", "",
            "overlap_p2p_comm"),
     {}},
    {"batch_p2p_comm", kSwitch, {"", "comm_overlap.batch_p2p_comm", "", ""}, {}},
    following("overlap_p2p_communication_warmup_flush", kSwitch,
              of_model("--overlap-p2p-communication-warmup-flush")),
    {"overlap_dispatch_backward_with_experts_wgrad",
     kSwitch,
     of_model("--overlap-dispatch-backward-with-experts-wgrad"),
     {}},
    {"ep_overlap_early_attn_memory_release",
     kSwitch,
     of_model("--ep-overlap-early-attn-memory-release"),
     {}},
    following(
        "defer_embedding_wgrad_compute", kSwitch,
        placed("--defer-embedding-wgrad-compute", "comm_overlap.defer_embedding_wgrad_compute")),
    following("wgrad_deferral_limit", kWhole,
              placed("--wgrad-deferral-limit", "comm_overlap.wgrad_deferral_limit")),
    {"te_rng_tracker", kSwitch, placed("--te-rng-tracker", "rng.te_rng_tracker"), {}},
    {"disable_cuda_graphs", kSwitch, of_titan("training.disable_cuda_graphs"), {}},
    {"check_for_nan_in_grad", kSwitch, {"", "ddp.check_for_nan_in_grad", "", ""}, {}},
    {"manual_gc", kSwitch, placed("--manual-gc", "train.manual_gc"), {"false", "", "", "false"}},
    {"manual_gc_interval",
     kWhole,
     placed("--manual-gc-interval", "train.manual_gc_interval", "training.gc_freq"),
     {"0", "", "50", "1"}},
    {"num_workers",
     kWhole,
     placed("--num-workers", "dataset.num_workers", "training.dataloader.num_workers"),
     {"2", "8", "0", "8"}},
    {"rerun_mode", kText, {"--rerun-mode", "", "", kSame}, {}},
    {"distributed_timeout_minutes",
     kWhole,
     placed("--distributed-timeout-minutes", "dist.distributed_timeout_minutes"),
     {}},
    {"init_timeout_seconds", kWhole, of_titan("comm.init_timeout_seconds"), {}},
    {"train_timeout_seconds", kWhole, of_titan("comm.train_timeout_seconds"), {}},
    // FSDP.
    {"nccl_ub", kSwitch, {"--use-nccl-ub", "ddp.nccl_ub", "", kSame}, {}},
    {"megatron_fsdp_version", kWhole, {"--megatron-fsdp-version", "", "", kSame}, {}},
    following("outer_dp_sharding_strategy", kText,
              placed("--outer-dp-sharding-strategy", "ddp.outer_dp_sharding_strategy")),
    {"fsdp_double_buffer", kSwitch, placed("--fsdp-double-buffer", "ddp.fsdp_double_buffer"), {}},
    {"fsdp_manual_registration",
     kSwitch,
     placed("--fsdp-manual-registration", "ddp.fsdp_manual_registration"),
     {}},
    {"init_model_with_meta_device", kSwitch, of_model("--init-model-with-meta-device"), {}},
};

}  // namespace

std::span<const Row> carried_rows() { return kCarried; }

const Row* find_carried(std::string_view key, Dialect dialect) {
  const auto* found =
      std::ranges::find_if(kCarried, [&](const Row& row) { return key_of(row, dialect) == key; });
  return key.empty() || found == std::end(kCarried) ? nullptr : found;
}

}  // namespace moetune::spec::dialects

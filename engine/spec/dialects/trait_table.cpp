// The rows of the model's sizes and traits, by Megatron's names; older spellings; the environment.
#include "engine/spec/dialects/concepts.h"

namespace moetune::spec::dialects {
namespace {

using enum Dialect;

constexpr Trait kSize{Kind::integer};
constexpr Trait kNumber{Kind::number};
constexpr Trait kFlag{Kind::flag};
constexpr Trait kWord{Kind::word};
constexpr Trait kList{Kind::list};

constexpr ByDialect same(std::string_view flag) { return {flag, kSame, "", kSame}; }
constexpr ByDialect same_but(std::string_view flag, std::string_view bridge) {
  return {flag, bridge, "", kSame};
}
constexpr ByDialect everywhere(std::string_view text) { return {text, text, text, text}; }

constexpr Word kSoftmaxTypes[] = {
    {"vanilla", "vanilla"}, {"learnable", "learnable"}, {"off-by-one", "off-by-one"}};

constexpr Row kTraits[] = {
    {"num_layers", kSize, same("--num-layers"), {}},
    {"hidden_size", kSize, same("--hidden-size"), {}},
    {"ffn_hidden_size", kSize, same("--ffn-hidden-size"), {}},
    {"num_attention_heads", kSize, same("--num-attention-heads"), {}},
    {"group_query_attention",
     kFlag,
     same_but("--group-query-attention", kByParts),
     {"false", "", "", ""}},
    {"num_query_groups", kSize, same("--num-query-groups"), {}},
    {"kv_channels", kSize, same("--kv-channels"), {}},
    {"vocab_size", kSize, same("--vocab-size"), {}},
    // Of forks of Megatron-LM, and in its argument dumps: rows of the table of words.
    {"padded_vocab_size", kSize, {"--padded-vocab-size", "", "", ""}, {}},
    {"make_vocab_size_divisible_by", kSize, same("--make-vocab-size-divisible-by"), {}},
    {"max_position_embeddings", kSize, same_but("--max-position-embeddings", ""), {}},
    {"position_embedding_type",
     kWord,
     same("--position-embedding-type"),
     {"learned_absolute", "learned_absolute", "", "learned_absolute"}},
    {"rotary_base", kNumber, same("--rotary-base"), {}},
    {"rotary_percent", kNumber, same("--rotary-percent"), {"1", "", "", "1"}},
    {"normalization", kWord, same("--normalization"), everywhere("LayerNorm")},
    {"norm_epsilon", kNumber, same_but("--norm-epsilon", "model.layernorm_epsilon"), {}},
    {"swiglu",
     kFlag,
     same_but("--swiglu", "model.gated_linear_unit"),
     {"false", "false", "", "true"}},
    {"squared_relu", kFlag, same_but("--squared-relu", kByParts), {}},
    {"quick_geglu", kFlag, same_but("--quick-geglu", kByParts), {}},
    {"activation_func", kWord, {kByParts, "model.activation_func", "", kByParts}, {}},
    {"add_bias_linear",
     kFlag,
     {"!--disable-bias-linear", "model.add_bias_linear", "", "add_bias_linear"},
     {"true", "true", "", "false"}},
    {"add_qkv_bias", kFlag, same("--add-qkv-bias"), {}},
    {"qk_layernorm", kFlag, same("--qk-layernorm"), {}},
    {"untie_embeddings_and_output_weights",
     kFlag,
     same_but("--untie-embeddings-and-output-weights",
              "!model.share_embeddings_and_output_weights"),
     {"false", "false", "", "true"}},
    {"hidden_dropout", kNumber, same("--hidden-dropout"), everywhere("0.1")},
    {"attention_dropout", kNumber, same("--attention-dropout"), everywhere("0.1")},
    {"attention_output_gate", kFlag, same("--attention-output-gate"), {}},
    {"softmax_type", kWord, same("--softmax-type"), everywhere("vanilla"), kSoftmaxTypes},
    {"window_size", kList, same("--window-size"), {}},
    {"window_attn_skip_freq", kWord, same("--window-attn-skip-freq"), {}},
    // Multi-head latent attention.
    {"multi_latent_attention", kFlag, same("--multi-latent-attention"), {}},
    {"q_lora_rank", kSize, same("--q-lora-rank"), {}},
    {"kv_lora_rank", kSize, same("--kv-lora-rank"), {"32", "512", "", "32"}},
    {"qk_head_dim", kSize, same("--qk-head-dim"), everywhere("128")},
    {"qk_pos_emb_head_dim", kSize, same("--qk-pos-emb-head-dim"), everywhere("64")},
    {"v_head_dim", kSize, same("--v-head-dim"), everywhere("128")},
    // Gated DeltaNet.
    {"experimental_attention_variant", kWord, same("--experimental-attention-variant"), {}},
    {"linear_attention_freq", kWord, same("--linear-attention-freq"), {}},
    {"linear_conv_kernel_dim", kSize, same("--linear-conv-kernel-dim"), {}},
    {"linear_key_head_dim", kSize, same("--linear-key-head-dim"), {}},
    {"linear_value_head_dim", kSize, same("--linear-value-head-dim"), {}},
    {"linear_num_key_heads", kSize, same("--linear-num-key-heads"), {}},
    {"linear_num_value_heads", kSize, same("--linear-num-value-heads"), {}},
    // Hybrids with Mamba-2. The Megatron-LM that Primus is built on has the older spelling.
    {"hybrid_layer_pattern",
     kWord,
     {"--hybrid-layer-pattern", kSame, "", "hybrid_override_pattern"},
     {}},
    {"mtp_hybrid_override_pattern", kWord, same("--mtp-hybrid-override-pattern"), {}},
    {"is_hybrid_model", kFlag, same("--is-hybrid-model"), {}},
    {"mamba_state_dim", kSize, same("--mamba-state-dim"), everywhere("128")},
    {"mamba_head_dim", kSize, same("--mamba-head-dim"), everywhere("64")},
    {"mamba_num_groups", kSize, same("--mamba-num-groups"), everywhere("8")},
    {"mamba_num_heads", kSize, same("--mamba-num-heads"), {}},
    // Experts.
    {"num_experts", kSize, same_but("--num-experts", "model.num_moe_experts"), {}},
    {"moe_router_topk", kSize, same("--moe-router-topk"), everywhere("2")},
    {"moe_ffn_hidden_size", kSize, same("--moe-ffn-hidden-size"), {}},
    {"moe_shared_expert_intermediate_size",
     kSize,
     same("--moe-shared-expert-intermediate-size"),
     {}},
    {"moe_shared_expert_gate", kFlag, same("--moe-shared-expert-gate"), {}},
    {"moe_layer_freq", kWord, same("--moe-layer-freq"), everywhere("1")},
    {"moe_latent_size", kSize, same("--moe-latent-size"), {}},
    {"moe_router_num_groups", kSize, same("--moe-router-num-groups"), {}},
    {"moe_router_group_topk", kSize, same("--moe-router-group-topk"), {}},
    {"moe_router_score_function", kWord, same("--moe-router-score-function"),
     everywhere("softmax")},
    {"moe_router_topk_scaling_factor", kNumber, same("--moe-router-topk-scaling-factor"), {}},
    {"moe_router_pre_softmax", kFlag, same("--moe-router-pre-softmax"), {}},
    {"moe_router_enable_expert_bias", kFlag, same("--moe-router-enable-expert-bias"), {}},
    {"mtp_num_layers", kSize, same("--mtp-num-layers"), {}},
    {"mtp_use_repeated_layer", kFlag, same("--mtp-use-repeated-layer"), {}},
};

using Use = OtherKey::Use;
constexpr OtherKey kOtherKeys[] = {
    {"sequence_parallel", torchtitan, "parallelism.enable_sequence_parallel"},
    {"seq_length", megatron_bridge, "dataset.seq_length", Use::agrees},
    {"seq_length", megatron_bridge, "dataset.sequence_length"},
    {"seq_length", torchtitan, "training.max_context_length"},
    {"cuda_graph_modules", megatron_lm, "--cuda-graph-scope", Use::older},
    {"cuda_graph_modules", megatron_bridge, "model.cuda_graph_scope", Use::older},
    {"cuda_graph_modules", primus, "cuda_graph_modules"},
    {"overlap_grad_reduce", megatron_bridge, "ddp.overlap_grad_reduce"},
    {"overlap_param_gather", megatron_bridge, "ddp.overlap_param_gather"},
    {"tp_comm_overlap", megatron_bridge, "model.tp_comm_overlap"},
    {"overlap_moe_expert_parallel_comm", megatron_bridge, "model.overlap_moe_expert_parallel_comm"},
    {"delay_wgrad_compute", megatron_bridge, "model.delay_wgrad_compute"},
    {"distributed_optimizer", megatron_bridge, "optimizer.use_distributed_optimizer", Use::agrees},
    {"use_megatron_fsdp", megatron_bridge, "ddp.use_megatron_fsdp", Use::agrees},
    {"grad_reduce_in_bf16", megatron_bridge, "ddp.grad_reduce_in_fp32"},
    {"fp8_attention", megatron_bridge, "model.fp8_dot_product_attention"},
    {"peft", megatron_bridge, "--peft"},
    {"peft", megatron_bridge, "peft"},
    {"peft", megatron_bridge, "peft._target_"},
    {"fp8", primus, "fp8_format"},
    {"hybrid_layer_pattern", primus, "hybrid_layer_pattern"},
};

constexpr OldSetting kOldSettings[] = {
    {megatron_lm,
     "--moe-enable-deepep",
     {{{"--moe-token-dispatcher-type", "flex"}, {"--moe-flex-dispatcher-backend", "deepep"}}}},
    {megatron_lm, "--enable-cuda-graph", {{{"--cuda-graph-impl", "local"}}}},
    {megatron_lm, "--external-cuda-graph", {{{"--cuda-graph-impl", "transformer_engine"}}}},
    {megatron_lm, "--recompute-activations", {{{"--recompute-granularity", "selective"}}}, false},
    {megatron_lm, "--use-custom-fsdp", {{{"--use-megatron-fsdp", ""}}}},
    {megatron_lm,
     "--use-rotary-position-embeddings",
     {{{"--position-embedding-type", "rope"}}},
     false},
    {megatron_lm, "--hybrid-override-pattern", {{{"--hybrid-layer-pattern", ""}}}},
    {megatron_lm, "--moe-deepep-num-sms", {{{"--moe-flex-dispatcher-num-sms", ""}}}},
    {megatron_lm, "--moe-hybridep-num-sms", {{{"--moe-flex-dispatcher-num-sms", ""}}}},
    {megatron_lm,
     "--moe-router-padding-for-fp8",
     {{{"--moe-router-padding-for-quantization", ""}}}},
    {megatron_bridge,
     "model.moe_enable_deepep",
     {{{"model.moe_token_dispatcher_type", "flex"},
       {"model.moe_flex_dispatcher_backend", "deepep"}}}},
    {megatron_bridge, "model.moe_deepep_num_sms", {{{"model.moe_flex_dispatcher_num_sms", ""}}}},
    {megatron_bridge, "model.moe_hybridep_num_sms", {{{"model.moe_flex_dispatcher_num_sms", ""}}}},
    {megatron_bridge, "model.enable_cuda_graph", {{{"model.cuda_graph_impl", "local"}}}},
    {megatron_bridge,
     "model.external_cuda_graph",
     {{{"model.cuda_graph_impl", "transformer_engine"}}}},
    {megatron_bridge, "model.hybrid_override_pattern", {{{"model.hybrid_layer_pattern", ""}}}},
    {torchtitan, "training.batch_size", {{{"training.local_batch_size", ""}}}},
    {primus, "enable_cuda_graph", {{{"cuda_graph_impl", "local"}}}},
    {primus, "external_cuda_graph", {{{"cuda_graph_impl", "transformer_engine"}}}},
    {primus, "recompute_activations", {{{"recompute_granularity", "selective"}}}},
    {primus, "use_custom_fsdp", {{{"use_megatron_fsdp", ""}}}},
    {primus, "use_rotary_position_embeddings", {{{"position_embedding_type", "rope"}}}},
};

constexpr std::string_view kEnvironment[] = {
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "GPU_MAX_HW_QUEUES",
    "NCCL_GRAPH_REGISTER",
    "NCCL_IGNORE_CPU_AFFINITY",
    "NCCL_NET_GDR_C2C",
    "NCCL_NET_GDR_LEVEL",
    "NCCL_NVLS_ENABLE",
    "NCCL_P2P_NET_CHUNKSIZE",
    "NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN",
    "NUM_OF_TOKENS_PER_CHUNK_COMBINE_API",
    "NUM_OF_TOKENS_PER_CHUNK_DISPATCH_API",
    "NUM_OF_TOKENS_PER_CHUNK_PREPROCESSING_API",
    "HYBRIDEP_NUM_SMS_COMBINE",
    "HYBRIDEP_NUM_SMS_DISPATCH",
    "NVLINK_DOMAIN_SIZE",
    "NVTE_ALLOW_NONDETERMINISTIC_ALGO",
    "NVTE_BWD_LAYERNORM_SM_MARGIN",
    "NVTE_CPU_OFFLOAD_V1",
    "NVTE_CUTEDSL_FUSED_GROUPED_MLP",
    "NVTE_FUSED_ATTN",
    "NVTE_FWD_LAYERNORM_SM_MARGIN",
    "NVTE_NORM_BWD_USE_CUDNN",
    "NVTE_NORM_FWD_USE_CUDNN",
    "NVTE_ROCM_ENABLE_MXFP8",
    "PRIMUS_TURBO_MOE_DISPATCH_COMBINE_BACKEND",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_HIP_ALLOC_CONF",
    "TORCH_NCCL_AVOID_RECORD_STREAMS",
    "USE_MNNVL",
};

}  // namespace

std::span<const Row> trait_rows() { return kTraits; }
std::span<const OtherKey> other_keys() { return kOtherKeys; }
std::span<const OldSetting> old_settings() { return kOldSettings; }
std::span<const std::string_view> environment_names() { return kEnvironment; }

}  // namespace moetune::spec::dialects

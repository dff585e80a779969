// The table of what plans can choose: text and JSON are derived from its rows.
#include "engine/spec/plan_knobs.h"

#include <algorithm>
#include <charconv>
#include <concepts>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>

#include "kernels/base/error.h"
#include "kernels/base/utf8.h"

namespace moetune::spec {

using base::UsageError;
using nlohmann::json;

namespace {

/// Largest size; keeps products of three within 64 bits.
constexpr int32_t kMaxSize = 1 << 20;
constexpr float kMaxFactor = 1024;

constexpr const char* kSize = "1 to 1048576";
constexpr bool kOfExperts = true;
constexpr const char* kFlag = "true | false";
constexpr const char* kState = "fp32 | bf16 | fp16 | fp8";

constexpr std::array kPlanKnobs = {
    PlanKnobRow{"tp", kSize, "Ranks that share every matrix of attention and dense layers.",
                &PlanKnobs::tp},
    PlanKnobRow{"cp", kSize, "Ranks that share each sequence.", &PlanKnobs::cp},
    PlanKnobRow{"dp", kSize, "Replicas that each take a share of the global batch.",
                &PlanKnobs::dp},
    PlanKnobRow{"pp", kSize, "Pipeline stages.", &PlanKnobs::pp},
    PlanKnobRow{"vpp", kSize, "Virtual stages of each pipeline rank.", &PlanKnobs::vpp},
    PlanKnobRow{"ep", kSize, "Ranks that the experts of a layer are spread over.", &PlanKnobs::ep,
                kOfExperts},
    PlanKnobRow{"etp", kSize, "Ranks that share the matrices of each expert.", &PlanKnobs::etp,
                kOfExperts},
    PlanKnobRow{"micro_batch_size", kSize, "Sequences that go through the model at once.",
                &PlanKnobs::micro_batch_size},
    PlanKnobRow{"first_stage_layers", "0 to 1048576; 0 is an even split",
                "Layers of the first stage.", &PlanKnobs::first_stage_layers},
    PlanKnobRow{"last_stage_layers", "0 to 1048576; 0 is an even split",
                "Layers of the last stage.", &PlanKnobs::last_stage_layers},
    PlanKnobRow{"precision",
                "bf16 | fp16 | fp32 | fp8-current-scaling | fp8-delayed | fp8-blockwise | mxfp8 | "
                "nvfp4",
                "What the products of the layers compute in.", &PlanKnobs::precision},
    PlanKnobRow{"recompute",
                "none | full | set of core_attn, layernorm, mla_up_proj, moe_act, mlp, moe, "
                "shared_experts, gdn_norm_out",
                "What is computed again in the backward pass instead of being kept.",
                &PlanKnobs::recompute},
    PlanKnobRow{"recompute_method", "uniform | block",
                "With recompute full: all layers in groups, or the first of each virtual stage.",
                &PlanKnobs::recompute_method},
    PlanKnobRow{"recompute_num_layers", kSize,
                "With recompute full: layers of a group, or of a virtual stage the first so many.",
                &PlanKnobs::recompute_num_layers},
    PlanKnobRow{"cuda_graphs",
                "none | full_iteration | set of attn, mamba, mlp, moe, moe_router, moe_preprocess",
                "Parts of a step that are captured as a graph.", &PlanKnobs::cuda_graphs},
    PlanKnobRow{"offload",
                "none | set of attn_norm, qkv_linear, core_attn, attn_proj, mlp_norm, expert_fc1, "
                "moe_act",
                "Tensors that wait in the host's memory for the backward pass.",
                &PlanKnobs::offload},
    PlanKnobRow{"dispatcher", "alltoall | allgather | deepep | hybridep",
                "What sends tokens to their experts and back.", &PlanKnobs::dispatcher, kOfExperts},
    PlanKnobRow{"fsdp", "none | megatron | torch",
                "Weights and gradients in shards over all replicas.", &PlanKnobs::fsdp},
    PlanKnobRow{"cp_comm_type", "p2p | all_gather | a2a",
                "How context-parallel ranks see each other's keys and values.",
                &PlanKnobs::cp_comm_type},
    PlanKnobRow{"cross_entropy", "unfused | native | te | chunked", "What computes the loss.",
                &PlanKnobs::cross_entropy},
    PlanKnobRow{"optimizer", "adam | muon | sgd", "The optimizer.", &PlanKnobs::optimizer},
    PlanKnobRow{"params_dtype", kState, "What weights and activations are kept in.",
                &PlanKnobs::params_dtype},
    PlanKnobRow{"exp_avg", kState, "What Adam's mean of the gradients is kept in.",
                &PlanKnobs::exp_avg},
    PlanKnobRow{"exp_avg_sq", kState, "The same for the mean of their squares.",
                &PlanKnobs::exp_avg_sq},
    PlanKnobRow{"main_params", kState, "What the optimizer's own weights are kept in.",
                &PlanKnobs::main_params},
    PlanKnobRow{"main_grads", kState, "What gradients are summed in.", &PlanKnobs::main_grads},
    PlanKnobRow{"task", "pretrain | sft | lora", "What is trained: all weights, or adapters.",
                &PlanKnobs::task},
    PlanKnobRow{"lora_rank", kSize, "Rank of the adapters, where the task is lora.",
                &PlanKnobs::lora_rank},
    PlanKnobRow{"sequence_parallel", kFlag,
                "Between the matrices each tensor-parallel rank holds a share of the tokens.",
                &PlanKnobs::sequence_parallel},
    PlanKnobRow{"distributed_optimizer", kFlag,
                "Optimizer state and its weights in shards over the replicas (ZeRO-1).",
                &PlanKnobs::distributed_optimizer},
    PlanKnobRow{"precision_aware_optimizer", kFlag,
                "The optimizer's update reads and writes narrow states.",
                &PlanKnobs::precision_aware_optimizer},
    PlanKnobRow{"overlap_grad_reduce", kFlag,
                "Gradients are reduced while the backward pass is still running.",
                &PlanKnobs::overlap_grad_reduce},
    PlanKnobRow{"overlap_param_gather", kFlag,
                "Weights are gathered while the forward pass is already running.",
                &PlanKnobs::overlap_param_gather},
    PlanKnobRow{"tp_comm_overlap", kFlag,
                "Tensor-parallel communication runs beside the products that need it.",
                &PlanKnobs::tp_comm_overlap},
    PlanKnobRow{"overlap_moe_expert_parallel_comm", kFlag,
                "Dispatch and combine of one micro-batch run beside another's products.",
                &PlanKnobs::overlap_moe_expert_parallel_comm, kOfExperts},
    PlanKnobRow{"delay_wgrad_compute", kFlag,
                "Gradients of weights wait until they can hide communication.",
                &PlanKnobs::delay_wgrad_compute, kOfExperts},
    PlanKnobRow{"moe_grouped_gemm", kFlag, "All experts' products are one kernel.",
                &PlanKnobs::moe_grouped_gemm, kOfExperts},
    PlanKnobRow{"moe_permute_fusion", kFlag, "Sorting tokens by expert is one kernel.",
                &PlanKnobs::moe_permute_fusion, kOfExperts},
    PlanKnobRow{"fused_grouped_mlp", kFlag, "Products and activation of experts are one kernel.",
                &PlanKnobs::fused_grouped_mlp, kOfExperts},
    PlanKnobRow{"fp8_attention", kFlag, "The attention core computes in fp8, too.",
                &PlanKnobs::fp8_attention},
    PlanKnobRow{"fp8_param_gather", kFlag,
                "With products in FP8: their weights are kept and gathered in 8 bits alone.",
                &PlanKnobs::fp8_param_gather},
    PlanKnobRow{"fused_attention", kFlag, "Attention keeps no scores of all pairs of tokens.",
                &PlanKnobs::fused_attention},
    PlanKnobRow{"fused_activation", kFlag, "Activation and gate are one kernel.",
                &PlanKnobs::fused_activation},
    PlanKnobRow{"gradient_accumulation_fusion", kFlag,
                "Products add to the gradient buffer themselves.",
                &PlanKnobs::gradient_accumulation_fusion},
    PlanKnobRow{"optimizer_offload_ratio", "0 to 1",
                "Share of the optimizer's state in the host's memory.",
                &PlanKnobs::optimizer_offload_ratio},
    PlanKnobRow{"capacity_factor", "0 to 1024; 0 drops no tokens",
                "Tokens that an expert takes, in multiples of an equal share.",
                &PlanKnobs::capacity_factor, kOfExperts},
    PlanKnobRow{"pad_to_capacity", kFlag,
                "With a capacity: each expert has as many rows as it takes, whatever it receives.",
                &PlanKnobs::pad_to_capacity, kOfExperts},
    PlanKnobRow{"optimizer_instances", kSize, "Copies of the distributed optimizer's shards.",
                &PlanKnobs::optimizer_instances},
    PlanKnobRow{"cuda_graph_warmup_steps", "0 to 1048576",
                "Steps that run before parts of a step are captured as graphs.",
                &PlanKnobs::cuda_graph_warmup_steps},
    PlanKnobRow{"moe_flex_dispatcher_num_sms", "0 to 1048576; 0 is its own choice",
                "Multiprocessors that DeepEP or HybridEP keep while rows are exchanged.",
                &PlanKnobs::moe_flex_dispatcher_num_sms, kOfExperts},
    PlanKnobRow{"cuda_device_max_connections", kSize,
                "Queues from host to device (an environment variable). With 1, work starts in the "
                "order of its launch, which hinders the overlap of exchanges.",
                &PlanKnobs::cuda_device_max_connections},
};

/// Converts to anything: stands for one member while counting how many an aggregate takes.
struct AnyPlanMember {
  template <class T>
  operator T() const;  // NOLINT(google-explicit-constructor)
};

/// Number of members of a flat aggregate: the most initialisers it accepts.
template <class T, class... Members>
consteval size_t plan_arity() {
  if constexpr (requires { T{Members{}..., AnyPlanMember{}}; }) {
    return plan_arity<T, Members..., AnyPlanMember>();
  } else {
    return sizeof...(Members);
  }
}
static_assert(plan_arity<PlanKnobs>() == kPlanKnobs.size(),
              "every member of PlanKnobs has exactly one row in kPlanKnobs");

consteval bool has_each_once() {
  for (size_t i = 0; i < kPlanKnobs.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (kPlanKnobs[i].member == kPlanKnobs[j].member) return false;
    }
  }
  return true;
}
static_assert(has_each_once(), "no member of PlanKnobs has two rows");

template <class Number>
std::optional<Number> number_of(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// 0 where it says that nothing is chosen by hand.
int32_t least_of(int32_t PlanKnobs::*member) {
  const bool may_be_open = member == &PlanKnobs::first_stage_layers ||
                           member == &PlanKnobs::last_stage_layers ||
                           member == &PlanKnobs::cuda_graph_warmup_steps ||
                           member == &PlanKnobs::moe_flex_dispatcher_num_sms;
  return may_be_open ? 0 : 1;
}

[[noreturn]] void refuse_value(const PlanKnobRow& row, std::string_view value) {
  throw UsageError(fmt::format("knob '{}' is '{}', expected {}", row.name,
                               base::shortened(value, kMostKnobBytes), row.values));
}

float most_of(float PlanKnobs::*member) {
  return member == &PlanKnobs::optimizer_offload_ratio ? 1 : kMaxFactor;
}

template <class Member>
std::optional<Member> parsed(Member PlanKnobs::*member, std::string_view text) {
  if constexpr (std::same_as<Member, int32_t>) {
    const std::optional<Member> value = number_of<Member>(text);
    const bool is_legal = value && *value >= least_of(member) && *value <= kMaxSize;
    return is_legal ? value : std::nullopt;
  } else if constexpr (std::same_as<Member, float>) {
    const std::optional<Member> value = number_of<Member>(text);
    const bool is_legal = value && *value >= 0 && *value <= most_of(member);
    return is_legal ? value : std::nullopt;
  } else if constexpr (std::same_as<Member, bool>) {
    if (text != "true" && text != "false") return std::nullopt;
    return text == "true";
  } else if constexpr (HasNames<Member>) {
    return find_by_name<Member>(text);
  } else {
    return Member::parse(text);
  }
}

template <class Member>
std::string plan_text_of(const Member& value) {
  if constexpr (HasNames<Member>) {
    return std::string(name_of(value));
  } else if constexpr (std::is_arithmetic_v<Member>) {
    return fmt::format("{}", value);
  } else {
    return value.text();
  }
}

}  // namespace

std::span<const PlanKnobRow> plan_knob_table() { return kPlanKnobs; }

const PlanKnobRow* find_plan_knob(std::string_view name) {
  std::string wanted(name);
  std::ranges::replace(wanted, '-', '_');
  const auto row = std::ranges::find(kPlanKnobs, wanted, &PlanKnobRow::name);
  return row == kPlanKnobs.end() ? nullptr : &*row;
}

std::string get_plan_knob(const PlanKnobs& knobs, const PlanKnobRow& row) {
  return std::visit([&](auto member) { return plan_text_of(knobs.*member); }, row.member);
}

bool have_same(const PlanKnobRow& row, const PlanKnobs& a, const PlanKnobs& b) {
  return std::visit([&](auto member) { return a.*member == b.*member; }, row.member);
}

void set_plan_knob(PlanKnobs& knobs, const PlanKnobRow& row, std::string_view text) {
  std::visit(
      [&](auto member) {
        const auto value = parsed(member, text);
        if (!value) refuse_value(row, text);
        knobs.*member = *value;
      },
      row.member);
}

json to_json(const PlanKnobs& knobs) {
  json document = json::object();
  for (const PlanKnobRow& row : kPlanKnobs) {
    std::visit(
        [&](auto member) {
          using Member = std::remove_cvref_t<decltype(knobs.*member)>;
          json& value = document[std::string(row.name)];
          if constexpr (std::same_as<Member, float>) {
            // 0.1 and not the double that is next to it.
            value = std::stod(plan_text_of(knobs.*member));
          } else if constexpr (std::is_arithmetic_v<Member>) {
            value = knobs.*member;
          } else {
            value = plan_text_of(knobs.*member);
          }
        },
        row.member);
  }
  return document;
}

}  // namespace moetune::spec

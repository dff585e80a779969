#include "tuner/planner/op_classes.h"

namespace moetune::tuner::planner {

using plan::Op;
using spec::FeedForward;
using spec::PlanRecompute;

bool is_of_experts(Op op) {
  switch (op) {
    case Op::router:
    case Op::router_gemm:
    case Op::moe_preprocess:
    case Op::permute:
    case Op::permute_probs:
    case Op::sort_rows:
    case Op::sort_probs:
    case Op::expert_act:
    case Op::unsort_rows:
    case Op::unpermute:
    case Op::expand_experts:
      return true;
    default:
      return false;
  }
}

bool is_in_fused_mlp(Op op) {
  return op == Op::expert_act || op == Op::permute || op == Op::unpermute || op == Op::sort_rows ||
         op == Op::unsort_rows;
}

spec::PlanRecomputeSet modules_of(Op op, FeedForward half) {
  using M = PlanRecompute;
  switch (op) {
    case Op::core_attn:
      return {M::core_attn};
    case Op::attn_norm:
      return {M::layernorm};
    case Op::mlp_norm:
      return half == FeedForward::moe ? spec::PlanRecomputeSet{M::layernorm}
                                      : spec::PlanRecomputeSet{M::mlp};
    case Op::expert_act:
      return {M::moe_act, M::moe};
    case Op::mla_q_up:
    case Op::mla_kv_up:
    case Op::mla_pack:
      return {M::mla_up_proj};
    case Op::gdn_norm:
      return {M::gdn_norm_out};
    case Op::mlp_fc1:
    case Op::mlp_act:
      return {M::mlp};
    case Op::shared_fc1:
    case Op::shared_act:
      return {M::shared_experts, M::moe};
    case Op::expert_fc1:
    case Op::sort_rows:
    case Op::permute:
    case Op::router:
    case Op::router_gemm:
    case Op::dispatch:
      return {M::moe};
    default:
      return {};
  }
}

}  // namespace moetune::tuner::planner

// The CPU implementation of every operation, one free function per args struct of kernels/op_args.h
// and one file per family. CpuBackend only forwards to them. Each picks float or double code by the
// dtype of its tensors.
#pragma once

#include "kernels/op_args.h"

namespace moetune::kernels::cpu {

void gemm(const GemmArgs& args);
void grouped_gemm(const GroupedGemmArgs& args);
void rms_norm(const RmsNormArgs& args);
void rms_norm_backward(const RmsNormBackwardArgs& args);
void rope(const RopeArgs& args);
void attention(const AttentionArgs& args);
void attention_backward(const AttentionBackwardArgs& args);
void gated_act(const GatedActArgs& args);
void gated_act_backward(const GatedActBackwardArgs& args);
void router(const RouterArgs& args);
void router_backward(const RouterBackwardArgs& args);
void aux_loss(const AuxLossArgs& args);
void route_plan(const RoutePlanArgs& args);
void gather_rows(const GatherRowsArgs& args);
void scatter_rows(const ScatterRowsArgs& args);
void combine_rows(const CombineRowsArgs& args);
void copy(const CopyArgs& args);
/// y[r, :] += bias[0, :] for each row.
void add_bias(const Tensor& y, const Tensor& bias);
void bias_backward(const BiasBackwardArgs& args);
void embedding(const EmbeddingArgs& args);
void embedding_backward(const EmbeddingBackwardArgs& args);
void cross_entropy(const CrossEntropyArgs& args);
void cross_entropy_stats(const CrossEntropyStatsArgs& args);
void adamw(const AdamWArgs& args);
void squared_norm(const SquaredNormArgs& args);
void sum(const SumArgs& args);

}  // namespace moetune::kernels::cpu

// The launchers of the own CUDA kernels, one per operation of backend.h. Plain C++, so that tests
// can call the same launchers compiled against a host-side fake of the device.
#pragma once

#include "kernels/op_args.h"

struct CUstream_st;

namespace moetune::kernels::cuda {

/// A CUDA stream; null is the default stream.
using Stream = CUstream_st*;

// Every launcher only enqueues: no allocation, no host synchronisation, capturable in a graph.
// Shapes and meaning are those of op_args.h; elements are f32 or bf16, arithmetic is fp32.

/// Plain tiled products with fp32 accumulation: the checkable fallback where no vendor library is.
void gemm(Stream stream, const GemmArgs& args);
void grouped_gemm(Stream stream, const GroupedGemmArgs& args);

void rms_norm(Stream stream, const RmsNormArgs& args);
void rms_norm_backward(Stream stream, const RmsNormBackwardArgs& args);
void rope(Stream stream, const RopeArgs& args);
void attention(Stream stream, const AttentionArgs& args);
void attention_backward(Stream stream, const AttentionBackwardArgs& args);
void gated_act(Stream stream, const GatedActArgs& args);
void gated_act_backward(Stream stream, const GatedActBackwardArgs& args);
void router(Stream stream, const RouterArgs& args);
void router_backward(Stream stream, const RouterBackwardArgs& args);
void aux_loss(Stream stream, const AuxLossArgs& args);
void route_plan(Stream stream, const RoutePlanArgs& args);
void gather_rows(Stream stream, const GatherRowsArgs& args);
void scatter_rows(Stream stream, const ScatterRowsArgs& args);
void combine_rows(Stream stream, const CombineRowsArgs& args);
void embedding(Stream stream, const EmbeddingArgs& args);
void embedding_backward(Stream stream, const EmbeddingBackwardArgs& args);
void cross_entropy(Stream stream, const CrossEntropyArgs& args);
void cross_entropy_stats(Stream stream, const CrossEntropyStatsArgs& args);
void copy(Stream stream, const CopyArgs& args);
void bias_backward(Stream stream, const BiasBackwardArgs& args);
void adamw(Stream stream, const AdamWArgs& args);
void squared_norm(Stream stream, const SquaredNormArgs& args);
void sum(Stream stream, const SumArgs& args);

/// y[r, :] += bias[0, :] for each row.
void add_bias(Stream stream, const Tensor& y, const Tensor& bias);

}  // namespace moetune::kernels::cuda

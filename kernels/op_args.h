// The arguments of every operation a backend offers, one struct each. Shapes are given as [rows,
// cols]; T is tokens on this rank, h hidden size. Outputs may alias inputs only where the comment
// says so. Index tensors are i32. Floating tensors of one call share one dtype, f32 or f64; where
// the elements are bf16, these stay f32: row statistics (rstd, lse), everything of the router but
// its output gradient dlogits, the experts' probabilities, cos and sin, the gradients of weights.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/tensor.h"

namespace moetune::kernels {

/// c[m,n] = op(a) * op(b) + (accumulate ? c : 0) + bias. All row-major with row strides.
struct GemmArgs {
  Tensor a;
  Tensor b;
  Tensor c;
  bool trans_a = false;
  bool trans_b = false;
  bool accumulate = false;
  Tensor bias;  ///< [1, n] of c's dtype, added to each row, or null
};

enum class GroupedGemmMode : uint8_t { forward, dgrad, wgrad };

/// The experts' GEMM. Expert e owns entries [offsets[e], offsets[e+1]) of the row list; entry i
/// stands for row rows[i] of both activations (rows null: entry i is row i).
///   forward: y[row, :] = x[row, :] * W_e^T            x [R,in], y [R,out], W_e [out,in]
///   dgrad:   x[row, :] = y[row, :] * W_e              (x is the output)
///   wgrad:   W_e += sum over rows y[row, :]^T x[row, :] (w is the output, accumulated)
/// forward and dgrad give each row bits that do not depend on which other rows are in the call:
/// splitting the rows over several calls (EP chunks) changes no bit.
struct GroupedGemmArgs {
  GroupedGemmMode mode = GroupedGemmMode::forward;
  Tensor x;
  Tensor y;
  Tensor w;        ///< [num_experts * out, in]
  Tensor rows;     ///< i32 [n, 1] or null
  Tensor offsets;  ///< i32 [num_experts + 1, 1]
};

/// out = x * rstd * w per row of width w.cols; x [n, w.cols], rstd [n,1] is an
/// output. With heads > 1 each row of x holds `heads` groups of w.cols columns, normalised one by
/// one (QK-norm): x [n, heads*d].
struct RmsNormArgs {
  Tensor x;
  Tensor weight;  ///< [1, d]
  Tensor out;     ///< may alias x
  Tensor rstd;    ///< [n, heads]
  int64_t heads = 1;
  double eps = 1e-6;
};

/// dx (+)= gradient; dweight += gradient. dx may alias dy when !accumulate_dx.
struct RmsNormBackwardArgs {
  Tensor x;
  Tensor weight;
  Tensor rstd;
  Tensor dy;
  Tensor dx;
  Tensor dweight;  ///< [1, d]
  int64_t heads = 1;
  bool accumulate_dx = false;
};

/// Rotary position embedding on x [n, heads*d], halves layout (first d/2 dims rotate with the last
/// d/2), in place. cos/sin [max_positions, d/2] (already scaled by the attention factor); positions
/// i32 [n,1]. inverse = backward.
struct RopeArgs {
  Tensor x;
  Tensor cos;
  Tensor sin;
  Tensor positions;
  int64_t heads = 1;
  bool inverse = false;
};

/// Causal grouped-query attention over `batch` sequences. q [batch*tq, heads*d], rows of one
/// sequence together; k, v [batch*s, kv_heads*d] in global position order. Query row i sits at
/// positions[i % tq] and sees the keys at positions (position - window, position] (window 0: all
/// up to its position). Saves lse [batch*tq, heads] (natural log). A row that sees no key gives out
/// 0 and lse -infinity.
struct AttentionArgs {
  Tensor q;
  Tensor k;
  Tensor v;
  Tensor out;        ///< [batch*tq, heads*d]
  Tensor lse;        ///< [batch*tq, heads]
  Tensor positions;  ///< i32 [tq, 1]
  int64_t batch = 1;
  int64_t heads = 1;
  int64_t kv_heads = 1;
  int64_t window = 0;
  double scale = 1.0;
  /// Where each of a sequence's keys sits, i32 [s, 1], strictly rising; null: key i at position i,
  /// and every query at one of these positions.
  Tensor key_positions = {};
};

/// Gradients of attention, overwritten or, with `accumulate`, added to. out and lse may be those of
/// the softmax over more keys than are given here: dk and dv then are the gradients of these keys,
/// and dq is their part of the queries' (a ring sends the keys round and adds up the parts).
struct AttentionBackwardArgs {
  AttentionArgs forward;
  Tensor dout;
  Tensor dq;
  Tensor dk;
  Tensor dv;
  bool accumulate = false;
};

/// Attention over two sets of keys from the attention over each: out and lse become those of the
/// softmax over both. Where an lse is -infinity, its side saw no key and its out is not read; where
/// both are, out is 0 and lse -infinity.
struct AttentionMergeArgs {
  Tensor out;  ///< [n, heads*d]
  Tensor lse;  ///< [n, heads]
  Tensor part_out;
  Tensor part_lse;
  int64_t heads = 1;
};

enum class Activation : uint8_t { silu, gelu, gelu_tanh, relu };

/// Gated activation: out[r, :] = act(x[r, :f]) * x[r, f:] * (probs ? probs[r] : 1). x [R, 2f] (gate
/// first), out [R, f], probs [R,1] or null. Only the rows listed are touched (rows null: all).
struct GatedActArgs {
  Tensor x;
  Tensor probs;
  Tensor out;
  Tensor rows;  ///< i32 [n,1] or null
  Activation activation = Activation::silu;
};

/// dx [R, 2f] overwritten on the listed rows; dprobs [R,1] overwritten where probs is given.
struct GatedActBackwardArgs {
  GatedActArgs forward;  ///< out is not read
  Tensor dout;           ///< [R, f]
  Tensor dx;
  Tensor dprobs;
};

/// Softmax top-k router. probs = softmax(logits) [T,E] (may alias logits); the k largest per token,
/// ties to the lower index, sorted by probability; weights [T,K] are the chosen probabilities,
/// divided by their sum when normalize. lse [T,1] is log sum exp of the logits (for the z loss).
/// counts i32 [num_seqs, E]: tokens per expert per sequence (T = num_seqs * tokens_per_seq,
/// sequence-major). prob_sums [num_seqs, E]: sum of probs per sequence.
struct RouterArgs {
  Tensor logits;
  Tensor probs;
  Tensor lse;
  Tensor indices;  ///< i32 [T,K]
  Tensor weights;
  Tensor counts;
  Tensor prob_sums;
  bool normalize = true;
};

/// dlogits [T,E] overwritten from dweights [T,K] and both auxiliary losses. aux_scale[s, e] is
/// d(aux loss)/d probs for sequence s (the same for each of its tokens), already scaled; z_scale
/// multiplies 2 * lse * softmax (scaled too).
struct RouterBackwardArgs {
  Tensor probs;
  Tensor lse;
  Tensor indices;
  Tensor weights;
  Tensor dweights;
  Tensor aux_scale;  ///< [num_seqs, E] or null
  Tensor dlogits;    ///< may alias probs
  double z_scale = 0.0;
  bool normalize = true;
};

/// The router's auxiliary losses from sums over the context-parallel group. sums [2 * num_seqs, E]
/// holds sums of probabilities first, then tokens per expert; the latter become scale * tokens, the
/// loss's gradient for each of the sequence's probabilities. *load_balance += loss_share * scale *
/// sum of products; *z_loss += z_scale * sum of lse squared. Both doubles lie in device memory;
/// a null `sums` or `lse` leaves its part out.
struct AuxLossArgs {
  Tensor sums;
  Tensor lse;  ///< [T,1]
  double scale = 0.0;
  double loss_share = 1.0;
  double z_scale = 0.0;
  double* load_balance = nullptr;
  double* z_loss = nullptr;
};

/// The send order of the T*K chosen (token, slot) pairs: by chunk, expert, token, slot. Chunk c of
/// num_chunks begins at token c * T / num_chunks. A slot's number is token * K + slot.
struct RoutePlanArgs {
  Tensor indices;   ///< i32 [T,K]
  Tensor order;     ///< i32 [T*K,1]: place -> slot number
  Tensor position;  ///< i32 [T*K,1]: its inverse
  Tensor counts;    ///< i32 [num_chunks, E]
  Tensor offsets;   ///< i32 [E + 1,1] or null: where each expert's places begin; one chunk only
  int64_t num_chunks = 1;
};

/// Where the experts are cut into `copies` slices, each chosen expert once for every rank that has
/// a slice of it, numbered by rank of experts, slice, local expert: with e = indices[t, k],
/// out[t, k*copies + c] = (e / local_experts * copies + c) * local_experts + e % local_experts.
struct ExpandExpertsArgs {
  Tensor indices;             ///< i32 [T,K]
  Tensor out;                 ///< i32 [T, K*copies]
  int64_t copies = 1;         ///< slices of an expert
  int64_t local_experts = 1;  ///< experts of one rank
};

/// out[i, :] = x[index[i] / divisor, :]. divisor K turns (token, slot) numbers into tokens.
struct GatherRowsArgs {
  Tensor x;
  Tensor out;
  Tensor index;  ///< i32 [n,1]
  int64_t divisor = 1;
  /// Where known, the index the other way round: out[position[j], :] = x[j / divisor, :] for all
  /// j < n = x.rows * divisor. A backend may follow either.
  Tensor position = {};  ///< i32 [n,1]
};

/// out[index[i], :] = x[i, :]; index has no duplicates.
struct ScatterRowsArgs {
  Tensor x;
  Tensor out;
  Tensor index;  ///< i32 [n,1]
};

/// out[t, :] += sum over k of x[position[t*K + k], :], k ascending: a token's K expert rows brought
/// back. position is i32 [T*K,1], the place of slot (t,k) in x.
struct CombineRowsArgs {
  Tensor x;
  Tensor out;
  Tensor position;
  int64_t topk = 1;
};

/// out[t, :] = table[tokens[t] - first_row, :], zeros where the token is not among the table's
/// rows: the sum over all shards of a vocabulary is the lookup in the whole of it. Tokens that are
/// not in [0, vocabulary) are errors.
struct EmbeddingArgs {
  Tensor table;
  Tensor tokens;  ///< i32 [T,1]
  Tensor out;
  int64_t first_row = 0;   ///< of the vocabulary's rows, the table's first
  int64_t vocabulary = 0;  ///< rows of all shards together; 0: the table is all of it
};

/// dtable[tokens[t] - first_row, :] += dout[t, :], t ascending; tokens of other shards add nothing.
struct EmbeddingBackwardArgs {
  Tensor dtable;
  Tensor tokens;
  Tensor dout;
  int64_t first_row = 0;
  int64_t vocabulary = 0;
};

/// Softmax cross-entropy on one chunk of logits [n,V], in place: logits become d loss / d logits
/// times grad_scale. *loss_sum (a double in device memory) += sum of -log softmax[target].
/// With `stats` the softmax is that over all shards of the vocabulary, of which the logits are
/// columns [first_col, first_col + V), and *loss_sum gets the rows whose target is among these (and
/// infinity for a target that no shard has).
struct CrossEntropyArgs {
  Tensor logits;
  Tensor targets;  ///< i32 [n,1], of the whole vocabulary
  double grad_scale = 1.0;
  double* loss_sum = nullptr;
  /// What cross_entropy_stats wrote for the same rows, [num_shards * n, 3] with the n rows of a
  /// shard together; null: the logits are the whole vocabulary.
  Tensor stats = {};
  int64_t first_col = 0;
};

/// What a row's softmax over all shards of a vocabulary needs of one shard, columns [first_col,
/// first_col + cols) of it: the row's largest logit, the sum of exp(logit - largest), and the
/// target's logit, -infinity where the target is not among these columns. A row whose logits are
/// all -infinity has the sum 0.
struct CrossEntropyStatsArgs {
  Tensor logits;   ///< [n, V of this shard]
  Tensor targets;  ///< i32 [n,1], of the whole vocabulary
  Tensor stats;    ///< [n,3], f32 where the logits are bf16
  int64_t first_col = 0;
};

/// y = x + (accumulate ? y : 0), same shape. The dtypes may differ (f32, bf16, and i32 as the
/// source): values are converted, rounding to nearest even.
struct CopyArgs {
  Tensor x;
  Tensor y;
  bool accumulate = false;
};

/// target[i] = sources[0][i] + sources[1][i] + ..., added in that order (in f32 where elements are
/// bf16). The target may be one of the sources; no source may overlap it otherwise. At most
/// kMaxSources; the dtype is f64, f32, bf16 or i32.
struct SumArgs {
  static constexpr size_t kMaxSources = 256;

  std::vector<const void*> sources;
  void* target = nullptr;
  int64_t numel = 0;
  DType dtype = DType::f32;
};

/// dbias[0, :] += sum over rows of dy.
struct BiasBackwardArgs {
  Tensor dy;
  Tensor dbias;
};

/// One multi-tensor AdamW step (decoupled weight decay, Loshchilov & Hutter 2017). Per tensor:
/// master, m, v and the gradient, all flat of the same length; the weight is written from the
/// master. The update uses m and v as computed; where they are kept as bf16, they are rounded
/// stochastically (kernels/stochastic_round.h): rounded to nearest, v would stand still wherever
/// 1 - beta2 is below half of a last place. The draw depends on the seed, the step and the
/// element's number alone.
struct AdamWArgs {
  struct Slice {
    void* weight;
    void* master;
    void* m;
    void* v;
    const void* grad;
    int64_t numel;
    bool use_decay;
    int64_t first_element = 0;  ///< number of the slice's first element, the same in every layout
  };
  std::vector<Slice> slices;
  DType dtype = DType::f32;         ///< of master and gradient: f32 or f64
  DType weight_dtype = DType::f32;  ///< dtype, or bf16
  DType m_dtype = DType::f32;       ///< dtype, or bf16 beside f32
  DType v_dtype = DType::f32;       ///< dtype, or bf16 beside f32
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.0;
  double grad_scale = 1.0;  ///< gradients are multiplied by this (clipping)
  int64_t step = 1;         ///< from 1, for bias correction
  uint64_t rounding_seed = 0;
};

/// Sum of squares of several flat tensors, in double, into *result (device memory).
struct SquaredNormArgs {
  struct Slice {
    const void* data;
    int64_t numel;
  };
  std::vector<Slice> slices;
  DType dtype = DType::f32;
  double* result = nullptr;
};

}  // namespace moetune::kernels

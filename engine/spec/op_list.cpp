// The order of a step's operations on one rank, as the engine runs them (engine/model,
// engine/trainer). A test compares this list with the trace of a real step.
#include <algorithm>

#include "engine/spec/ops.h"
#include "engine/spec/params.h"

namespace moetune::spec {
namespace {

class ProgramBuilder {
 public:
  ProgramBuilder(const ModelSpec& model, const TrainingSpec& training, const Knobs& knobs, int rank)
      : model_(model),
        training_(training),
        knobs_(knobs),
        layout_(layout_of(knobs)),
        rank_(rank),
        stage_(layout_.pp_rank(rank)),
        layers_(split_layers(model, knobs)[static_cast<size_t>(stage_)]) {}

  StageProgram build() {
    build_forward();
    build_backward();
    build_update();
    return std::move(program_);
  }

 private:
  [[nodiscard]] bool is_first() const { return stage_ == 0; }
  [[nodiscard]] bool is_last() const { return stage_ == layout_.pp - 1; }

  void begin_layer(int64_t layer) {
    layer_ = layer;
    dims_ = layer_dims(model_, knobs_, training_.seq_length, layer);
  }

  void add(Op op, Pass pass, int64_t chunk = -1) {
    add_cost(op, pass, op_cost(op, pass, dims_, kElementBytes), chunk);
  }

  void add_cost(Op op, Pass pass, const OpCost& cost, int64_t chunk = -1) {
    out_->push_back({op, pass, layer_, op_row(op).stream, cost, chunk});
  }

  void add_chunk(Op op, Pass pass, int64_t chunk, int64_t num_chunks) {
    LayerDims part = dims_;
    part.tokens = dims_.tokens / num_chunks;
    part.received_rows = dims_.received_rows / num_chunks;
    add_cost(op, pass, op_cost(op, pass, part, kElementBytes), chunk);
  }

  void attn_forward(Pass pass) {
    add(Op::attn_norm, pass);
    add(Op::qkv_proj, pass);
    if (model_.has_qk_norm) {
      add(Op::qk_norm, pass);
      add(Op::qk_norm, pass);
    }
    add(Op::rope, pass);
    add(Op::rope, pass);
    gather_kv(pass);
    add(Op::core_attn, pass);
    add(Op::attn_residual, pass);
    add(Op::o_proj, pass);
  }

  void gather_kv(Pass pass) {
    if (layout_.cp == 1) return;
    add(Op::kv_pack, pass);
    add(Op::kv_pack, pass);
    add(Op::kv_gather, pass);
    add(Op::kv_reorder, pass);
  }

  void ffn_forward(Pass pass) {
    add(Op::mlp_norm, pass);
    if (!dims_.is_moe) {
      add(Op::ffn_residual, pass);
      add(Op::mlp_fc1, pass);
      add(Op::mlp_act, pass);
      add(Op::mlp_fc2, pass);
      return;
    }
    const bool is_parallel = layout_.ep > 1;
    add(Op::router_gemm, pass);
    add(Op::router, pass);
    if (layout_.cp > 1 && training_.aux_loss_coeff > 0) add(Op::aux_loss_reduce, pass);
    const bool is_counted = pass == Pass::forward && training_.z_loss_coeff > 0;
    if (is_counted || training_.aux_loss_coeff > 0) add(Op::aux_loss, pass);
    add(Op::moe_preprocess, pass);
    if (is_parallel) add(Op::count_exchange, pass);
    add(Op::permute, pass);
    add(Op::permute, pass);
    if (is_parallel) add(Op::host_sync, pass);
    add(Op::ffn_residual, pass);
    const int64_t chunks = is_parallel ? dims_.chunks_forward : 1;
    if (is_parallel) add_chunk(Op::dispatch, pass, 0, chunks);
    if (dims_.shared_ffn > 0) {
      add(Op::shared_fc1, pass);
      add(Op::shared_act, pass);
      add(Op::shared_fc2, pass);
    }
    for (int64_t c = 0; c < chunks; ++c) {
      if (is_parallel && c + 1 < chunks) add_chunk(Op::dispatch, pass, c + 1, chunks);
      if (is_parallel) {
        add_chunk(Op::sort_rows, pass, c, chunks);
        add_chunk(Op::sort_rows, pass, c, chunks);
      }
      add_chunk(Op::expert_fc1, pass, c, chunks);
      add_chunk(Op::expert_act, pass, c, chunks);
      add_chunk(Op::expert_fc2, pass, c, chunks);
      if (is_parallel) {
        add_chunk(Op::unsort_rows, pass, c, chunks);
        add_chunk(Op::combine, pass, c, chunks);
      }
    }
    add(Op::unpermute, pass);
  }

  void build_forward() {
    out_ = &program_.forward;
    begin_layer(layers_.first);
    layer_ = -1;
    add(is_first() ? Op::embed : Op::pp_recv, Pass::forward);
    for (int64_t layer = layers_.first; layer < layers_.first + layers_.count; ++layer) {
      begin_layer(layer);
      attn_forward(Pass::forward);
      ffn_forward(Pass::forward);
    }
    layer_ = -1;
    if (!is_last()) {
      add(Op::pp_send, Pass::forward);
      return;
    }
    add(Op::final_norm, Pass::forward);
    for (int64_t done = 0; done < dims_.tokens; done += dims_.ce_chunk) {
      LayerDims chunk = dims_;
      chunk.ce_chunk = std::min(dims_.ce_chunk, dims_.tokens - done);
      add_cost(Op::lm_head, Pass::forward,
               op_cost(Op::lm_head, Pass::forward, chunk, kElementBytes));
      add_cost(Op::cross_entropy, Pass::forward,
               op_cost(Op::cross_entropy, Pass::forward, chunk, kElementBytes));
      add_cost(Op::lm_head, Pass::backward,
               op_cost(Op::lm_head, Pass::backward, chunk, kElementBytes));
      add_cost(Op::lm_head, Pass::wgrad, op_cost(Op::lm_head, Pass::wgrad, chunk, kElementBytes));
    }
    add(Op::final_norm, Pass::backward);
  }

  void ffn_backward() {
    if (recomputes(knobs_, RecomputeModule::norm)) add(Op::mlp_norm, Pass::recompute);
    if (!dims_.is_moe) {
      if (model_.has_mlp_bias) add(Op::mlp_bias, Pass::backward);
      add(Op::mlp_fc2, Pass::backward);
      add(Op::mlp_fc2, Pass::wgrad);
      add(Op::mlp_act, Pass::backward);
      if (model_.has_mlp_bias) add(Op::mlp_bias, Pass::backward);
      add(Op::mlp_fc1, Pass::backward);
      add(Op::mlp_fc1, Pass::wgrad);
    } else {
      moe_backward();
    }
    add(Op::mlp_norm, Pass::backward);
  }

  void moe_backward() {
    const bool is_parallel = layout_.ep > 1;
    const int64_t chunks = is_parallel ? dims_.chunks_backward : 1;
    const bool recomputes_fc1 = recomputes(knobs_, RecomputeModule::experts);
    const bool recomputes_act = recomputes_fc1 || recomputes(knobs_, RecomputeModule::moe_act);
    add(Op::unpermute, Pass::backward);
    if (is_parallel) add_chunk(Op::combine, Pass::backward, 0, chunks);
    if (recomputes_fc1) add(Op::expert_fc1, Pass::recompute);
    if (recomputes_act) add(Op::expert_act, Pass::recompute);
    add(Op::permute, Pass::backward);  // clears the gradient it will add to
    if (dims_.shared_ffn > 0) {
      if (recomputes(knobs_, RecomputeModule::moe_act)) add(Op::shared_act, Pass::recompute);
      add(Op::shared_fc2, Pass::backward);
      add(Op::shared_fc2, Pass::wgrad);
      add(Op::shared_act, Pass::backward);
      add(Op::shared_fc1, Pass::backward);
      add(Op::shared_fc1, Pass::wgrad);
    }
    for (int64_t c = 0; c < chunks; ++c) {
      if (is_parallel && c + 1 < chunks) add_chunk(Op::combine, Pass::backward, c + 1, chunks);
      if (is_parallel) add_chunk(Op::unsort_rows, Pass::backward, c, chunks);
      add_chunk(Op::expert_fc2, Pass::backward, c, chunks);
      add_chunk(Op::expert_act, Pass::backward, c, chunks);
      add_chunk(Op::expert_fc1, Pass::backward, c, chunks);
      if (is_parallel) {
        add_chunk(Op::sort_rows, Pass::backward, c, chunks);
        add_chunk(Op::sort_rows, Pass::backward, c, chunks);
        add_chunk(Op::dispatch, Pass::backward, c, chunks);
      }
    }
    add(Op::expert_fc2, Pass::wgrad);
    add(Op::expert_fc1, Pass::wgrad);
    add(Op::permute, Pass::backward);
    add(Op::permute, Pass::backward);
    add(Op::router, Pass::backward);
    add(Op::router_gemm, Pass::backward);
    add(Op::router_gemm, Pass::wgrad);
  }

  void attn_backward() {
    if (recomputes(knobs_, RecomputeModule::norm)) add(Op::attn_norm, Pass::recompute);
    if (recomputes(knobs_, RecomputeModule::core_attn) && layout_.cp == 1) {
      add(Op::core_attn, Pass::recompute);
    }
    gather_kv(Pass::backward);
    if (recomputes(knobs_, RecomputeModule::core_attn) && layout_.cp > 1) {
      add(Op::core_attn, Pass::recompute);
    }
    if (model_.has_attention_output_bias) add(Op::o_bias, Pass::backward);
    add(Op::o_proj, Pass::backward);
    add(Op::o_proj, Pass::wgrad);
    add(Op::core_attn, Pass::backward);
    if (layout_.cp > 1) {
      add(Op::kv_reorder, Pass::backward);
      add(Op::kv_gather, Pass::backward);
      add(Op::kv_pack, Pass::backward);
      add(Op::kv_pack, Pass::backward);
    }
    add(Op::rope, Pass::backward);
    add(Op::rope, Pass::backward);
    if (model_.has_qk_norm) {
      add(Op::qk_norm, Pass::backward);
      add(Op::qk_norm, Pass::backward);
    }
    if (model_.has_attention_bias) add(Op::qkv_bias, Pass::backward);
    add(Op::qkv_proj, Pass::backward);
    add(Op::qkv_proj, Pass::wgrad);
    add(Op::attn_norm, Pass::backward);
  }

  void build_backward() {
    out_ = &program_.backward;
    layer_ = -1;
    if (!is_last()) add(Op::pp_recv, Pass::backward);
    for (int64_t layer = layers_.first + layers_.count - 1; layer >= layers_.first; --layer) {
      begin_layer(layer);
      if (is_full_recompute(knobs_)) {
        attn_forward(Pass::recompute);
        ffn_forward(Pass::recompute);
      }
      ffn_backward();
      attn_backward();
    }
    layer_ = -1;
    add(is_first() ? Op::embed : Op::pp_send, Pass::backward);
  }

  void build_update() {
    out_ = &program_.update;
    layer_ = -1;
    const ParamPlan plan = make_param_plan(model_, knobs_, rank_);
    int64_t numel = 0;
    int64_t shard = 0;
    int64_t share =
        0;  // of the norm: every rank adds up its own part, also where all hold the whole
    for (const BucketDesc& bucket : plan.buckets) {
      const int64_t n = bucket.group == Group::edp ? layout_.edp() : layout_.dp * layout_.cp;
      numel += bucket.numel;
      share += bucket.is_tied_copy ? 0 : bucket.numel / n;
      shard += knobs_.use_distributed_optimizer ? bucket.numel / n : bucket.numel;
    }
    add_cost(Op::zero_grads, Pass::update, {0, numel * kElementBytes});
    if (model_.ties_embeddings && layout_.pp > 1 && (is_first() || is_last())) {
      add_cost(Op::embedding_grad_reduce, Pass::update,
               {0, model_.vocab_size * model_.hidden_size * kElementBytes});
    }
    for (const BucketDesc& bucket : plan.buckets) {
      const int64_t n = bucket.group == Group::edp ? layout_.edp() : layout_.dp * layout_.cp;
      if (n == 1) continue;
      const int64_t moved = bucket.numel * kElementBytes * (n - 1) / n;
      layer_ = bucket.layer;
      add_cost(Op::grad_reduce, Pass::update,
               {0, knobs_.use_distributed_optimizer ? moved : 2 * moved});
    }
    layer_ = -1;
    add_cost(Op::grad_norm, Pass::update, {2 * share, share * kElementBytes});
    add_cost(Op::norm_reduce, Pass::update, {0, 8});
    add_cost(Op::host_sync, Pass::update, {});
    add_cost(Op::adamw, Pass::update, {12 * shard, 8 * shard * kElementBytes});
    for (const BucketDesc& bucket : plan.buckets) {
      const int64_t n = bucket.group == Group::edp ? layout_.edp() : layout_.dp * layout_.cp;
      if (n == 1 || !knobs_.use_distributed_optimizer) continue;
      layer_ = bucket.layer;
      add_cost(Op::param_gather, Pass::update, {0, bucket.numel * kElementBytes * (n - 1) / n});
    }
    layer_ = -1;
    add_cost(Op::loss_reduce, Pass::update, {0, 24});
  }

  // Planning is for f32, the compute type of the CPU engine.
  static constexpr int64_t kElementBytes = 4;

  const ModelSpec& model_;
  const TrainingSpec& training_;
  const Knobs& knobs_;
  Layout layout_;
  int rank_;
  int stage_;
  StageLayers layers_;
  StageProgram program_;
  std::vector<OpInstance>* out_ = nullptr;
  int64_t layer_ = -1;
  LayerDims dims_;
};

}  // namespace

StageProgram op_list(const ModelSpec& model, const TrainingSpec& training, const Knobs& knobs,
                     int rank) {
  return ProgramBuilder(model, training, knobs, rank).build();
}

}  // namespace moetune::spec

// Forward and backward of one pipeline stage; see stage.h.
#include "engine/model/stage.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace moetune::engine {

using spec::ParamKind;

Stage::Stage(RankContext& rank, Parameters& params, RoutingObserver* routing,
             LogitsObserver* logits)
    : rank_(rank),
      params_(params),
      buffers_(rank),
      logits_observer_(logits),
      range_(spec::split_layers(
          rank.trial.model, rank.trial.knobs)[static_cast<size_t>(rank.layout.pp_rank(rank.rank))]),
      dims_(spec::layer_dims(rank.trial.model, rank.trial.knobs, rank.trial.training.seq_length,
                             range_.first)),
      num_micro_batches_(spec::num_micro_batches(rank.layout, rank.trial.knobs,
                                                 rank.trial.training.global_batch_size)) {
  allocate_token_buffers();
  make_tables();
  layers_.reserve(static_cast<size_t>(range_.count));
  for (int64_t i = 0; i < range_.count; ++i) {
    layers_.emplace_back(rank, buffers_, params, tables_, range_.first + i, routing);
  }
}

Stage::~Stage() = default;

void Stage::allocate_token_buffers() {
  const int64_t n = dims_.tokens * num_micro_batches_;
  const auto make = [&](const char* name) {
    return Tensor::matrix(rank_.memory.allocate(name, MemoryGroup::workspace, n * 4),
                          base::DType::i32, n, 1);
  };
  tokens_ = make("tokens");
  targets_ = make("targets");
}

void Stage::make_tables() {
  const auto& training = rank_.trial.training;
  const int64_t seq = training.seq_length;
  const auto upload = [&](const char* name, base::DType dtype, int64_t rows, int64_t cols,
                          const void* host) {
    const int64_t bytes = rows * cols * base::size_of(dtype);
    void* data = rank_.memory.allocate(name, MemoryGroup::workspace, bytes);
    rank_.backend.copy_to_device(data, host, bytes);
    return Tensor::matrix(data, dtype, rows, cols);
  };
  const std::vector<int32_t> local =
      spec::local_positions(rank_.layout, rank_.layout.cp_rank(rank_.rank), seq);
  std::vector<int32_t> positions;
  for (int64_t b = 0; b < dims_.sequences; ++b) {
    positions.insert(positions.end(), local.begin(), local.end());
  }
  tables_.positions = upload("positions", base::DType::i32, dims_.tokens, 1, positions.data());
  const spec::RopeTable rope = spec::make_rope_table(rank_.trial.model, seq);
  for (const bool is_cos : {true, false}) {
    const std::vector<double>& values = is_cos ? rope.cos : rope.sin;
    const std::vector<float> narrow(values.begin(), values.end());
    const bool is_double = rank_.precision.stat == base::DType::f64;
    const void* host = is_double ? static_cast<const void*>(values.data()) : narrow.data();
    (is_cos ? tables_.rope_cos : tables_.rope_sin) =
        upload(is_cos ? "rope_cos" : "rope_sin", rank_.precision.stat, seq, rope.half_dim, host);
  }
  if (dims_.cp == 1) return;
  std::vector<int32_t> order(static_cast<size_t>(dims_.context_tokens));
  std::vector<int32_t> inverse(order.size());
  for (int cp_rank = 0; cp_rank < rank_.layout.cp; ++cp_rank) {
    const std::vector<int32_t> part = spec::local_positions(rank_.layout, cp_rank, seq);
    for (int64_t b = 0; b < dims_.sequences; ++b) {
      for (size_t i = 0; i < part.size(); ++i) {
        const int64_t gathered = cp_rank * dims_.tokens + b * static_cast<int64_t>(part.size()) +
                                 static_cast<int64_t>(i);
        const int64_t global = b * seq + part[i];
        order[static_cast<size_t>(global)] = static_cast<int32_t>(gathered);
        inverse[static_cast<size_t>(gathered)] = static_cast<int32_t>(global);
      }
    }
  }
  tables_.kv_order = upload("kv_order", base::DType::i32, dims_.context_tokens, 1, order.data());
  tables_.kv_inverse =
      upload("kv_inverse", base::DType::i32, dims_.context_tokens, 1, inverse.data());
}

void Stage::begin_step(const StepTokens& tokens) {
  MOETUNE_CHECK(static_cast<int64_t>(tokens.inputs.size()) == tokens_.rows,
                "a step has {} tokens where {} are expected", tokens.inputs.size(), tokens_.rows);
  begin_uploads(rank_, Stream::compute, [&] {
    rank_.backend.copy_to_device(tokens_.data, tokens.inputs.data(), tokens_.bytes());
    rank_.backend.copy_to_device(targets_.data, tokens.targets.data(), targets_.bytes());
    rank_.backend.fill_zero(rank_.scalars.data, rank_.scalars.bytes());
  });
  finish_uploads(rank_, Stream::compute);
}

Tensor Stage::token_view(const Tensor& all, int64_t micro_batch) const {
  return all.row_range(micro_batch * dims_.tokens, dims_.tokens);
}

LayerState& Stage::next_state(MicroBatch& m, size_t layer) {
  return layer + 1 < m.layers.size() ? m.layers[layer + 1] : m.edge;
}

void Stage::forward(int64_t micro_batch) {
  rank_.place.micro_batch = static_cast<int32_t>(micro_batch);
  const PassKind pass =
      spec::is_full_recompute(rank_.trial.knobs) ? PassKind::forward_dropped : PassKind::forward;
  MicroBatch& m = in_flight_[micro_batch];
  m.layers.resize(layers_.size());
  for (size_t i = 0; i < layers_.size(); ++i) {
    m.layers[i].dims =
        spec::layer_dims(rank_.trial.model, rank_.trial.knobs, rank_.trial.training.seq_length,
                         range_.first + static_cast<int64_t>(i));
  }
  m.edge.dims = dims_;
  LayerState& first = m.layers.front();
  buffers_.allocate(first, Part::input, pass);
  const int64_t e = rank_.element_bytes;
  if (rank_.is_first_stage()) {
    run_op(rank_, Op::embed, Pass::forward, spec::op_cost(Op::embed, Pass::forward, dims_, e), [&] {
      rank_.backend.embedding({params_.weight(ParamKind::embedding),
                               token_view(tokens_, micro_batch), first[Buf::input]});
    });
  } else {
    reuse_after(rank_, Stream::pipeline_recv, Stream::compute);
    run_comm(rank_, Op::pp_recv, Pass::forward, spec::Group::pp, [&](int64_t ready_ns) {
      return rank_.comms.pp->recv(rank_.comms.pp->rank() - 1, first[Buf::input].data,
                                  first[Buf::input].bytes(), ready_ns);
    });
    join_streams(rank_, Stream::compute, Stream::pipeline_recv);
  }
  for (size_t i = 0; i < layers_.size(); ++i) {
    LayerState& next = next_state(m, i);
    buffers_.allocate(next, Part::input, pass);
    layers_[i].forward(m.layers[i], next[Buf::input], pass, Pass::forward);
  }
  if (rank_.is_last_stage()) {
    head(m, micro_batch);
  } else {
    join_streams(rank_, Stream::pipeline_send, Stream::compute);
    run_comm(rank_, Op::pp_send, Pass::forward, spec::Group::pp, [&](int64_t ready_ns) {
      return rank_.comms.pp->send(rank_.comms.pp->rank() + 1, m.edge[Buf::input].data,
                                  m.edge[Buf::input].bytes(), ready_ns);
    });
    reuse_after(rank_, Stream::compute, Stream::pipeline_send);
  }
  buffers_.release_saved(m.edge, Part::input);
  rank_.place.micro_batch = -1;
}

// Linear cross-entropy: logits exist for one chunk of tokens at a time, and the gradients with
// respect to the hidden states and the head are taken from them at once, so that nothing of size
// tokens x vocabulary is ever kept.
void Stage::head(MicroBatch& m, int64_t micro_batch) {
  LayerState& s = m.edge;
  const int64_t e = rank_.element_bytes;
  buffers_.allocate(s, Part::head, PassKind::forward);
  buffers_.allocate(s, Part::grad, PassKind::forward);
  const Tensor norm_weight = params_.weight(ParamKind::final_norm);
  run_op(rank_, Op::final_norm, Pass::forward,
         spec::op_cost(Op::final_norm, Pass::forward, dims_, e), [&] {
           rank_.backend.rms_norm({s[Buf::input], norm_weight, s[Buf::final_norm_out],
                                   s[Buf::final_norm_rstd], 1, rank_.trial.model.rms_norm_eps});
         });
  const bool is_tied = params_.weight(ParamKind::head).is_null();
  const ParamKind head_kind = is_tied ? ParamKind::embedding : ParamKind::head;
  const Tensor weight = params_.weight(head_kind);
  const Tensor grad = params_.grad(head_kind);
  const auto& training = rank_.trial.training;
  const double grad_scale = 1.0 / (static_cast<double>(training.global_batch_size) *
                                   static_cast<double>(training.seq_length));
  const Tensor targets = token_view(targets_, micro_batch);
  double* loss_sum = rank_.scalar(spec::Scalar::loss);
  // Small products would leave a GPU idle and read the head over and over; there a chunk is one
  // product, and its size changes the order of sums.
  const bool is_tiled = rank_.trial.backend == "cpu";
  for (int64_t begin = 0; begin < dims_.tokens; begin += dims_.ce_chunk) {
    const int64_t count = std::min(dims_.ce_chunk, dims_.tokens - begin);
    spec::LayerDims chunk = dims_;
    chunk.ce_chunk = count;
    const Tensor x = s[Buf::final_norm_out].row_range(begin, count);
    const Tensor dx = s[Buf::d_hidden].row_range(begin, count);
    const Tensor logits = s[Buf::logits].row_range(0, count);
    const auto for_tiles = [&](auto&& body) {
      const int64_t tile = is_tiled ? spec::kLossTile : count;
      for (int64_t at = 0; at < count; at += tile) body(at, std::min(tile, count - at));
    };
    const spec::OpCost gemm_cost = spec::op_cost(Op::lm_head, Pass::forward, chunk, e);
    run_op(rank_, Op::lm_head, Pass::forward, gemm_cost, [&] {
      for_tiles([&](int64_t at, int64_t n) {
        rank_.backend.gemm(
            {x.row_range(at, n), weight, logits.row_range(at, n), false, true, false});
      });
    });
    if (logits_observer_ != nullptr) {
      leave_graph(rank_);
      logits_observer_->on_logits(rank_.rank, micro_batch, begin, values_of(rank_.backend, logits));
    }
    run_op(rank_, Op::cross_entropy, Pass::forward,
           spec::op_cost(Op::cross_entropy, Pass::forward, chunk, e), [&] {
             rank_.backend.cross_entropy(
                 {logits, targets.row_range(begin, count), grad_scale, loss_sum});
           });
    run_op(rank_, Op::lm_head, Pass::backward, gemm_cost, [&] {
      for_tiles([&](int64_t at, int64_t n) {
        rank_.backend.gemm(
            {logits.row_range(at, n), weight, dx.row_range(at, n), false, false, false});
      });
    });
    run_op(rank_, Op::lm_head, Pass::wgrad, gemm_cost, [&] {
      for_tiles([&](int64_t at, int64_t n) {
        rank_.backend.gemm({logits.row_range(at, n), x.row_range(at, n), grad, true, false, true});
      });
    });
  }
  run_op(rank_, Op::final_norm, Pass::backward,
         spec::op_cost(Op::final_norm, Pass::backward, dims_, e), [&] {
           rank_.backend.rms_norm_backward({s[Buf::input], norm_weight, s[Buf::final_norm_rstd],
                                            s[Buf::d_hidden], s[Buf::d_hidden],
                                            params_.grad(ParamKind::final_norm), 1, false});
         });
  buffers_.release_workspace(s, Part::head, PassKind::forward);
}

void Stage::backward(int64_t micro_batch) {
  rank_.place.micro_batch = static_cast<int32_t>(micro_batch);
  MicroBatch& m = in_flight_.at(micro_batch);
  if (!rank_.is_last_stage()) {
    buffers_.allocate(m.edge, Part::grad, PassKind::forward);
    reuse_after(rank_, Stream::pipeline_recv, Stream::compute);
    run_comm(rank_, Op::pp_recv, Pass::backward, spec::Group::pp, [&](int64_t ready_ns) {
      return rank_.comms.pp->recv(rank_.comms.pp->rank() + 1, m.edge[Buf::d_hidden].data,
                                  m.edge[Buf::d_hidden].bytes(), ready_ns);
    });
    join_streams(rank_, Stream::compute, Stream::pipeline_recv);
  }
  const Tensor d_hidden = m.edge[Buf::d_hidden];
  for (size_t i = layers_.size(); i-- > 0;) {
    LayerState& state = m.layers[i];
    if (spec::is_full_recompute(rank_.trial.knobs)) {
      // The block writes its output once more; nobody reads it.
      LayerState output;
      output.dims = state.dims;
      buffers_.allocate(output, Part::input, PassKind::forward);
      layers_[i].forward(state, output[Buf::input], PassKind::forward, Pass::recompute);
      buffers_.release_saved(output, Part::input);
    }
    layers_[i].backward(state, d_hidden);
    if (layer_done_) layer_done_(range_.first + static_cast<int64_t>(i), micro_batch);
  }
  if (rank_.is_first_stage()) {
    run_op(rank_, Op::embed, Pass::backward,
           spec::op_cost(Op::embed, Pass::backward, dims_, rank_.element_bytes), [&] {
             rank_.backend.embedding_backward(
                 {params_.grad(ParamKind::embedding), token_view(tokens_, micro_batch), d_hidden});
           });
    if (layer_done_) layer_done_(-1, micro_batch);
  } else {
    join_streams(rank_, Stream::pipeline_send, Stream::compute);
    run_comm(rank_, Op::pp_send, Pass::backward, spec::Group::pp, [&](int64_t ready_ns) {
      return rank_.comms.pp->send(rank_.comms.pp->rank() - 1, d_hidden.data, d_hidden.bytes(),
                                  ready_ns);
    });
    reuse_after(rank_, Stream::compute, Stream::pipeline_send);
  }
  buffers_.release_saved(m.edge, Part::grad);
  in_flight_.erase(micro_batch);
  rank_.place.micro_batch = -1;
}

}  // namespace moetune::engine

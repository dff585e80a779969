// The Mixture-of-Experts half of a layer: router, dispatch, experts, combine, in chunks that let
// the all-to-alls run beside the experts' GEMMs. Saved rows lie in canonical order (expert, source
// rank, token), which no chunk count changes: that is what makes chunking bit-identical.
#include <vector>

#include "engine/model/layer.h"

namespace moetune::engine {
namespace {

using kernels::GroupedGemmMode;
using spec::RecomputeModule;

// Rows of the slot_maps and row_maps buffers.
constexpr int64_t kForwardOrder = 0;     // send order -> slot; arrival order -> canonical row
constexpr int64_t kForwardPosition = 1;  // slot -> place in send order; chunk row list
constexpr int64_t kBackwardOrder = 2;
constexpr int64_t kBackwardPosition = 3;

// One row of an index buffer [4, n] as [n, 1].
Tensor index_row(const Tensor& maps, int64_t row) {
  return maps.row_range(row, 1).reshape(maps.cols, 1);
}

spec::LayerDims chunk_dims(const spec::LayerDims& dims, const ChunkRoute& chunk) {
  spec::LayerDims part = dims;
  part.received_rows = chunk.num_received;
  return part;
}

}  // namespace

void Layer::moe_forward(LayerState& state, Tensor out, PassKind pass, Pass label) {
  const auto& dims = state.dims;
  const int64_t e = rank_.element_bytes;
  const bool is_parallel = dims.ep > 1;
  route(state, label);
  preprocess(state, pass, label);
  run_op(rank_, Op::ffn_residual, label, spec::op_cost(Op::ffn_residual, label, dims, e), [&] {
    rank_.backend.copy({state[Buf::mid], out, false});
  });

  const std::vector<ChunkRoute>& chunks = state.route.forward;
  if (is_parallel) {
    join_streams(rank_, Stream::expert, Stream::compute);
    move_rows(state, Op::dispatch, label, chunks[0], true, true);
  }
  std::vector<Event> arrivals(chunks.size());
  if (is_parallel) arrivals[0] = record_event(rank_, Stream::expert);
  if (dims.shared_ffn > 0) shared_forward(state, out, label);
  for (size_t c = 0; c < chunks.size(); ++c) {
    if (is_parallel && c + 1 < chunks.size()) {
      move_rows(state, Op::dispatch, label, chunks[c + 1], true, true);
      arrivals[c + 1] = record_event(rank_, Stream::expert);
    }
    if (is_parallel) {
      wait_event(rank_, Stream::compute, arrivals[c]);
    }
    expert_forward_chunk(state, chunks[c], static_cast<int64_t>(c), label);
    if (is_parallel) {
      join_streams(rank_, Stream::expert, Stream::compute);
      move_rows(state, Op::combine, label, chunks[c], false, false);
    }
  }
  if (is_parallel) join_streams(rank_, Stream::compute, Stream::expert);
  run_op(rank_, Op::unpermute, label, spec::op_cost(Op::unpermute, label, dims, e), [&] {
    rank_.backend.combine_rows({state[is_parallel ? Buf::send_rows : Buf::fc2_out], out,
                                index_row(state[Buf::slot_maps], kForwardPosition), dims.topk});
  });
}

// One all-to-all of a chunk's rows (and their probabilities): to the experts, or back to the
// tokens' ranks.
void Layer::move_rows(LayerState& state, Op op, Pass label, const ChunkRoute& chunk,
                      bool is_to_experts, bool moves_probs) {
  const int64_t row_bytes = state.dims.hidden * rank_.element_bytes;
  const auto source = [&](Buf buffer) -> void* {
    return state[buffer].row_range(chunk.send_begin, chunk.num_sent).data;
  };
  const auto target = [&](Buf buffer) -> void* {
    if (state[buffer].is_null()) return nullptr;
    return state[buffer].row_range(chunk.recv_begin, chunk.num_received).data;
  };
  run_comm(rank_, op, label, spec::Group::ep, [&](int64_t ready_ns) {
    std::vector<AllToAllLane> lanes;
    const auto add = [&](Buf token_side, Buf expert_side, int64_t bytes) {
      if (is_to_experts) {
        lanes.push_back({source(token_side), target(expert_side), bytes});
      } else {
        lanes.push_back({target(expert_side), source(token_side), bytes});
      }
    };
    add(Buf::send_rows, Buf::recv_rows, row_bytes);
    if (moves_probs) add(Buf::send_probs, Buf::recv_probs, base::size_of(rank_.precision.stat));
    return is_to_experts
               ? rank_.comms.ep->all_to_all(lanes, chunk.send_rows, chunk.recv_rows, ready_ns)
               : rank_.comms.ep->all_to_all(lanes, chunk.recv_rows, chunk.send_rows, ready_ns);
  });
}

// The chunk's entries of the expert-major row list; null when the chunk is everything, in canonical
// order already.
Tensor Layer::chunk_rows(LayerState& state, bool is_forward, const ChunkRoute& chunk,
                         int64_t num_chunks) const {
  if (num_chunks == 1) return {};
  return index_row(state[Buf::row_maps], is_forward ? kForwardPosition : kBackwardPosition)
      .row_range(chunk.recv_begin, chunk.num_received);
}

kernels::GroupedGemmArgs Layer::grouped(LayerState& state, const Linear& linear, Buf x, Buf y,
                                        GroupedGemmMode mode, int64_t offsets_row) const {
  const Tensor& offsets = state[Buf::offsets];
  kernels::GroupedGemmArgs args;
  args.mode = mode;
  args.x = state[x];
  args.y = state[y];
  args.w = mode == GroupedGemmMode::wgrad ? linear.grad : linear.weight;
  args.offsets = offsets.row_range(offsets_row, 1).reshape(offsets.cols, 1);
  return args;
}

void Layer::expert_forward_chunk(LayerState& state, const ChunkRoute& chunk, int64_t index,
                                 Pass label) {
  const auto dims = chunk_dims(state.dims, chunk);
  const int64_t e = rank_.element_bytes;
  const bool is_parallel = dims.ep > 1;
  const Tensor arrival = index_row(state[Buf::row_maps], kForwardOrder)
                             .row_range(chunk.recv_begin, chunk.num_received);
  const spec::OpCost sort_cost = spec::op_cost(Op::sort_rows, label, dims, e);
  if (is_parallel) {
    // The first to read what write_route has sent.
    if (index == 0) finish_uploads(rank_, Stream::compute);
    run_op(rank_, Op::sort_rows, label, sort_cost, [&] {
      if (chunk.num_received == 0) return;
      rank_.backend.scatter_rows(
          {state[Buf::recv_rows].row_range(chunk.recv_begin, chunk.num_received),
           state[Buf::expert_input], arrival});
    });
    run_op(rank_, Op::sort_rows, label, sort_cost, [&] {
      if (chunk.num_received == 0) return;
      rank_.backend.scatter_rows(
          {state[Buf::recv_probs].row_range(chunk.recv_begin, chunk.num_received),
           state[Buf::expert_probs], arrival});
    });
  }
  const auto num_chunks = static_cast<int64_t>(state.route.forward.size());
  const Tensor rows = chunk_rows(state, true, chunk, num_chunks);
  const int64_t offsets_row = is_parallel ? 1 + index : 0;
  run_op(rank_, Op::expert_fc1, label, spec::op_cost(Op::expert_fc1, label, dims, e), [&] {
    auto args = grouped(state, expert_fc1_, Buf::expert_input, Buf::fc1_out,
                        GroupedGemmMode::forward, offsets_row);
    args.rows = rows;
    rank_.backend.grouped_gemm(args);
  });
  run_op(rank_, Op::expert_act, label, spec::op_cost(Op::expert_act, label, dims, e), [&] {
    if (chunk.num_received == 0) return;
    rank_.backend.gated_act(
        {state[Buf::fc1_out], state[Buf::expert_probs], state[Buf::act_out], rows, activation_});
  });
  run_op(rank_, Op::expert_fc2, label, spec::op_cost(Op::expert_fc2, label, dims, e), [&] {
    auto args = grouped(state, expert_fc2_, Buf::act_out, Buf::fc2_out, GroupedGemmMode::forward,
                        offsets_row);
    args.rows = rows;
    rank_.backend.grouped_gemm(args);
  });
  if (!is_parallel) return;
  run_op(rank_, Op::unsort_rows, label, spec::op_cost(Op::unsort_rows, label, dims, e), [&] {
    if (chunk.num_received == 0) return;
    rank_.backend.gather_rows(
        {state[Buf::fc2_out], state[Buf::recv_rows].row_range(chunk.recv_begin, chunk.num_received),
         arrival, 1});
  });
}

void Layer::shared_forward(LayerState& state, Tensor out, Pass label) {
  const auto& dims = state.dims;
  linear_forward(Op::shared_fc1, label, shared_fc1_, state[Buf::mlp_norm_out],
                 state[Buf::shared_fc1], false, dims);
  run_op(rank_, Op::shared_act, label,
         spec::op_cost(Op::shared_act, label, dims, rank_.element_bytes), [&] {
           rank_.backend.gated_act(
               {state[Buf::shared_fc1], {}, state[Buf::shared_act], {}, activation_});
         });
  linear_forward(Op::shared_fc2, label, shared_fc2_, state[Buf::shared_act], out, true, dims);
}

void Layer::moe_backward(LayerState& state, Tensor d_hidden) {
  const auto& dims = state.dims;
  const auto& knobs = rank_.trial.knobs;
  const int64_t e = rank_.element_bytes;
  const bool is_parallel = dims.ep > 1;
  const std::vector<ChunkRoute>& chunks = state.route.backward;
  const Tensor order = index_row(state[Buf::slot_maps], kBackwardOrder);
  const Tensor position = index_row(state[Buf::slot_maps], kBackwardPosition);
  const auto num_chunks = static_cast<int64_t>(chunks.size());

  run_op(
      rank_, Op::unpermute, Pass::backward, spec::op_cost(Op::unpermute, Pass::backward, dims, e),
      [&] {
        rank_.backend.gather_rows({d_hidden, state[is_parallel ? Buf::send_rows : Buf::d_fc2_out],
                                   order, dims.topk, position});
      });
  std::vector<Event> arrivals(chunks.size());
  if (is_parallel) {
    join_streams(rank_, Stream::expert, Stream::compute);
    move_rows(state, Op::combine, Pass::backward, chunks[0], true, false);
    arrivals[0] = record_event(rank_, Stream::expert);
  }
  // Recomputation needs nothing that is on its way, so it hides the first transfer.
  const bool recomputes_fc1 = spec::recomputes(knobs, RecomputeModule::experts);
  if (recomputes_fc1) {
    run_op(rank_, Op::expert_fc1, Pass::recompute,
           spec::op_cost(Op::expert_fc1, Pass::recompute, dims, e), [&] {
             rank_.backend.grouped_gemm(grouped(state, expert_fc1_, Buf::expert_input, Buf::fc1_out,
                                                GroupedGemmMode::forward, 0));
           });
  }
  if (recomputes_fc1 || spec::recomputes(knobs, RecomputeModule::moe_act)) {
    run_op(rank_, Op::expert_act, Pass::recompute,
           spec::op_cost(Op::expert_act, Pass::recompute, dims, e), [&] {
             if (dims.received_rows == 0) return;
             rank_.backend.gated_act({state[Buf::fc1_out],
                                      state[Buf::expert_probs],
                                      state[Buf::act_out],
                                      {},
                                      activation_});
           });
  }
  const spec::OpCost permute_cost = spec::op_cost(Op::permute, Pass::backward, dims, e);
  run_op(rank_, Op::permute, Pass::backward, {0, state[Buf::d_mlp_norm].bytes()}, [&] {
    rank_.backend.fill_zero(state[Buf::d_mlp_norm].data, state[Buf::d_mlp_norm].bytes());
  });
  if (dims.shared_ffn > 0) shared_backward(state, d_hidden);

  for (int64_t c = 0; c < num_chunks; ++c) {
    const ChunkRoute& chunk = chunks[static_cast<size_t>(c)];
    if (is_parallel && c + 1 < num_chunks) {
      move_rows(state, Op::combine, Pass::backward, chunks[static_cast<size_t>(c) + 1], true,
                false);
      arrivals[static_cast<size_t>(c) + 1] = record_event(rank_, Stream::expert);
    }
    const auto part = chunk_dims(dims, chunk);
    const Tensor arrival = index_row(state[Buf::row_maps], kBackwardOrder)
                               .row_range(chunk.recv_begin, chunk.num_received);
    const Tensor rows = chunk_rows(state, false, chunk, num_chunks);
    const int64_t offsets_row =
        is_parallel ? 1 + static_cast<int64_t>(state.route.forward.size()) + c : 0;
    const auto arrived = [&](Buf id) {
      return state[id].row_range(chunk.recv_begin, chunk.num_received);
    };
    if (is_parallel) {
      wait_event(rank_, Stream::compute, arrivals[static_cast<size_t>(c)]);
      run_op(
          rank_, Op::unsort_rows, Pass::backward,
          spec::op_cost(Op::unsort_rows, Pass::backward, part, e), [&] {
            if (chunk.num_received == 0) return;
            rank_.backend.scatter_rows({arrived(Buf::recv_rows), state[Buf::d_fc2_out], arrival});
          });
    }
    run_op(rank_, Op::expert_fc2, Pass::backward,
           spec::op_cost(Op::expert_fc2, Pass::backward, part, e), [&] {
             auto args = grouped(state, expert_fc2_, Buf::d_act, Buf::d_fc2_out,
                                 GroupedGemmMode::dgrad, offsets_row);
             args.rows = rows;
             rank_.backend.grouped_gemm(args);
           });
    run_op(rank_, Op::expert_act, Pass::backward,
           spec::op_cost(Op::expert_act, Pass::backward, part, e), [&] {
             if (chunk.num_received == 0) return;
             rank_.backend.gated_act_backward(
                 {{state[Buf::fc1_out], state[Buf::expert_probs], {}, rows, activation_},
                  state[Buf::d_act],
                  state[Buf::d_fc1],
                  state[Buf::d_expert_probs]});
           });
    run_op(rank_, Op::expert_fc1, Pass::backward,
           spec::op_cost(Op::expert_fc1, Pass::backward, part, e), [&] {
             auto args = grouped(state, expert_fc1_, Buf::d_expert_input, Buf::d_fc1,
                                 GroupedGemmMode::dgrad, offsets_row);
             args.rows = rows;
             rank_.backend.grouped_gemm(args);
           });
    if (!is_parallel) continue;
    const spec::OpCost sort_cost = spec::op_cost(Op::sort_rows, Pass::backward, part, e);
    run_op(rank_, Op::sort_rows, Pass::backward, sort_cost, [&] {
      if (chunk.num_received == 0) return;
      rank_.backend.gather_rows({state[Buf::d_expert_input], arrived(Buf::recv_rows), arrival, 1});
    });
    run_op(rank_, Op::sort_rows, Pass::backward, sort_cost, [&] {
      if (chunk.num_received == 0) return;
      rank_.backend.gather_rows({state[Buf::d_expert_probs], arrived(Buf::recv_probs), arrival, 1});
    });
    join_streams(rank_, Stream::expert, Stream::compute);
    move_rows(state, Op::dispatch, Pass::backward, chunk, false, true);
  }
  // Weight gradients over all rows in canonical order, while the last gradients travel back.
  run_op(
      rank_, Op::expert_fc2, Pass::wgrad, spec::op_cost(Op::expert_fc2, Pass::wgrad, dims, e), [&] {
        rank_.backend.grouped_gemm(
            grouped(state, expert_fc2_, Buf::act_out, Buf::d_fc2_out, GroupedGemmMode::wgrad, 0));
      });
  run_op(
      rank_, Op::expert_fc1, Pass::wgrad, spec::op_cost(Op::expert_fc1, Pass::wgrad, dims, e), [&] {
        rank_.backend.grouped_gemm(
            grouped(state, expert_fc1_, Buf::expert_input, Buf::d_fc1, GroupedGemmMode::wgrad, 0));
      });
  if (is_parallel) join_streams(rank_, Stream::compute, Stream::expert);
  run_op(rank_, Op::permute, Pass::backward, permute_cost, [&] {
    rank_.backend.combine_rows({state[is_parallel ? Buf::send_rows : Buf::d_expert_input],
                                state[Buf::d_mlp_norm], position, dims.topk});
  });
  run_op(rank_, Op::permute, Pass::backward, permute_cost, [&] {
    rank_.backend.gather_rows({state[is_parallel ? Buf::send_probs : Buf::d_expert_probs],
                               state[Buf::d_topk_weights].reshape(dims.tokens * dims.topk, 1),
                               position, 1});
  });
  const auto& training = rank_.trial.training;
  const double global_tokens =
      static_cast<double>(training.global_batch_size) * static_cast<double>(training.seq_length);
  run_op(rank_, Op::router, Pass::backward, spec::op_cost(Op::router, Pass::backward, dims, e),
         [&] {
           kernels::RouterBackwardArgs args;
           args.probs = state[Buf::router_probs];
           args.lse = state[Buf::router_lse];
           args.indices = state[Buf::topk_indices];
           args.weights = state[Buf::topk_weights];
           args.dweights = state[Buf::d_topk_weights];
           args.dlogits = state[Buf::d_router];
           if (training.aux_loss_coeff > 0) {
             args.aux_scale = state[Buf::aux_sums].row_range(dims.sequences, dims.sequences);
           }
           args.z_scale = training.z_loss_coeff / global_tokens;
           args.normalize = rank_.trial.model.normalizes_topk;
           rank_.backend.router_backward(args);
         });
  linear_backward(Op::router_gemm, Op::router_gemm, router_, state[Buf::mlp_norm_out],
                  state[Buf::d_router], state[Buf::d_mlp_norm], true, dims);
}

void Layer::shared_backward(LayerState& state, Tensor d_hidden) {
  const auto& dims = state.dims;
  const int64_t e = rank_.element_bytes;
  if (spec::recomputes(rank_.trial.knobs, RecomputeModule::moe_act)) {
    run_op(rank_, Op::shared_act, Pass::recompute,
           spec::op_cost(Op::shared_act, Pass::recompute, dims, e), [&] {
             rank_.backend.gated_act(
                 {state[Buf::shared_fc1], {}, state[Buf::shared_act], {}, activation_});
           });
  }
  linear_backward(Op::shared_fc2, Op::shared_fc2, shared_fc2_, state[Buf::shared_act], d_hidden,
                  state[Buf::d_shared_act], false, dims);
  run_op(rank_, Op::shared_act, Pass::backward,
         spec::op_cost(Op::shared_act, Pass::backward, dims, e), [&] {
           rank_.backend.gated_act_backward({{state[Buf::shared_fc1], {}, {}, {}, activation_},
                                             state[Buf::d_shared_act],
                                             state[Buf::d_shared_fc1],
                                             {}});
         });
  linear_backward(Op::shared_fc1, Op::shared_fc1, shared_fc1_, state[Buf::mlp_norm_out],
                  state[Buf::d_shared_fc1], state[Buf::d_mlp_norm], true, dims);
}

}  // namespace moetune::engine

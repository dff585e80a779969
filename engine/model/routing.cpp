// Where tokens go: the router, its auxiliary losses, and the plan of who sends how many rows to
// whom in which chunk.
#include <algorithm>
#include <numeric>
#include <vector>

#include "engine/model/layer.h"
#include "kernels/base/error.h"

namespace moetune::engine {
namespace {

// Row counts of one direction's chunks, from the counts of every member of the group.
struct CountsView {
  const std::vector<int32_t>& gathered;  ///< [source rank, chunk of both directions, expert]
  int64_t num_chunks;
  int64_t num_experts;

  [[nodiscard]] int32_t at(int64_t source, int64_t chunk, int64_t expert) const {
    return gathered[static_cast<size_t>((source * num_chunks + chunk) * num_experts + expert)];
  }
};

}  // namespace

void Layer::route(LayerState& state, Pass label) {
  const auto& dims = state.dims;
  const int64_t e = rank_.element_bytes;
  GraphCapture graph(rank_, spec::GraphScope::moe_router, label, [&] {
    return state.addresses({Part::block, Part::route});
  });
  norm_forward(Op::mlp_norm, label, state[Buf::mid], mlp_norm_, state[Buf::mlp_norm_out],
               state[Buf::mlp_norm_rstd], dims);
  linear_forward(Op::router_gemm, label, router_, state[Buf::mlp_norm_out],
                 state[Buf::router_probs], false, dims);
  run_op(rank_, Op::router, label, spec::op_cost(Op::router, label, dims, e), [&] {
    kernels::RouterArgs args;
    args.logits = state[Buf::router_probs];
    args.probs = state[Buf::router_probs];
    args.lse = state[Buf::router_lse];
    args.indices = state[Buf::topk_indices];
    args.weights = state[Buf::topk_weights];
    args.counts = state[Buf::expert_counts];
    args.prob_sums = state[Buf::aux_sums].row_range(0, dims.sequences);
    args.normalize = rank_.trial.model.normalizes_topk;
    rank_.backend.router(args);
    if (rank_.trial.training.aux_loss_coeff <= 0) return;
    const Tensor tokens = state[Buf::aux_sums].row_range(dims.sequences, dims.sequences);
    rank_.backend.copy({state[Buf::expert_counts], tokens, false});
  });
  aux_losses(state, label);
  graph.close();
}

// Plans who sends what to whom and packs the rows to send. Nothing here waits for the counts of
// other ranks, so the packing is launched before the host stops to read them.
void Layer::preprocess(LayerState& state, PassKind pass, Pass label) {
  const auto& dims = state.dims;
  const int64_t e = rank_.element_bytes;
  const bool is_parallel = dims.ep > 1;
  begin_route(state);
  // All rows stay here: the sizes are known and the host has nothing to wait for.
  if (!is_parallel) buffers_.allocate(state, Part::experts, pass);
  {
    GraphCapture graph(rank_, spec::GraphScope::moe_preprocess, label, [&] {
      return state.addresses({Part::route, Part::experts});
    });
    run_op(rank_, Op::moe_preprocess, label, spec::op_cost(Op::moe_preprocess, label, dims, e),
           [&] { plan_route(state); });
    if (is_parallel) {
      join_streams(rank_, Stream::expert, Stream::compute);
      run_comm(rank_, Op::count_exchange, label, spec::Group::ep, [&](int64_t ready_ns) {
        return rank_.comms.ep->all_gather(state[Buf::chunk_counts].data,
                                          state[Buf::gathered_counts].data,
                                          state[Buf::chunk_counts].bytes(), ready_ns);
      });
    }
    const spec::OpCost cost = spec::op_cost(Op::permute, label, dims, e);
    const Tensor order = state[Buf::slot_maps].row_range(0, 1).reshape(dims.tokens * dims.topk, 1);
    const Tensor position =
        state[Buf::slot_maps].row_range(1, 1).reshape(dims.tokens * dims.topk, 1);
    const Tensor weights = state[Buf::topk_weights].reshape(dims.tokens * dims.topk, 1);
    run_op(rank_, Op::permute, label, cost, [&] {
      rank_.backend.gather_rows({state[Buf::mlp_norm_out],
                                 state[is_parallel ? Buf::send_rows : Buf::expert_input], order,
                                 dims.topk, position});
    });
    run_op(rank_, Op::permute, label, cost, [&] {
      rank_.backend.gather_rows(
          {weights, state[is_parallel ? Buf::send_probs : Buf::expert_probs], order, 1});
    });
    graph.close();
  }
  // Recomputation routes a second time, and alike.
  if (label == Pass::forward) observe_route(state);
  if (!is_parallel) return;
  // Dropless buffers have the size the counts say: the host has to know them.
  std::vector<int32_t> gathered(static_cast<size_t>(state[Buf::gathered_counts].numel()));
  fetch(rank_, Stream::expert, label, gathered.data(), state[Buf::gathered_counts].data,
        state[Buf::gathered_counts].bytes());
  finish_route(state, gathered);
  buffers_.allocate(state, Part::experts, pass);
  begin_uploads(rank_, Stream::compute, [&] { write_route(state); });
}

// Sequence-level load-balancing loss: mean over sequences of E / (K S) * sum_e counts_e * mean
// prob_e (the sequence-wise form of Fedus et al. 2021, eq. 4), and z loss: mean over tokens of the
// squared log-sum-exp (Zoph et al. 2022, eq. 5). Both are means over the global batch, so no layout
// changes them.
void Layer::aux_losses(LayerState& state, Pass label) {
  const auto& dims = state.dims;
  const auto& training = rank_.trial.training;
  // Recomputation needs the gradient again, but the losses were counted in the forward pass.
  const bool is_counted = label == Pass::forward;
  kernels::AuxLossArgs args;
  if (is_counted && training.z_loss_coeff > 0) {
    args.lse = state[Buf::router_lse];
    args.z_scale = training.z_loss_coeff / (static_cast<double>(training.global_batch_size) *
                                            static_cast<double>(training.seq_length));
    args.z_loss = rank_.scalar(spec::Scalar::z_loss);
  }
  if (training.aux_loss_coeff > 0) {
    const auto seq = static_cast<double>(training.seq_length);
    args.sums = state[Buf::aux_sums];
    args.scale = training.aux_loss_coeff / static_cast<double>(training.global_batch_size) *
                 static_cast<double>(dims.experts) / (static_cast<double>(dims.topk) * seq * seq);
    // Every rank of the context-parallel group has the whole sum.
    args.loss_share = 1.0 / static_cast<double>(dims.cp);
    if (is_counted) args.load_balance = rank_.scalar(spec::Scalar::load_balance_loss);
    if (dims.cp > 1) {
      join_streams(rank_, Stream::context, Stream::compute);
      run_comm(rank_, Op::aux_loss_reduce, label, spec::Group::cp, [&](int64_t ready_ns) {
        return rank_.comms.cp->all_reduce(args.sums.data, args.sums.numel(), args.sums.dtype,
                                          ready_ns);
      });
      join_streams(rank_, Stream::compute, Stream::context);
    }
  }
  if (args.sums.is_null() && args.lse.is_null()) return;
  run_op(rank_, Op::aux_loss, label, spec::op_cost(Op::aux_loss, label, dims, rank_.element_bytes),
         [&] { rank_.backend.aux_loss(args); });
}

// The route as far as it is known before the router's decision: all of it without expert
// parallelism.
void Layer::begin_route(LayerState& state) {
  auto& dims = state.dims;
  Route& route = state.route;
  route = {};
  const bool is_parallel = dims.ep > 1;
  route.forward.resize(static_cast<size_t>(is_parallel ? dims.chunks_forward : 1));
  route.backward.resize(static_cast<size_t>(is_parallel ? dims.chunks_backward : 1));
  if (is_parallel) return;
  dims.received_rows = route.num_received = dims.tokens * dims.topk;
  for (auto* direction : {&route.forward, &route.backward}) {
    direction->front().num_sent = route.num_received;
    direction->front().num_received = route.num_received;
  }
}

// The order of sending, for the forward and the backward chunks, on the device.
void Layer::plan_route(LayerState& state) {
  const auto& dims = state.dims;
  const int64_t num_slots = dims.tokens * dims.topk;
  const auto map = [&](int64_t row) {
    return state[Buf::slot_maps].row_range(row, 1).reshape(num_slots, 1);
  };
  const auto num_forward = static_cast<int64_t>(state.route.forward.size());
  const auto num_backward = static_cast<int64_t>(state.route.backward.size());
  kernels::RoutePlanArgs args;
  args.indices = state[Buf::topk_indices];
  args.order = map(0);
  args.position = map(1);
  args.counts = state[Buf::chunk_counts].row_range(0, num_forward);
  args.num_chunks = num_forward;
  if (dims.ep == 1) {
    args.offsets = state[Buf::offsets].row_range(0, 1).reshape(dims.experts + 1, 1);
  }
  rank_.backend.route_plan(args);
  args.order = map(2);
  args.position = map(3);
  args.counts = state[Buf::chunk_counts].row_range(num_forward, num_backward);
  args.num_chunks = num_backward;
  args.offsets = {};
  rank_.backend.route_plan(args);
}

void Layer::observe_route(LayerState& state) {
  if (observer_ == nullptr || !rank_.trial.records_routing) return;
  const auto& dims = state.dims;
  std::vector<int32_t> indices(static_cast<size_t>(dims.tokens * dims.topk));
  leave_graph(rank_);
  rank_.backend.use_stream(static_cast<int>(Stream::compute));
  {
    const profiler::DeviceOpScope scope(
        rank_.labels(), device_op(rank_, tag_of(rank_, Op::host_sync, Pass::forward, {}),
                                  Op::router, profiler::RecordKind::host_sync));
    rank_.backend.copy_to_host(indices.data(), state[Buf::topk_indices].data,
                               state[Buf::topk_indices].bytes());
  }
  observer_->on_routing(rank_.rank, layer_, rank_.place.micro_batch, indices.data(), dims.tokens,
                        dims.topk);
}

// Host-side numbers of what is sent and what arrives: rows by peer and chunk, and where each
// expert's rows begin.
void Layer::finish_route(LayerState& state, const std::vector<int32_t>& gathered) {
  auto& dims = state.dims;
  Route& route = state.route;
  const auto num_forward = static_cast<int64_t>(route.forward.size());
  const int64_t num_chunks = num_forward + static_cast<int64_t>(route.backward.size());
  const CountsView all{gathered, num_chunks, dims.experts};
  const int64_t own = rank_.comms.ep->rank();
  const int64_t first_expert = own * dims.local_experts;
  route.counts.resize(static_cast<size_t>(dims.ep * num_chunks * dims.local_experts));
  const auto count = [&](int64_t source, int64_t chunk, int64_t expert) {
    return all.at(source, chunk, first_expert + expert);
  };
  int64_t send_begin = 0;
  for (int64_t chunk = 0; chunk < num_chunks; ++chunk) {
    if (chunk == num_forward) send_begin = 0;
    ChunkRoute& c = chunk < num_forward ? route.forward[static_cast<size_t>(chunk)]
                                        : route.backward[static_cast<size_t>(chunk - num_forward)];
    c.send_rows.assign(static_cast<size_t>(dims.ep), 0);
    for (int64_t expert = 0; expert < dims.experts; ++expert) {
      c.send_rows[static_cast<size_t>(expert / dims.local_experts)] += all.at(own, chunk, expert);
    }
    c.num_sent = std::accumulate(c.send_rows.begin(), c.send_rows.end(), int64_t{0});
    c.send_begin = send_begin;
    send_begin += c.num_sent;
    for (int64_t source = 0; source < dims.ep; ++source) {
      for (int64_t expert = 0; expert < dims.local_experts; ++expert) {
        route.counts[static_cast<size_t>((source * num_chunks + chunk) * dims.local_experts +
                                         expert)] = count(source, chunk, expert);
      }
    }
  }
  route.expert_offsets.assign(static_cast<size_t>(dims.local_experts) + 1, 0);
  for (int64_t chunk = 0; chunk < num_chunks; ++chunk) {
    const bool is_forward = chunk < num_forward;
    ChunkRoute& c = is_forward ? route.forward[static_cast<size_t>(chunk)]
                               : route.backward[static_cast<size_t>(chunk - num_forward)];
    c.recv_rows.assign(static_cast<size_t>(dims.ep), 0);
    c.expert_offsets.assign(static_cast<size_t>(dims.local_experts) + 1, 0);
    for (int64_t expert = 0; expert < dims.local_experts; ++expert) {
      for (int64_t source = 0; source < dims.ep; ++source) {
        c.recv_rows[static_cast<size_t>(source)] += count(source, chunk, expert);
        c.expert_offsets[static_cast<size_t>(expert) + 1] += count(source, chunk, expert);
        if (is_forward) {
          route.expert_offsets[static_cast<size_t>(expert) + 1] += count(source, chunk, expert);
        }
      }
    }
    c.num_received = std::accumulate(c.recv_rows.begin(), c.recv_rows.end(), int64_t{0});
    std::partial_sum(c.expert_offsets.begin(), c.expert_offsets.end(), c.expert_offsets.begin());
  }
  std::partial_sum(route.expert_offsets.begin(), route.expert_offsets.end(),
                   route.expert_offsets.begin());
  for (auto* direction : {&route.forward, &route.backward}) {
    int64_t begin = 0;
    for (ChunkRoute& c : *direction) {
      c.recv_begin = begin;
      begin += c.num_received;
    }
    MOETUNE_CHECK(begin == route.expert_offsets.back(), "chunks receive {} of {} rows", begin,
                  route.expert_offsets.back());
  }
  route.num_received = route.expert_offsets.back();
  dims.received_rows = route.num_received;
}

// The device's index lists: arrival order -> canonical row, and each chunk's canonical rows expert
// by expert.
void Layer::write_route(LayerState& state) {
  const auto& dims = state.dims;
  const Route& route = state.route;
  const auto num_forward = static_cast<int64_t>(route.forward.size());
  const int64_t num_chunks = num_forward + static_cast<int64_t>(route.backward.size());
  const auto count = [&](int64_t source, int64_t chunk, int64_t expert) {
    return route
        .counts[static_cast<size_t>((source * num_chunks + chunk) * dims.local_experts + expert)];
  };
  std::vector<int32_t> offsets(route.expert_offsets);
  int64_t map_row = 0;
  int64_t first_chunk = 0;
  for (const auto* direction : {&route.forward, &route.backward}) {
    const auto n = static_cast<int64_t>(direction->size());
    std::vector<int32_t> arrival(static_cast<size_t>(route.num_received));
    std::vector<int32_t> rows(arrival.size());
    // Canonical segment of (expert, source, chunk): chunks are ascending token ranges, so any
    // number of them gives the same order of tokens.
    std::vector<int32_t> segment(static_cast<size_t>(dims.local_experts * dims.ep * n));
    int32_t next = 0;
    for (int64_t expert = 0; expert < dims.local_experts; ++expert) {
      for (int64_t source = 0; source < dims.ep; ++source) {
        for (int64_t c = 0; c < n; ++c) {
          segment[static_cast<size_t>((expert * dims.ep + source) * n + c)] = next;
          next += count(source, first_chunk + c, expert);
        }
      }
    }
    size_t arrived = 0;
    size_t listed = 0;
    for (int64_t c = 0; c < n; ++c) {
      const auto fill = [&](int64_t source, int64_t expert, std::vector<int32_t>& list,
                            size_t& at) {
        const int32_t first = segment[static_cast<size_t>((expert * dims.ep + source) * n + c)];
        for (int32_t i = 0; i < count(source, first_chunk + c, expert); ++i) list[at++] = first + i;
      };
      for (int64_t source = 0; source < dims.ep; ++source) {
        for (int64_t expert = 0; expert < dims.local_experts; ++expert) {
          fill(source, expert, arrival, arrived);
        }
      }
      for (int64_t expert = 0; expert < dims.local_experts; ++expert) {
        for (int64_t source = 0; source < dims.ep; ++source) fill(source, expert, rows, listed);
      }
      const auto& chunk_offsets = (*direction)[static_cast<size_t>(c)].expert_offsets;
      offsets.insert(offsets.end(), chunk_offsets.begin(), chunk_offsets.end());
    }
    if (route.num_received > 0) {
      Tensor maps = state[Buf::row_maps];
      rank_.backend.copy_to_device(maps.row<int32_t>(map_row), arrival.data(),
                                   route.num_received * 4);
      rank_.backend.copy_to_device(maps.row<int32_t>(map_row + 1), rows.data(),
                                   route.num_received * 4);
    }
    map_row += 2;
    first_chunk += n;
  }
  rank_.backend.copy_to_device(state[Buf::offsets].data, offsets.data(),
                               static_cast<int64_t>(offsets.size()) * 4);
}

}  // namespace moetune::engine

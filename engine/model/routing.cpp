// Where tokens go: the router, its auxiliary losses, and the plan of who sends how many rows to
// whom in which chunk.
#include <algorithm>
#include <numeric>
#include <vector>

#include "engine/model/layer.h"
#include "kernels/base/error.h"

namespace moetune::engine {
namespace {

int64_t chunk_of(int64_t token, int64_t num_chunks, int64_t num_tokens) {
  // The chunk c with begin(c) <= token, begin(c) = c * tokens / chunks.
  int64_t chunk = token * num_chunks / num_tokens;
  while ((chunk + 1) * num_tokens / num_chunks <= token) ++chunk;
  return chunk;
}

// Send order of the (token, slot) pairs: by chunk, expert, token, slot. Counts per chunk and
// expert.
struct SendPlan {
  std::vector<int32_t> order;     ///< place -> slot number token * topk + slot
  std::vector<int32_t> position;  ///< its inverse
  std::vector<int32_t> counts;    ///< [chunk, expert]
};

SendPlan make_send_plan(const std::vector<int32_t>& indices, int64_t num_tokens, int64_t topk,
                        int64_t num_experts, int64_t num_chunks) {
  SendPlan plan;
  plan.counts.assign(static_cast<size_t>(num_chunks * num_experts), 0);
  std::vector<int64_t> bucket_of(indices.size());
  for (int64_t slot = 0; slot < static_cast<int64_t>(indices.size()); ++slot) {
    const int64_t chunk = chunk_of(slot / topk, num_chunks, num_tokens);
    const int64_t bucket = chunk * num_experts + indices[static_cast<size_t>(slot)];
    bucket_of[static_cast<size_t>(slot)] = bucket;
    ++plan.counts[static_cast<size_t>(bucket)];
  }
  std::vector<int32_t> next(plan.counts.size());
  std::exclusive_scan(plan.counts.begin(), plan.counts.end(), next.begin(), 0);
  plan.order.resize(indices.size());
  plan.position.resize(indices.size());
  for (size_t slot = 0; slot < indices.size(); ++slot) {
    const int32_t place = next[static_cast<size_t>(bucket_of[slot])]++;
    plan.order[static_cast<size_t>(place)] = static_cast<int32_t>(slot);
    plan.position[slot] = place;
  }
  return plan;
}

}  // namespace

void Layer::route(LayerState& state, Pass label) {
  const auto& dims = state.dims;
  const int64_t e = rank_.element_bytes;
  {
    const GraphCapture graph(rank_, spec::GraphScope::moe_router);
    norm_forward(Op::mlp_norm, label, state[Buf::mid], mlp_norm_, state[Buf::mlp_norm_out],
                 state[Buf::mlp_norm_rstd], dims);
    linear_forward(Op::router_gemm, Op::router_gemm, label, router_, state[Buf::mlp_norm_out],
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
    });
    aux_losses(state, label);
  }
}

// Plans who sends what to whom and packs the rows to send. Nothing here waits for the counts of
// other ranks, so the packing is launched before the host stops to read them.
void Layer::preprocess(LayerState& state, PassKind pass, Pass label) {
  const auto& dims = state.dims;
  const int64_t e = rank_.element_bytes;
  const bool is_parallel = dims.ep > 1;
  std::vector<int32_t> counts;
  std::vector<int32_t> received;
  const auto size_buffers = [&] {
    finish_route(state, received);
    buffers_.allocate(state, Part::experts, pass);
    write_route(state);
  };
  {
    const GraphCapture graph(rank_, spec::GraphScope::moe_preprocess);
    run_op(rank_, Op::moe_preprocess, label, spec::op_cost(Op::moe_preprocess, label, dims, e),
           [&] { plan_route(state, counts); });
    exchange_counts(state, label, counts, received);
    if (!is_parallel) size_buffers();
    const spec::OpCost cost = spec::op_cost(Op::permute, label, dims, e);
    const Tensor order = state[Buf::slot_maps].row_range(0, 1).reshape(dims.tokens * dims.topk, 1);
    const Tensor weights = state[Buf::topk_weights].reshape(dims.tokens * dims.topk, 1);
    run_op(rank_, Op::permute, label, cost, [&] {
      rank_.backend.gather_rows({state[Buf::mlp_norm_out],
                                 state[is_parallel ? Buf::send_rows : Buf::expert_input], order,
                                 dims.topk});
    });
    run_op(rank_, Op::permute, label, cost, [&] {
      rank_.backend.gather_rows(
          {weights, state[is_parallel ? Buf::send_probs : Buf::expert_probs], order, 1});
    });
  }
  if (!is_parallel) return;
  // Dropless buffers have the size the counts say: the host has to know them.
  const profiler::Event event = rank_.timeline.record_event(static_cast<int>(Stream::expert));
  rank_.timeline.synchronize(event, tag_of(rank_, Op::host_sync, label, {}));
  size_buffers();
}

// Sequence-level load-balancing loss: mean over sequences of E / (K S) * sum_e counts_e * mean
// prob_e (the sequence-wise form of Fedus et al. 2021, eq. 4), and z loss: mean over tokens of the
// squared log-sum-exp (Zoph et al. 2022, eq. 5). Both are means over the global batch, so no layout
// changes them.
void Layer::aux_losses(LayerState& state, Pass label) {
  const auto& dims = state.dims;
  const auto& training = rank_.trial.training;
  const int64_t numel = dims.sequences * dims.experts;
  const bool is_counted = label == Pass::forward;
  const auto read = [&](const Tensor& tensor, std::vector<double>& values) {
    values.resize(static_cast<size_t>(tensor.numel()));
    if (rank_.precision.stat == base::DType::f64) {
      rank_.backend.copy_to_host(values.data(), tensor.data, tensor.bytes());
      return;
    }
    std::vector<float> narrow(values.size());
    rank_.backend.copy_to_host(narrow.data(), tensor.data, tensor.bytes());
    std::copy(narrow.begin(), narrow.end(), values.begin());
  };
  const auto write = [&](const Tensor& tensor, const std::vector<double>& values) {
    if (rank_.precision.stat == base::DType::f64) {
      rank_.backend.copy_to_device(tensor.data, values.data(), tensor.bytes());
      return;
    }
    const std::vector<float> narrow(values.begin(), values.end());
    rank_.backend.copy_to_device(tensor.data, narrow.data(), tensor.bytes());
  };
  if (training.z_loss_coeff > 0 && is_counted) {
    std::vector<double> lse;
    read(state[Buf::router_lse], lse);
    double sum = 0;
    for (const double value : lse) sum += value * value;
    aux_.z += training.z_loss_coeff * sum /
              (static_cast<double>(training.global_batch_size) *
               static_cast<double>(training.seq_length));
  }
  if (training.aux_loss_coeff <= 0) return;
  std::vector<int32_t> counts(static_cast<size_t>(numel));
  rank_.backend.copy_to_host(counts.data(), state[Buf::expert_counts].data, numel * 4);
  write(state[Buf::aux_sums].row_range(dims.sequences, dims.sequences),
        std::vector<double>(counts.begin(), counts.end()));
  if (dims.cp > 1) {
    join_streams(rank_, Stream::context, Stream::compute);
    run_comm(rank_, Op::aux_loss_reduce, label, spec::Group::cp, [&](int64_t ready_ns) {
      return rank_.comms.cp->all_reduce(state[Buf::aux_sums].data, 2 * numel, rank_.precision.stat,
                                        ready_ns);
    });
    join_streams(rank_, Stream::compute, Stream::context);
  }
  std::vector<double> sums;
  read(state[Buf::aux_sums], sums);
  const auto seq = static_cast<double>(training.seq_length);
  const double scale = training.aux_loss_coeff / static_cast<double>(training.global_batch_size) *
                       static_cast<double>(dims.experts) /
                       (static_cast<double>(dims.topk) * seq * seq);
  std::vector<double> gradient(static_cast<size_t>(numel));
  double loss = 0;
  for (size_t i = 0; i < gradient.size(); ++i) {
    const double count = sums[gradient.size() + i];
    gradient[i] = scale * count;
    loss += scale * count * sums[i];
  }
  write(state[Buf::aux_sums].row_range(dims.sequences, dims.sequences), gradient);
  // Every rank of the context-parallel group has the whole sum.
  if (is_counted) aux_.load_balance += loss / static_cast<double>(dims.cp);
}

void Layer::plan_route(LayerState& state, std::vector<int32_t>& counts) {
  const auto& dims = state.dims;
  std::vector<int32_t> indices(static_cast<size_t>(dims.tokens * dims.topk));
  rank_.backend.copy_to_host(indices.data(), state[Buf::topk_indices].data,
                             state[Buf::topk_indices].bytes());
  const int64_t bytes = static_cast<int64_t>(indices.size()) * 4;
  const int64_t forward_chunks = dims.ep > 1 ? dims.chunks_forward : 1;
  const int64_t backward_chunks = dims.ep > 1 ? dims.chunks_backward : 1;
  state.route = {};
  counts.clear();
  int64_t map_row = 0;
  for (const int64_t num_chunks : {forward_chunks, backward_chunks}) {
    const SendPlan plan = make_send_plan(indices, dims.tokens, dims.topk, dims.experts, num_chunks);
    Tensor maps = state[Buf::slot_maps];
    rank_.backend.copy_to_device(maps.row<int32_t>(map_row), plan.order.data(), bytes);
    rank_.backend.copy_to_device(maps.row<int32_t>(map_row + 1), plan.position.data(), bytes);
    map_row += 2;
    counts.insert(counts.end(), plan.counts.begin(), plan.counts.end());
  }
  state.route.forward.resize(static_cast<size_t>(forward_chunks));
  state.route.backward.resize(static_cast<size_t>(backward_chunks));
  if (observer_ != nullptr && rank_.trial.records_routing) {
    observer_->on_routing(rank_.rank, layer_, rank_.place.micro_batch, indices.data(), dims.tokens,
                          dims.topk);
  }
}

// counts is [chunk of both directions, expert]; received becomes [source rank, chunk, local
// expert].
void Layer::exchange_counts(LayerState& state, Pass label, const std::vector<int32_t>& counts,
                            std::vector<int32_t>& received) {
  const auto& dims = state.dims;
  const auto num_chunks = static_cast<int64_t>(counts.size()) / dims.experts;
  std::vector<int32_t> outgoing(counts.size());
  for (int64_t peer = 0; peer < dims.ep; ++peer) {
    for (int64_t c = 0; c < num_chunks; ++c) {
      for (int64_t i = 0; i < dims.local_experts; ++i) {
        outgoing[static_cast<size_t>((peer * num_chunks + c) * dims.local_experts + i)] =
            counts[static_cast<size_t>(c * dims.experts + peer * dims.local_experts + i)];
      }
    }
  }
  // What this rank sends, by peer and chunk.
  size_t chunk_index = 0;
  for (auto* direction : {&state.route.forward, &state.route.backward}) {
    int64_t begin = 0;
    for (ChunkRoute& chunk : *direction) {
      chunk.send_rows.assign(static_cast<size_t>(dims.ep), 0);
      for (int64_t expert = 0; expert < dims.experts; ++expert) {
        chunk.send_rows[static_cast<size_t>(expert / dims.local_experts)] +=
            counts[chunk_index * static_cast<size_t>(dims.experts) + static_cast<size_t>(expert)];
      }
      chunk.num_sent = std::accumulate(chunk.send_rows.begin(), chunk.send_rows.end(), int64_t{0});
      chunk.send_begin = begin;
      begin += chunk.num_sent;
      ++chunk_index;
    }
  }
  if (dims.ep == 1) {
    received = outgoing;
    return;
  }
  received.resize(outgoing.size());
  join_streams(rank_, Stream::expert, Stream::compute);
  run_comm(rank_, Op::count_exchange, label, spec::Group::ep, [&](int64_t ready_ns) {
    const AllToAllLane lane{outgoing.data(), received.data(), num_chunks * dims.local_experts * 4};
    const std::vector<int64_t> ones(static_cast<size_t>(dims.ep), 1);
    return rank_.comms.ep->all_to_all({&lane, 1}, ones, ones, ready_ns);
  });
}

// Host-side numbers of what arrives: rows by peer and chunk, and where each expert's rows begin.
void Layer::finish_route(LayerState& state, const std::vector<int32_t>& received) {
  auto& dims = state.dims;
  Route& route = state.route;
  route.counts = received;
  const auto num_forward = static_cast<int64_t>(route.forward.size());
  const int64_t num_chunks = num_forward + static_cast<int64_t>(route.backward.size());
  const auto count = [&](int64_t source, int64_t chunk, int64_t expert) {
    return received[static_cast<size_t>((source * num_chunks + chunk) * dims.local_experts +
                                        expert)];
  };
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

#include "engine/exec/host_work.h"

namespace moetune::engine {
namespace {

using kernels::Tensor;
using plan::Table;

std::vector<int32_t> positions_of(const RankContext& rank) {
  const std::vector<int32_t> local =
      plan::local_positions(rank.layout, rank.rank, rank.trial.training.seq_length);
  std::vector<int32_t> positions;
  for (int64_t b = 0; b < rank.trial.knobs.micro_batch_size; ++b) {
    positions.insert(positions.end(), local.begin(), local.end());
  }
  return positions;
}

/// Row of the gathered keys for each position, or the inverse: gathered rows lie rank by rank.
std::vector<int32_t> kv_order_of(const RankContext& rank, bool is_inverse) {
  const int64_t seq = rank.trial.training.seq_length;
  const int64_t sequences = rank.trial.knobs.micro_batch_size;
  const std::vector<int32_t> positions = plan::positions_by_rank(rank.layout, rank.rank, seq);
  const int64_t num_local = plan::num_local(rank.layout, seq);
  std::vector<int32_t> order(static_cast<size_t>(seq * sequences));
  int32_t gathered = 0;
  for (int64_t first = 0; first < seq; first += num_local) {
    for (int64_t b = 0; b < sequences; ++b) {
      for (int64_t i = first; i < first + num_local; ++i) {
        const auto global = static_cast<int32_t>(b * seq + positions[static_cast<size_t>(i)]);
        if (is_inverse) {
          order[static_cast<size_t>(gathered)] = global;
        } else {
          order[static_cast<size_t>(global)] = gathered;
        }
        ++gathered;
      }
    }
  }
  return order;
}

}  // namespace

std::array<plan::TableRow, static_cast<size_t>(Table::count)> rank_tables(const RankContext& rank) {
  const spec::TrialSpec& trial = rank.trial;
  return plan::tables_of(
      plan::layer_dims(trial.model, trial.knobs, trial.training.seq_length, 0),
      trial.training.seq_length,
      plan::num_micro_batches(rank.layout, trial.knobs, trial.training.global_batch_size));
}

void upload_table(RankContext& rank, Table table, const Tensor& tensor) {
  if (tensor.is_null()) return;
  const auto send = [&](const void* host) {
    rank.backend.copy_to_device(tensor.data, host, tensor.bytes());
  };
  switch (table) {
    case Table::positions:
      return send(positions_of(rank).data());
    case Table::rope_cos:
    case Table::rope_sin: {
      const spec::RopeTable rope =
          spec::make_rope_table(rank.trial.model, rank.trial.training.seq_length);
      const std::vector<double>& values = table == Table::rope_cos ? rope.cos : rope.sin;
      if (tensor.dtype == base::DType::f64) return send(values.data());
      return send(std::vector<float>(values.begin(), values.end()).data());
    }
    case Table::kv_order:
      return send(kv_order_of(rank, false).data());
    case Table::kv_inverse:
      return send(kv_order_of(rank, true).data());
    case Table::ring_positions:
      return send(
          plan::positions_by_rank(rank.layout, rank.rank, rank.trial.training.seq_length).data());
    default:
      return;
  }
}

void write_route(const plan::LayerDims& dims, const plan::Route& route,
                 std::vector<int32_t>& row_maps, std::vector<int32_t>& offsets) {
  const int64_t num_chunks = dims.chunks_forward + dims.chunks_backward;
  const auto count = [&](int64_t source, int64_t chunk, int64_t expert) {
    return route
        .counts[static_cast<size_t>((source * num_chunks + chunk) * dims.local_experts + expert)];
  };
  offsets = route.expert_offsets;
  row_maps.assign(static_cast<size_t>(4 * route.num_received), 0);
  int32_t* arrival = row_maps.data();
  int64_t first_chunk = 0;
  for (const auto* direction : {&route.forward, &route.backward}) {
    const auto n = static_cast<int64_t>(direction->size());
    // Canonical segment of (expert, source, chunk): chunks are ascending token ranges, so any
    // number of them gives the same order of tokens.
    std::vector<int32_t> segment(static_cast<size_t>(dims.local_experts * dims.expert_ranks * n));
    int32_t next = 0;
    for (int64_t expert = 0; expert < dims.local_experts; ++expert) {
      for (int64_t source = 0; source < dims.expert_ranks; ++source) {
        for (int64_t c = 0; c < n; ++c) {
          segment[static_cast<size_t>((expert * dims.expert_ranks + source) * n + c)] = next;
          next += count(source, first_chunk + c, expert);
        }
      }
    }
    int32_t* listed = arrival + route.num_received;
    for (int64_t c = 0; c < n; ++c) {
      const auto fill = [&](int64_t source, int64_t expert, int32_t*& at) {
        const int32_t first =
            segment[static_cast<size_t>((expert * dims.expert_ranks + source) * n + c)];
        for (int32_t i = 0; i < count(source, first_chunk + c, expert); ++i) *at++ = first + i;
      };
      for (int64_t source = 0; source < dims.expert_ranks; ++source) {
        for (int64_t expert = 0; expert < dims.local_experts; ++expert) {
          fill(source, expert, arrival);
        }
      }
      for (int64_t expert = 0; expert < dims.local_experts; ++expert) {
        for (int64_t source = 0; source < dims.expert_ranks; ++source) fill(source, expert, listed);
      }
      const auto& of_chunk = (*direction)[static_cast<size_t>(c)].expert_offsets;
      offsets.insert(offsets.end(), of_chunk.begin(), of_chunk.end());
    }
    arrival = listed;
    first_chunk += n;
  }
}

}  // namespace moetune::engine

#include "engine/plan/route.h"

#include <algorithm>
#include <numeric>

#include "kernels/base/error.h"

namespace moetune::plan {
namespace {

/// The counts of every member, by source rank, chunk of both directions and expert.
struct CountsView {
  std::span<const int32_t> counts;
  int64_t num_chunks;
  int64_t num_experts;

  [[nodiscard]] int32_t at(int64_t source, int64_t chunk, int64_t expert) const {
    return counts[static_cast<size_t>((source * num_chunks + chunk) * num_experts + expert)];
  }
};

int64_t part(int64_t total, int64_t parts, int64_t index) {
  return total * (index + 1) / parts - total * index / parts;
}

/// Counts as make_route takes them of rows(source, expert). What an expert gets of a source is cut
/// into chunks, so both directions agree.
template <typename Rows>
std::vector<int32_t> cut_counts(const LayerDims& dims, Rows&& rows) {
  const int64_t num_chunks = dims.chunks_forward + dims.chunks_backward;
  const auto num_slices = static_cast<size_t>(dims.expert_slices());
  std::vector<int32_t> counts(static_cast<size_t>(dims.expert_ranks * num_chunks) * num_slices);
  std::span<int32_t> left = counts;
  for (int64_t source = 0; source < dims.expert_ranks; ++source) {
    for (const int64_t chunks : {dims.chunks_forward, dims.chunks_backward}) {
      for (int64_t chunk = 0; chunk < chunks; ++chunk) {
        for (int64_t expert = 0; expert < dims.experts; ++expert) {
          add_rows_of_expert(dims, expert, part(rows(source, expert), chunks, chunk), left);
        }
        left = left.subspan(num_slices);
      }
    }
  }
  return counts;
}

}  // namespace

Route make_route(const LayerDims& dims, int64_t own, std::span<const int32_t> counts) {
  Route route;
  route.forward.resize(static_cast<size_t>(dims.chunks_forward));
  route.backward.resize(static_cast<size_t>(dims.chunks_backward));
  const int64_t num_forward = dims.chunks_forward;
  const int64_t num_chunks = num_forward + dims.chunks_backward;
  MOETUNE_CHECK(
      static_cast<int64_t>(counts.size()) == dims.expert_ranks * num_chunks * dims.expert_slices(),
      "{} counts of {} ranks, {} chunks and {} experts", counts.size(), dims.expert_ranks,
      num_chunks, dims.expert_slices());
  const CountsView all{counts, num_chunks, dims.expert_slices()};
  const int64_t first_expert = own * dims.local_experts;
  const auto num_local = static_cast<size_t>(dims.local_experts);
  route.counts.resize(static_cast<size_t>(dims.expert_ranks * num_chunks) * num_local);
  route.expert_offsets.assign(num_local + 1, 0);
  int64_t send_begin = 0;
  int64_t recv_begin = 0;
  for (int64_t chunk = 0; chunk < num_chunks; ++chunk) {
    const bool is_forward = chunk < num_forward;
    if (chunk == num_forward) send_begin = recv_begin = 0;
    ChunkRoute& c = is_forward ? route.forward[static_cast<size_t>(chunk)]
                               : route.backward[static_cast<size_t>(chunk - num_forward)];
    c.send_rows.assign(static_cast<size_t>(dims.expert_ranks), 0);
    c.recv_rows.assign(static_cast<size_t>(dims.expert_ranks), 0);
    c.expert_offsets.assign(num_local + 1, 0);
    for (int64_t expert = 0; expert < dims.expert_slices(); ++expert) {
      c.send_rows[static_cast<size_t>(expert / dims.local_experts)] += all.at(own, chunk, expert);
    }
    for (int64_t source = 0; source < dims.expert_ranks; ++source) {
      for (size_t expert = 0; expert < num_local; ++expert) {
        const int32_t rows = all.at(source, chunk, first_expert + static_cast<int64_t>(expert));
        route.counts[static_cast<size_t>(source * num_chunks + chunk) * num_local + expert] = rows;
        c.recv_rows[static_cast<size_t>(source)] += rows;
        c.expert_offsets[expert + 1] += rows;
        if (is_forward) route.expert_offsets[expert + 1] += rows;
      }
    }
    c.num_sent = std::accumulate(c.send_rows.begin(), c.send_rows.end(), int64_t{0});
    c.num_received = std::accumulate(c.recv_rows.begin(), c.recv_rows.end(), int64_t{0});
    c.send_begin = send_begin;
    c.recv_begin = recv_begin;
    send_begin += c.num_sent;
    recv_begin += c.num_received;
    std::partial_sum(c.expert_offsets.begin(), c.expert_offsets.end(), c.expert_offsets.begin());
  }
  std::partial_sum(route.expert_offsets.begin(), route.expert_offsets.end(),
                   route.expert_offsets.begin());
  route.num_received = route.expert_offsets.back();
  for (const auto* direction : {&route.forward, &route.backward}) {
    const int64_t received = direction->back().recv_begin + direction->back().num_received;
    MOETUNE_CHECK(received == route.num_received, "chunks receive {} of {} rows", received,
                  route.num_received);
  }
  return route;
}

Route local_route(const LayerDims& dims) {
  Route route;
  route.num_received = dims.tokens * dims.slots_per_token();
  for (auto* direction : {&route.forward, &route.backward}) {
    direction->resize(1);
    direction->front().num_sent = route.num_received;
    direction->front().num_received = route.num_received;
  }
  return route;
}

void add_rows_of_expert(const LayerDims& dims, int64_t expert, int64_t rows,
                        std::span<int32_t> counts) {
  for (int64_t slice = 0; slice < dims.etp; ++slice) {
    const int64_t rank = expert / dims.local_experts * dims.etp + slice;
    counts[static_cast<size_t>(rank * dims.local_experts + expert % dims.local_experts)] +=
        static_cast<int32_t>(rows);
  }
}

std::vector<int32_t> balanced_counts(const LayerDims& dims) {
  // Each source starts at another expert, so that the remainders do not all go to the same ones.
  return cut_counts(dims, [&](int64_t source, int64_t expert) {
    return part(dims.tokens * dims.topk, dims.experts, (expert + source) % dims.experts);
  });
}

std::vector<int32_t> uneven_counts(const LayerDims& dims, int64_t own, int64_t num_received) {
  const int64_t num_others = dims.experts - dims.local_experts;
  if (num_others == 0) return balanced_counts(dims);
  const int64_t all = dims.expert_ranks * dims.tokens * dims.topk;
  const int64_t first = own / dims.etp * dims.local_experts;
  return cut_counts(dims, [&](int64_t source, int64_t expert) {
    const int64_t local = expert - first;
    if (local >= 0 && local < dims.local_experts) {
      return part(std::min(num_received, all), dims.expert_ranks * dims.local_experts,
                  source * dims.local_experts + local);
    }
    const int64_t other = expert < first ? expert : expert - dims.local_experts;
    return part(std::max<int64_t>(0, all - num_received), dims.expert_ranks * num_others,
                source * num_others + other);
  });
}

}  // namespace moetune::plan

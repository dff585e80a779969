// The sizes that only the router knows, once it has spoken: how many rows of one layer and
// micro-batch go from whom to whom in which chunk. The engine binds them from the counts that the
// ranks have exchanged, the models from a routing profile or an assumed balance.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/plan/buffers.h"

namespace moetune::plan {

/// How the rows of one direction (forward or backward) travel, chunk by chunk: row counts by peer
/// of the expert-parallel group, and where each chunk's entries begin in the index lists.
struct ChunkRoute {
  std::vector<int64_t> send_rows;  ///< per peer
  std::vector<int64_t> recv_rows;  ///< per peer
  int64_t send_begin = 0;          ///< first entry in send order
  int64_t recv_begin = 0;          ///< first entry in arrival order
  int64_t num_sent = 0;
  int64_t num_received = 0;
  std::vector<int32_t> expert_offsets;  ///< [local experts + 1] into this chunk's row list
};

/// Routing of one layer and micro-batch on one rank.
struct Route {
  int64_t num_received = 0;
  std::vector<int32_t> expert_offsets;  ///< [local experts + 1] over canonical rows
  std::vector<ChunkRoute> forward;
  std::vector<ChunkRoute> backward;
  std::vector<int32_t> counts;  ///< [source rank, chunk of both directions, local expert]

  [[nodiscard]] const ChunkRoute& chunk(bool is_backward, int64_t index) const {
    return (is_backward ? backward : forward)[static_cast<size_t>(index)];
  }
  /// Rows that arrive with a chunk; -1: with all of them.
  [[nodiscard]] int64_t received(bool is_backward, int64_t index) const {
    return index < 0 ? num_received : chunk(is_backward, index).num_received;
  }
};

/// Adds the rows of a whole expert to `counts` [experts * etp], which are by slice. Each slice of
/// the expert gets all of them. Slices stand in the order of the ranks that have them.
void add_rows_of_expert(const LayerDims& dims, int64_t expert, int64_t rows,
                        std::span<int32_t> counts);

/// From the counts [source rank, forward chunks then backward chunks, slice of an expert] of every
/// member of the group, as member `own` sees them.
Route make_route(const LayerDims& dims, int64_t own, std::span<const int32_t> counts);

/// Without expert parallelism all rows stay, and their number is known: T * K.
Route local_route(const LayerDims& dims);

/// Counts as make_route takes them, spread as evenly as whole rows allow.
std::vector<int32_t> balanced_counts(const LayerDims& dims);
/// The same where the experts of member `own` receive `num_received` rows and the others the rest,
/// each part spread evenly.
std::vector<int32_t> uneven_counts(const LayerDims& dims, int64_t own, int64_t num_received);

/// Gives readers of a program the rows of one rank.
class Bindings {
 public:
  virtual ~Bindings() = default;
  [[nodiscard]] virtual const Route& at(int64_t layer, int64_t micro_batch) const = 0;
};

}  // namespace moetune::plan

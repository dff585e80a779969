// The buffers of one layer for one micro-batch, allocated part by part from the rows of
// engine/spec/buffers.h.
#pragma once

#include <array>
#include <initializer_list>
#include <vector>

#include "engine/run_op.h"
#include "engine/spec/buffers.h"
#include "kernels/tensor.h"

namespace moetune::engine {

using kernels::Tensor;
using spec::Buf;
using spec::Part;
using spec::PassKind;

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

/// Routing of one layer and micro-batch: host-side numbers; the index lists lie in device buffers.
struct Route {
  int64_t num_received = 0;
  std::vector<int32_t> expert_offsets;  ///< [local experts + 1] over canonical rows
  std::vector<ChunkRoute> forward;
  std::vector<ChunkRoute> backward;
  std::vector<int32_t> counts;  ///< [source rank, chunk of both directions, local expert]
};

/// Tensors by Buf; null when not allocated.
struct LayerState {
  spec::LayerDims dims;
  std::array<Tensor, static_cast<size_t>(Buf::count)> tensors{};
  Route route;

  [[nodiscard]] Tensor& operator[](Buf id) { return tensors[static_cast<size_t>(id)]; }
  [[nodiscard]] const Tensor& operator[](Buf id) const { return tensors[static_cast<size_t>(id)]; }

  /// Where the buffers of some parts lie, for telling captured graphs apart; `extra` lies outside
  /// of the table.
  [[nodiscard]] std::vector<const void*> addresses(std::initializer_list<Part> parts,
                                                   const void* extra = nullptr) const;
};

/// Allocates and releases by the buffer table for one rank's knobs.
class BufferPlan {
 public:
  explicit BufferPlan(RankContext& rank);

  /// Allocates the part's buffers for that pass that are not there yet.
  void allocate(LayerState& state, Part part, PassKind pass);
  /// Releases what the pass placed in the workspace.
  void release_workspace(LayerState& state, Part part, PassKind pass);
  /// Releases the part's saved buffers.
  void release_saved(LayerState& state, Part part);

 private:
  void release(LayerState& state, const spec::BufferRow& row, MemoryGroup group);

  RankContext& rank_;
  std::array<std::array<spec::Place, static_cast<size_t>(Buf::count)>, 3> places_{};
};

}  // namespace moetune::engine

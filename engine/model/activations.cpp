// Allocation of layer buffers by the table; see activations.h.
#include "engine/model/activations.h"

#include <algorithm>

namespace moetune::engine {
namespace {

MemoryGroup group_of(spec::Place place) {
  if (place == spec::Place::saved) return MemoryGroup::activations;
  return place == spec::Place::communication ? MemoryGroup::communication : MemoryGroup::workspace;
}

}  // namespace

std::vector<const void*> LayerState::addresses(std::initializer_list<Part> parts,
                                               const void* extra) const {
  std::vector<const void*> all{extra};
  for (const spec::BufferRow& row : spec::buffer_table()) {
    if (std::find(parts.begin(), parts.end(), row.part) != parts.end()) {
      all.push_back((*this)[row.id].data);
    }
  }
  return all;
}

BufferPlan::BufferPlan(RankContext& rank) : rank_(rank) {
  for (const spec::BufferRow& row : spec::buffer_table()) {
    for (size_t pass = 0; pass < places_.size(); ++pass) {
      places_[pass][static_cast<size_t>(row.id)] =
          spec::place_of(row, rank.trial.knobs, static_cast<PassKind>(pass));
    }
  }
}

void BufferPlan::allocate(LayerState& state, Part part, PassKind pass) {
  for (const spec::BufferRow& row : spec::buffer_table()) {
    if (row.part != part) continue;
    const spec::Place place = places_[static_cast<size_t>(pass)][static_cast<size_t>(row.id)];
    if (place == spec::Place::absent || !state[row.id].is_null()) continue;
    const int64_t rows = row.rows(state.dims);
    const int64_t cols = row.cols(state.dims);
    const base::DType dtype = rank_.precision.of(row.content);
    const bool is_routed = part == Part::experts && state.dims.ep > 1;
    void* data =
        rank_.memory.allocate(row.name, group_of(place), rows * cols * base::size_of(dtype),
                              is_routed ? Sizing::routed : Sizing::fixed);
    state[row.id] = Tensor::matrix(data, dtype, rows, cols);
  }
}

void BufferPlan::release(LayerState& state, const spec::BufferRow& row, MemoryGroup group) {
  Tensor& tensor = state[row.id];
  rank_.memory.release(group, tensor.data, tensor.bytes());
  tensor = {};
}

void BufferPlan::release_workspace(LayerState& state, Part part, PassKind pass) {
  for (const spec::BufferRow& row : spec::buffer_table()) {
    if (row.part != part) continue;
    const spec::Place place = places_[static_cast<size_t>(pass)][static_cast<size_t>(row.id)];
    if (place == spec::Place::workspace || place == spec::Place::communication) {
      release(state, row, group_of(place));
    }
  }
}

void BufferPlan::release_saved(LayerState& state, Part part) {
  constexpr auto kForward = static_cast<size_t>(PassKind::forward);
  for (const spec::BufferRow& row : spec::buffer_table()) {
    if (row.part != part) continue;
    if (places_[kForward][static_cast<size_t>(row.id)] == spec::Place::saved) {
      release(state, row, MemoryGroup::activations);
    }
  }
}

}  // namespace moetune::engine

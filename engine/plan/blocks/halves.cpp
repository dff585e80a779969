// The halves of a layer (mixer, feed-forward): where each reads its input and leaves its output,
// and the buffers of the layer that the first one begins and the last one ends.
#include <algorithm>

#include "engine/plan/blocks/blocks.h"

namespace moetune::plan {
namespace {

bool is_first(const SegmentWriter& w) { return halves_of(w.dims()).front() == w.block(); }
bool is_last(const SegmentWriter& w) { return halves_of(w.dims()).back() == w.block(); }

}  // namespace

Ref feed_forward_input(const LayerDims& dims) {
  return in(dims.mixer == spec::Mixer::none ? Buf::input : Buf::mid);
}

Ref mixer_output(const LayerDims& dims) {
  return dims.has_feed_forward ? in(Buf::mid) : in(Space::next, Buf::input);
}

void begin_layer(SegmentWriter& w) {
  if (!is_first(w)) return;
  w.begin(Part::input, Space::next);
  w.begin(Part::block);
}

void end_layer(SegmentWriter& w) {
  if (is_last(w)) w.end(Part::block);
}

void end_layer_backward(SegmentWriter& w) {
  if (!is_first(w)) return;
  std::vector<BlockKind> halves = halves_of(w.dims());
  std::ranges::reverse(halves);
  for (const BlockKind half : halves) {
    std::vector<Part> parts = parts_of(block_of(half));
    std::ranges::reverse(parts);
    for (const Part part : parts) w.end_saved(part);
  }
  for (const Part part : {Part::block, Part::input}) w.end_saved(part);
}

}  // namespace moetune::plan

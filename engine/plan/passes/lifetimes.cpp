// Allocations and their ends, written from the rows of the buffer table.
#include "engine/plan/passes/passes.h"

namespace moetune::plan {
namespace {

MemoryGroup group_of(Place place) {
  if (place == Place::saved) return MemoryGroup::activations;
  return place == Place::communication ? MemoryGroup::communication : MemoryGroup::workspace;
}

/// An alloc or a free of one buffer; its size follows the rows of experts where those are routed.
Instr memory_instr(Verb verb, const BufferRow& row, Space space, Place place, const LayerDims& dims,
                   const Precision& precision) {
  Instr instr;
  instr.verb = verb;
  instr.what = static_cast<uint8_t>(group_of(place));
  instr.refs = {{space, static_cast<uint8_t>(row.id), Access::write}};
  if (row.part != Part::experts || dims.expert_ranks == 1) {
    instr.cost.bytes = buffer_bytes(row, dims, precision);
    return instr;
  }
  LayerDims some = dims;
  some.received_rows = 0;
  instr.cost.bytes = buffer_bytes(row, some, precision);
  some.received_rows = 1;
  instr.cost_per_row.bytes = buffer_bytes(row, some, precision) - instr.cost.bytes;
  instr.is_routed = true;
  return instr;
}

}  // namespace

void lifetimes(Segment& segment, const spec::Knobs& knobs, PassKind pass,
               const Precision& precision) {
  std::vector<Instr> code;
  for (Instr& instr : segment.code) {
    const auto what = static_cast<Mark>(instr.what);
    const bool is_part =
        instr.verb == Verb::mark &&
        (what == Mark::part_begin || what == Mark::part_end || what == Mark::saved_end);
    if (!is_part) {
      code.push_back(std::move(instr));
      continue;
    }
    const auto part = static_cast<Part>(instr.refs.front().id);
    for (const BufferRow& row : buffer_table()) {
      if (row.part != part) continue;
      // What is saved is what an ordinary forward pass saves.
      const bool is_saved_end = what == Mark::saved_end;
      const Place place =
          place_of(row, segment.dims, knobs, is_saved_end ? PassKind::forward : pass);
      if (place == Place::absent) continue;
      if (what != Mark::part_begin && (place == Place::saved) != is_saved_end) continue;
      const Verb verb = what == Mark::part_begin ? Verb::alloc : Verb::free;
      Instr made =
          memory_instr(verb, row, instr.refs.front().space, place, segment.dims, precision);
      made.pass = instr.pass;
      if (made.cost.bytes > 0 || made.cost_per_row.bytes > 0) code.push_back(std::move(made));
    }
  }
  segment.code = std::move(code);
}

}  // namespace moetune::plan

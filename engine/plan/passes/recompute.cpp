// What the backward pass makes again, selectively or a whole half of a layer.
#include <algorithm>

#include "engine/plan/passes/passes.h"
#include "kernels/base/error.h"

namespace moetune::plan {
namespace {

bool is_mark(const Instr& instr, Mark what) {
  return instr.verb == Verb::mark && instr.what == static_cast<uint8_t>(what);
}

const Instr& writer_of(const Segment& forward, uint8_t buffer) {
  for (const Instr& instr : forward.code) {
    if (instr.verb != Verb::op) continue;
    for (const Ref& ref : instr.refs) {
      if (ref.space == Space::frame && ref.id == buffer && ref.access == Access::write) {
        return instr;
      }
    }
  }
  throw base::Error("a buffer is to be recomputed, but no forward instruction writes it");
}

}  // namespace

void recompute(Segment& backward, const Segment& forward, const spec::Knobs& knobs) {
  std::vector<Instr> code;
  bool is_remade = false;
  bool is_left_out = false;
  for (const Instr& instr : backward.code) {
    if (is_mark(instr, Mark::remake_begin)) {
      is_remade = is_dropped(buffer_row(static_cast<Buf>(instr.refs.front().id)), knobs);
      is_left_out = !is_remade;
      continue;
    }
    if (is_mark(instr, Mark::remake_end)) {
      is_remade = is_left_out = false;
      continue;
    }
    if (is_left_out) continue;
    if (!is_mark(instr, Mark::remake)) {
      code.push_back(instr);
      if (is_remade) code.back().pass = Pass::recompute;
      continue;
    }
    for (const Ref& ref : instr.refs) {
      if (!is_dropped(buffer_row(static_cast<Buf>(ref.id)), knobs)) continue;
      code.push_back(writer_of(forward, ref.id));
      code.back().pass = Pass::recompute;
      drop_chunk_lists(code.back());  // all rows at once
    }
  }
  backward.code = std::move(code);
}

Segment recomputed(const Segment& forward, bool ends_layer) {
  Segment made = forward;
  made.code.clear();
  for (Instr instr : forward.code) {
    if (is_mark(instr, Mark::observe_route)) continue;
    // The losses were counted in the forward pass; what is needed again are their gradients.
    if (instr.op == Op::aux_loss) {
      if (instr.refs.front().space == Space::none) continue;
      std::fill(instr.refs.begin() + 1, instr.refs.end(), Ref{});
    }
    instr.pass = Pass::recompute;
    for (Ref& ref : instr.refs) {
      if (ref.space == Space::next) ref.space = Space::scratch;
    }
    made.code.push_back(std::move(instr));
  }
  if (ends_layer) {
    Instr& end = made.code.emplace_back();
    end.verb = Verb::mark;
    end.pass = Pass::recompute;
    end.what = static_cast<uint8_t>(Mark::saved_end);
    end.refs = {{Space::scratch, static_cast<uint8_t>(Part::input)}};
  }
  return made;
}

}  // namespace moetune::plan

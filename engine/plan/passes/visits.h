// Which items belong together for passes that bring something before a layer runs and take it away
// behind it.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/plan/program.h"

namespace moetune::plan {

/// One direction of a layer for one micro-batch, or an item outside of layers: [begin, end).
struct Visit {
  size_t begin = 0;
  size_t end = 0;
  int32_t layer = -1;
  int32_t frame = -1;
  int32_t micro_batch = -1;
  /// Or what is recomputed for it.
  bool is_backward = false;

  [[nodiscard]] bool is_with(const Visit& next) const {
    return micro_batch == next.micro_batch && is_backward == next.is_backward;
  }
};

/// Of the items for which `is_visit` holds, in order. Others between them end no visit.
template <typename IsVisit>
std::vector<Visit> visits_of(const StepProgram& program, IsVisit&& is_visit) {
  std::vector<Visit> visits;
  for (size_t i = 0; i < program.items.size(); ++i) {
    const Item& item = program.items[i];
    const Segment& segment = *program.segments[static_cast<size_t>(item.segment)];
    if (item.micro_batch < 0 || !is_visit(item, segment)) continue;
    const bool is_again = !segment.code.empty() && segment.code.front().pass == Pass::recompute;
    const Visit next{
        i, i + 1, item.layer, item.frame, item.micro_batch, segment.is_backward || is_again};
    const bool is_same = !visits.empty() && next.layer >= 0 && visits.back().layer == next.layer &&
                         visits.back().frame == next.frame && visits.back().is_with(next);
    if (is_same) {
      visits.back().end = next.end;
    } else {
      visits.push_back(next);
    }
  }
  return visits;
}

}  // namespace moetune::plan

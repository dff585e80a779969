// Which items belong together for passes that bring something before a layer runs and take it away
// behind it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/plan/program.h"

namespace moetune::plan {

/// One direction of a layer for one micro-batch, or an item outside of layers: from `begin` to
/// before `end`. Where steps are woven those of the other step lie between its items.
struct Visit {
  size_t begin = 0;
  size_t end = 0;
  int32_t layer = -1;
  int32_t frame = -1;
  int32_t micro_batch = -1;
  /// Or what is recomputed for it.
  bool is_backward = false;
  /// The one before it in its step, or whichever began last before its step. What this one needs
  /// is brought from there on.
  std::optional<size_t> before;
  std::vector<size_t> behind;  ///< those whose `before` it is

  /// Of one step.
  [[nodiscard]] bool is_with(const Visit& next) const {
    return micro_batch == next.micro_batch && is_backward == next.is_backward;
  }
};

struct Visits {
  std::vector<Visit> all;                      ///< in the order of their beginnings
  std::vector<std::optional<size_t>> of_item;  ///< by item: whose it is

  [[nodiscard]] std::optional<size_t> begins_at(size_t item) const {
    const std::optional<size_t> visit = of_item[item];
    return visit && all[*visit].begin == item ? visit : std::nullopt;
  }
  [[nodiscard]] std::optional<size_t> ends_with(size_t item) const {
    const std::optional<size_t> visit = of_item[item];
    return visit && all[*visit].end == item + 1 ? visit : std::nullopt;
  }
};

/// Of the items for which `is_visit` holds. Others between them end no visit. Steps of one
/// direction that follow each other are of different micro-batches, or of two virtual stages, which
/// have no layer in common: so visits of one layer that are with each other are of one step.
template <typename IsVisit>
Visits visits_of(const StepProgram& program, IsVisit&& is_visit) {
  Visits visits;
  visits.of_item.resize(program.items.size());
  std::array<std::optional<size_t>, 2> last;  // by direction
  for (size_t i = 0; i < program.items.size(); ++i) {
    const Item& item = program.items[i];
    const Segment& segment = *program.segments[static_cast<size_t>(item.segment)];
    if (item.micro_batch < 0 || !is_visit(item, segment)) continue;
    const bool is_again = !segment.code.empty() && segment.code.front().pass == Pass::recompute;
    Visit next;
    next.begin = i;
    next.end = i + 1;
    next.layer = item.layer;
    next.frame = item.frame;
    next.micro_batch = item.micro_batch;
    next.is_backward = segment.is_backward || is_again;
    std::optional<size_t>& own = last[next.is_backward ? 1 : 0];
    const bool is_in_step = own && visits.all[*own].is_with(next);
    const bool is_same = is_in_step && next.layer >= 0 && visits.all[*own].layer == next.layer &&
                         visits.all[*own].frame == next.frame;
    if (is_same) {
      visits.all[*own].end = next.end;
    } else {
      const size_t number = visits.all.size();
      if (number > 0) next.before = is_in_step ? *own : number - 1;
      if (next.before) visits.all[*next.before].behind.push_back(number);
      visits.all.push_back(std::move(next));
      own = number;
    }
    visits.of_item[i] = own;
  }
  return visits;
}

}  // namespace moetune::plan

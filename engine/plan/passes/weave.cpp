// The pass behind batch-level overlap: the forward of one micro-batch and the backward of another
// take turns, so that the rows of one travel while the other computes. Who takes turns hands over
// where the compute stream would wait for rows on their way. Of two layers with experts:
//   backward  [.. combine]             [experts, dispatch]            [.. combine]
//   forward               [.. dispatch]                   [experts, combine]      ..
// which is Megatron-Core's order (TransformerLayerSchedulePlan). Nothing is changed but the order.
#include <algorithm>

#include "engine/plan/passes/passes.h"

namespace moetune::plan {
namespace {

/// Waits of the compute stream for rows that are exchanged.
std::vector<size_t> row_waits(const Segment& segment) {
  std::vector<bool> is_of_rows(static_cast<size_t>(segment.num_events), false);
  std::vector<size_t> waits;
  bool is_in_flight = false;
  for (size_t i = 0; i < segment.code.size(); ++i) {
    const Instr& instr = segment.code[i];
    if (is_exchange_of_rows(instr)) is_in_flight = true;
    if (instr.event < 0 || instr.device_only) continue;
    const auto event = static_cast<size_t>(instr.event);
    if (instr.verb == Verb::record && instr.stream == Stream::expert) {
      is_of_rows[event] = is_in_flight;
    }
    if (instr.verb == Verb::wait && instr.stream == Stream::compute && is_of_rows[event]) {
      waits.push_back(i);
    }
  }
  return waits;
}

}  // namespace

/// Cut at the first and at the last of those waits: with several chunks each hides the next.
const std::vector<int32_t>& Weaver::pieces_of(int32_t segment) {
  const auto [place, is_new] = pieces_.try_emplace(segment);
  std::vector<int32_t>& pieces = place->second;
  if (!is_new) return pieces;
  const Segment whole = *program_.segments[static_cast<size_t>(segment)];
  std::vector<size_t> cuts = row_waits(whole);
  if (cuts.empty()) return pieces = {segment};
  if (cuts.size() > 2) cuts = {cuts.front(), cuts.back()};
  cuts.push_back(whole.code.size());
  size_t begin = 0;
  for (size_t i = 0; i < cuts.size(); ++i) {
    Segment piece = whole;
    piece.code.assign(whole.code.begin() + static_cast<std::ptrdiff_t>(begin),
                      whole.code.begin() + static_cast<std::ptrdiff_t>(cuts[i]));
    piece.piece = static_cast<int>(i);
    piece.num_pieces = static_cast<int>(cuts.size());
    begin = cuts[i];
    pieces.push_back(static_cast<int32_t>(program_.segments.size()));
    program_.segments.push_back(std::make_shared<const Segment>(std::move(piece)));
  }
  return pieces;
}

/// What runs without handing over.
std::vector<std::vector<Item>> Weaver::runs_of(size_t first, size_t end, bool is_backward) {
  std::vector<std::vector<Item>> runs(1);
  for (size_t i = first; i < end; ++i) {
    Item item = program_.items[i];
    // What is computed again is part of the backward step and not cut.
    if (program_.segments[static_cast<size_t>(item.segment)]->is_backward != is_backward) {
      runs.back().push_back(item);
      continue;
    }
    const std::vector<int32_t> pieces = pieces_of(item.segment);
    for (size_t k = 0; k < pieces.size(); ++k) {
      if (k > 0) runs.emplace_back();
      item.segment = pieces[k];
      runs.back().push_back(item);
    }
  }
  return runs;
}

void Weaver::weave(size_t first, size_t middle) {
  const std::vector<std::vector<Item>> backward = runs_of(middle, program_.items.size(), true);
  const std::vector<std::vector<Item>> forward = runs_of(first, middle, false);
  program_.items.resize(first);
  const auto append = [&](const std::vector<std::vector<Item>>& runs, size_t i) {
    if (i >= runs.size()) return;
    program_.items.insert(program_.items.end(), runs[i].begin(), runs[i].end());
  };
  for (size_t i = 0; i < std::max(backward.size(), forward.size()); ++i) {
    append(backward, i);
    append(forward, i);
  }
}

}  // namespace moetune::plan

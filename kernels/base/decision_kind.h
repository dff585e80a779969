// What a search has decided, in a word: the tuner decides, the store keeps the name, reports and
// lists go by it. It lies here because all of them may include this folder.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "kernels/base/names.h"

namespace moetune::base {

enum class DecisionKind : uint8_t {
  tried,
  kept,
  rejected,
  undecided,  ///< the noise hides whether it gains enough
  wall,       ///< what holds the step back from now on
  pruned,
  note,
};

inline constexpr std::array kDecisionKinds = {
    Named<DecisionKind>{DecisionKind::tried, "tried"},
    Named<DecisionKind>{DecisionKind::kept, "kept"},
    Named<DecisionKind>{DecisionKind::rejected, "rejected"},
    Named<DecisionKind>{DecisionKind::undecided, "undecided"},
    Named<DecisionKind>{DecisionKind::wall, "wall"},
    Named<DecisionKind>{DecisionKind::pruned, "pruned"},
    Named<DecisionKind>{DecisionKind::note, "note"}};

constexpr std::string_view name_of(DecisionKind kind) { return name_in(kDecisionKinds, kind); }
/// Reads what name_of wrote. Another text, which only a foreign hand writes into a database, is a
/// note: nothing was kept or rejected by it.
constexpr DecisionKind decision_kind_of(std::string_view name) {
  return find_in<DecisionKind>(kDecisionKinds, name).value_or(DecisionKind::note);
}

/// Whether it judges a change by its gain.
constexpr bool is_verdict(DecisionKind kind) {
  return kind == DecisionKind::kept || kind == DecisionKind::rejected ||
         kind == DecisionKind::undecided;
}

}  // namespace moetune::base

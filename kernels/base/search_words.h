// The words in which a search is told: where it was, and what it has decided. The tuner says them,
// the store keeps their names, reports and lists go by them. They lie here because all of these may
// include this folder.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "kernels/base/names.h"

namespace moetune::base {

enum class Phase : uint8_t { contract, fit, scale, profile, retune, validate };

inline constexpr std::array kPhases = {
    Named<Phase>{Phase::contract, "contract"}, Named<Phase>{Phase::fit, "fit"},
    Named<Phase>{Phase::scale, "scale"},       Named<Phase>{Phase::profile, "profile"},
    Named<Phase>{Phase::retune, "retune"},     Named<Phase>{Phase::validate, "validate"}};

constexpr std::string_view name_of(Phase phase) { return name_in(kPhases, phase); }

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

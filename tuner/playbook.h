// The playbook: which remedy answers which wall, one row each. A remedy changes one knob; what
// follows from that knob alone (data parallelism from the layout) changes with it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tuner/search_space.h"
#include "tuner/strategy.h"
#include "tuner/walls.h"

namespace moetune::tuner {

/// What a remedy is judged by.
struct Situation {
  const SearchSpace& space;
  const spec::Knobs& knobs;     ///< of the configuration to change
  const TrialOutcome& outcome;  ///< how it ran; empty shares when it did not
};

/// When a row is used: to make a configuration fit, or to make one that runs faster.
enum class Purpose : uint8_t { fit, speed };

struct RemedyRow {
  const char* name;
  Wall wall;
  Purpose purpose;
  const char* knob;
  /// Communication group it relieves; empty: any.
  const char* group;
  bool (*applies)(const Situation&);
  /// Values to try in order; never the current one.
  std::vector<std::string> (*values)(const Situation&);
  const char* why;
};
std::span<const RemedyRow> playbook();

/// One change to try.
struct Remedy {
  const RemedyRow* row = nullptr;
  std::string value;
  spec::Knobs knobs;  ///< the situation's with that one knob changed, completed
};

/// The remedies for a wall in the order to try them: table order, for communication the groups that
/// block longest first. Only knobs that the sweep's space has an axis for.
std::vector<Remedy> remedies_for(Wall wall, Purpose purpose, const Situation& situation);

}  // namespace moetune::tuner

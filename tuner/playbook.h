// The playbook: which remedy answers which wall, one row each. A remedy changes one knob; what
// follows from that knob alone (data parallelism from the layout) changes with it.
#pragma once

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

struct RemedyRow {
  const char* name;
  Wall wall;
  const char* knob;
  /// Communication group it relieves; empty: any.
  const char* group;
  bool (*applies)(const Situation&);
  /// Values to try in order; never the current one.
  std::vector<std::string> (*values)(const Situation&);
  const char* why;  ///< a sentence
};
std::span<const RemedyRow> playbook();

/// Sizes of the grid by which a model that does not fit is spread over more ranks before any other
/// size is changed, the one that costs the step least last.
std::span<const std::string_view> fit_sizes();

/// One change to try.
struct Remedy {
  const RemedyRow* row = nullptr;
  std::string value;
  spec::Knobs knobs;  ///< the situation's with that one knob changed, completed
};

/// The remedies for a wall in the order to try them: table order, for communication the groups that
/// block longest first. Only knobs that the sweep's space has an axis for, and only values that
/// change something.
std::vector<Remedy> remedies_for(Wall wall, const Situation& situation);

}  // namespace moetune::tuner

// Which remedies help against which wall: a table of rows, each changing one knob.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine/spec/knobs.h"
#include "tuner/search_space.h"

namespace moetune::tuner {

/// What is known about the incumbent when a remedy is looked for.
struct Situation {
  std::string wall;                      ///< memory, communication, host, compute
  std::string dominant_group;            ///< ep, cp, dp_cp, edp, pp, ...; may be empty
  std::map<std::string, double> shares;  ///< TrialOutcome::shares
  double memory_used_ratio = 0;          ///< peak over capacity
  spec::Knobs knobs;
};

/// One row of the playbook.
struct RemedyRow {
  const char* name;   ///< such as "overlap expert all-to-all by chunks"
  const char* wall;
  const char* knob;   ///< the one it changes
  const char* why;    ///< a sentence for the report
  bool (*applies)(const Situation&);
  /// Values to try in order, as text, given the space's values; never the current one.
  std::vector<std::string> (*candidates)(const Situation&, const SearchSpace&);
};
std::span<const RemedyRow> playbook();

/// One change to try.
struct Candidate {
  const RemedyRow* remedy = nullptr;
  std::string knob;
  std::string value_before;
  std::string value_after;
  Point point;
};

/// Legal and illegal candidates of the wall's rows in playbook order, one variable changed in each, none twice.
std::vector<Candidate> remedies(const Situation& situation, const SearchSpace& space);

/// Recompute settings of the space from cheap to dear in repeated work: none, norm, moe_act, norm+moe_act, core_attn,
/// experts, ..., full.
std::vector<std::string> recompute_ladder(const SearchSpace& space);

}  // namespace moetune::tuner

// What makes a configuration impossible for the engine that is planned for, and the rules of thumb
// that explain one. Predicates are cheap, their messages are made only when somebody reads them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tuner/planner/run.h"

namespace moetune::tuner::planner {

/// Whom a rule binds.
enum class RuleOf : uint8_t {
  megatron,    ///< what Megatron-Core refuses; others' engines may do it
  any_engine,  ///< sizes that do not divide, or what the machine lacks
};

struct PlanRule {
  std::string_view name;
  bool (*holds)(const PlanRun&);
  std::string (*message)(const PlanRun&);  ///< of a run that breaks it
  RuleOf binds = RuleOf::megatron;
  /// It looks at what a search varies beside sizes: recomputation, loss, FSDP, dispatcher, overlap,
  /// graphs, and what these imply. At sizes it looks only for which of them are above 1. Others
  /// look at none of these choices.
  bool is_of_choices = false;
  /// It holds or not whatever the sizes of the model and the batch are: knobs say it, the machine,
  /// and whether there are experts.
  bool is_of_knobs = false;
};

/// The first rule that a run breaks, null when it is legal.
const PlanRule* broken_rule(const PlanRun& run);
/// Whether it breaks none of those that look at choices.
bool holds_rules_of_choices(const PlanRun& run);
/// All that it breaks.
std::vector<const PlanRule*> broken_rules(const PlanRun& run);
/// The same of the rules that need no sizes. The model may be one of no layers.
std::vector<const PlanRule*> broken_rules_of_knobs(const PlanRun& run);
/// Whether a run breaks a rule that the other holds.
bool breaks_more(const PlanRun& run, const PlanRun& other);

/// Sets what other choices imply: partial graphs beside recomputed experts, the optimizer whose
/// state can be offloaded or kept in fewer bits, what FSDP2 does by itself, no overlap of weights
/// that nobody gathers, delayed gradients of weights where the exchange of experts' rows is
/// overlapped, and the queues of the device.
void complete(const spec::ModelSpec& model, const spec::HardwareSpec& hardware,
              spec::PlanKnobs& knobs);

/// A rule of thumb of people who tune: what it says of a run, never a filter.
struct Thumb {
  std::string_view name;
  std::string_view says;
  /// Whether the rule says anything about the run; else it is left out.
  bool (*applies)(const PlanRun&);
  bool (*agrees)(const PlanRun&);
};
std::span<const Thumb> thumbs();

}  // namespace moetune::tuner::planner

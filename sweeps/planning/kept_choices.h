// What a plan keeps of a command: choices that are fixed, that a dialect cannot be told, that cost
// speed and buy nothing, or that nothing searches.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/spec/dialects/run_config.h"
#include "engine/spec/plan_knobs.h"
#include "tuner/planner/search.h"

namespace moetune::sweeps {

/// A knob that the question fixes, and its value.
struct Fixed {
  const spec::PlanKnobRow* row;
  std::string value;
};

bool is_fixed(std::string_view knob, const std::vector<Fixed>& fixed);

/// Holds what is not searched to what the dialect has words for: knobs that it cannot be told get
/// its default, and are named in the result as "name=value, name=value". Throws base::UsageError
/// for fixed ones.
std::string keep_to_words_of(spec::dialects::Dialect dialect, const std::vector<Fixed>& fixed,
                             tuner::planner::PlanQuestion& question);

/// Undoes what costs a run of Megatron-Core speed and buys nothing: switches that a command has off
/// or left out, and layers of its ends, which hold for its own stages.
void undo_costly_choices(spec::PlanKnobs& knobs);

/// A command's configuration without what it sends to the host's memory: without activations, the
/// optimizer's state, and both, as far as it has them and they are not fixed.
std::vector<spec::PlanKnobs> without_copies(const spec::PlanKnobs& base,
                                            const std::vector<Fixed>& fixed);

/// Whether arguments refuse Transformer Engine's loss, as unstable: those of Megatron-LM do
/// (megatron/training/arguments.py since core 0.19).
bool refuses_te_loss(std::optional<spec::dialects::Dialect> dialect);

/// Performance choices that a command says and a plan of the question keeps, as nothing else is
/// searched, where they are not Megatron's own: "main_grads=bf16, tp_comm_overlap=true".
std::string kept_text(const tuner::planner::PlanQuestion& question,
                      const spec::dialects::RunConfig& words,
                      std::optional<spec::dialects::Dialect> dialect,
                      const std::vector<Fixed>& fixed);

}  // namespace moetune::sweeps

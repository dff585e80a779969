// Names and values that are no knobs of the engine, and what to say of them: what was likely meant,
// or that only plans know it. Asked from the tables of knobs, of plans' knobs and of concepts.
#pragma once

#include <string>
#include <string_view>

#include "engine/spec/json_reader.h"
#include "engine/spec/knobs.h"

namespace moetune::spec {

/// The knob that is meant by a name that is none: by "tp", by a flag of Megatron-LM, by a knob of
/// plans that has the engine's under another name ("exp_avg"), or by a misspelt name. Empty: none.
std::string knob_meant_by(std::string_view name);

/// What to say of a knob of plans, or of a choice that plans know by Megatron-LM's name, that the
/// engine has not: that it is not run yet, with the rule. Empty for any other name.
std::string engine_knob_gap(std::string_view name);

/// The same for one value of a knob that is none of its values, or the value that is meant by
/// Megatron-LM's name of it; empty for any other text.
std::string other_value_hint(const KnobRow& row, std::string_view value);

/// Both, for a reader of an object whose keys are knobs.
inline constexpr OtherKeys kOtherKnobs{&knob_meant_by, &engine_knob_gap};

}  // namespace moetune::spec

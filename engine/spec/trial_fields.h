// The parts of a trial file's table that a sweep file shares, for reading and for the page.
#pragma once

#include <span>
#include <vector>

#include "engine/spec/fields.h"
#include "engine/spec/trial_spec.h"

namespace moetune::spec {

/// Of what a miniature stands for, all but model and hardware.
std::span<const Field<StandsFor>> stands_for_sizes();

/// model, hardware, knobs and what a miniature stands for. What is wrong goes to `problems`.
void read_trial_parts(JsonReader& reader, TrialSpec& spec, Problems& problems);
/// The recipe, the data, the modes and the steps, with what they demand of each other.
void read_trial_run(JsonReader& reader, TrialSpec& spec, Problems& problems);
/// What a sweep sets for its trials: routing and reference.
void read_trial_of_sweep(JsonReader& reader, TrialSpec& spec, Problems& problems);

std::vector<FieldPage> trial_part_pages();
std::vector<FieldPage> trial_run_pages();
/// All keys of a trial file.
std::vector<FieldPage> trial_pages();

}  // namespace moetune::spec

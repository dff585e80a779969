// Steps of which no line can be read, since another rank's words stand in it or it never came: told
// in notes, so that figures of the other steps are not taken for those of all.
#pragma once

#include "sweeps/runs/run_facts.h"
#include "sweeps/runs/run_judgement.h"

namespace moetune::sweeps {

/// Adds the notes to the facts, whose steps and status have to be there. Where no line about a step
/// can be read at all though some began, a run that seems to have ended well has the status
/// unknown.
void note_unread_steps(const AttemptParts& parts, RunFacts& facts);

}  // namespace moetune::sweeps

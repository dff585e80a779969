// Why the winner won, in three sentences out of the stored decisions and trials.
#pragma once

#include <string>

#include "reports/context.h"

namespace moetune::reports {

/// The walls that the search met, the remedies that were kept with what each gained, and what the
/// winner beat: HTML, a sentence each. Empty where the trial shown is not the sweep's own winner,
/// or nothing has been decided yet.
std::string winner_reason(const Context& context, const store::TrialRow& winner);

}  // namespace moetune::reports

// What a hunt found, in words: the verdict as a sentence, and the numbers in it.
#pragma once

#include <optional>
#include <string>

#include "reports/hunts.h"

namespace moetune::reports {

/// "+4.1 %" from 0.041; also for numbers that would fill a line.
std::string change_text(double ratio);
/// "97.4 %" from 0.974. HTML, as all of this file.
std::string share_text(double probability);
/// "2.0 %", without a sign; a dash when not known.
std::string plain_ratio(std::optional<double> ratio);
/// "1 min 05 s"; a dash when not known.
std::string duration_text(std::optional<double> seconds);
/// "+3.6 % to +4.6 %", empty when not known.
std::string interval_text(const Effect& effect);

/// What the culprit itself says, else what the hunt's list of commits says of its position.
HuntCommit commit_of(const Hunt& hunt, const Culprit& culprit);

/// The verdict in a sentence; with several culprits, one for each.
std::string answer_html(const Hunt& hunt);

}  // namespace moetune::reports

// The top of the page: what it is about, when and where it was made, and whether its times were
// measured on that machine or emulated.
#pragma once

#include <string>

#include "reports/context.h"

namespace moetune::reports {

/// Plain text.
std::string title_of(const Context& context);
/// Model, hardware and number of trials; for a page of hunts, the repository. Plain text.
std::string subtitle_of(const Context& context);
/// HTML: "2026-11-23 13:04 to 13:06 UTC · vm, AMD EPYC, 2 cores · emulated, virtual time". What is
/// not known is left out.
std::string origin_of(const Context& context);

}  // namespace moetune::reports

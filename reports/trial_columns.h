// All trials of a sweep as columns, for the scripts of the page: so packed that ten thousand of
// them take about a megabyte. The history, the map of memory and throughput, the comparison of two
// trials and the table draw from it.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "reports/context.h"

namespace moetune::reports {

/// More trials than this are not in a page at all, the least telling ones.
constexpr size_t kMostColumnTrials = 20'000;
/// What the titles and reasons of all of them take at most, about, in bytes: where they are more,
/// each is shortened.
constexpr size_t kMostColumnTextBytes = 400'000;

/// {"num", "columns", "knobs": [{"name", "label", "values": a column}], "comparedWith"}: the number
/// of trials of the sweep, and the ordinal of that whose knobs the table leaves out. A column is
///  - numbers {"unit", "at"}: "at" times "unit", to about six digits; 0 is not known,
///  - names {"names", "at"}: positions in "names", each one digit to the base 36 of a text, or, of
///    more than 36 names, a list of numbers.
/// "flags" is such a digit: 1 kept, 2 the reference run, 4 the winner, 8 the start, 16 cleared.
nlohmann::json trial_columns(const Context& context);

}  // namespace moetune::reports

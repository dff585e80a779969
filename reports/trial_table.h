// What the table of all trials says of one: as a row of HTML for the most telling trials, and as
// data for the scripts, which make the rows of the others.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "profiler/store/store.h"
#include "reports/context.h"

namespace moetune::reports {

/// Trials that are rows of HTML; a script makes those of the others when they are asked for.
constexpr size_t kMostTableRows = 200;
/// Digits of a trial's hash that are shown.
constexpr size_t kHashDigits = 8;

/// What a trial was for, and why it failed or what was made of it. Plain text.
struct TrialStory {
  std::string title;
  std::string why;
};
TrialStory story_of(const Context& context, const store::TrialRow& trial);

/// How often a trial was measured, and, in a sweep that ran in several environments, in which of
/// them what counts was: "2, build 1". Plain text; empty: never.
std::string runs_text(const Context& context, const store::TrialRow& trial);

/// What the other trials' knobs are told against; null where there is none.
const store::TrialRow* compared_with(const Context& context);

/// "ep" of a size of the process grid, empty for any other knob.
std::string_view short_name_of(const std::string& knob);

}  // namespace moetune::reports

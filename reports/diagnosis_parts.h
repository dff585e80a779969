// Pieces of HTML that the pages of a diagnosis and of a comparison share.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "reports/diagnosis_page.h"
#include "reports/step_figures.h"

namespace moetune::reports {

/// Windows that are bars and rows; a run of thousands of ranks has more than anybody reads.
inline constexpr size_t kMostWindows = 64;
/// Of a text from a log or a trace.
inline constexpr size_t kMostToldBytes = 2000;

/// A text of somebody else, cut and escaped.
std::string told(const std::string& text);
/// "31.2 %". Plain text.
std::string ratio_text(double ratio);
/// A bar beside a figure, from 0 to 1.
std::string meter(double ratio);
/// A window as a bar; its parts add up to the window.
BudgetBar bar_of(const DiagnosedBar& window);
/// Names and what is said under each.
std::string fact_list(const std::vector<NamedLine>& facts);
/// Under a title; nothing without notes. The first hundred.
std::string note_list(const std::vector<std::string>& notes);

}  // namespace moetune::reports

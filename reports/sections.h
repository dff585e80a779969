// The section table of the report: a query, a title and the function that turns the answer into
// HTML, one row each.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "profiler/store/store.h"
#include "reports/context.h"
#include "reports/rows.h"

namespace moetune::reports {

/// What a section renders from.
struct SectionInput {
  const Context& context;
  const Rows& rows;  ///< the answer of the section's query
};

struct SectionRow {
  std::string_view id;  ///< anchor and name of the SQL file
  std::string_view title;
  std::string_view short_title;  ///< in the navigation
  std::string_view lead;         ///< one sentence under the title: how to read it
  const std::string_view* sql;   ///< null: all that it shows is in the context
  /// HTML of the section's body. Empty: the section has nothing to show and is left out.
  std::string (*render)(const SectionInput&);
  bool needs_sweep = true;  ///< false: also on the page of a database that holds no sweep
};

/// In the order of the page.
std::span<const SectionRow> section_table();

std::string render_verdict(const SectionInput& input);
std::string render_story(const SectionInput& input);
std::string render_history(const SectionInput& input);
std::string render_pareto(const SectionInput& input);
std::string render_knobs(const SectionInput& input);
std::string render_compare(const SectionInput& input);
std::string render_memory(const SectionInput& input);
std::string render_budget(const SectionInput& input);
std::string render_evidence(const SectionInput& input);
std::string render_roofline(const SectionInput& input);
std::string render_timeline(const SectionInput& input);
std::string render_prediction(const SectionInput& input);
std::string render_loss(const SectionInput& input);
std::string render_bisect(const SectionInput& input);
std::string render_trials(const SectionInput& input);
std::string render_provenance(const SectionInput& input);

/// A figure that a script fills: the chart's place, what it shows (read aloud in its stead), and
/// the data below it. `table` is finished HTML, folded; `description` is escaped here.
std::string figure(std::string_view id, std::string_view description, std::string_view controls,
                   std::string_view table);

/// A figure of a `<dl class="cards">`. All three are finished HTML.
std::string card(std::string_view label, const std::string& value, const std::string& note);

/// A text to copy, with a button; `id` and `title` are ours, `text` is escaped here.
std::string copy_box(std::string_view id, std::string_view title, const std::string& text);

/// copy_box for a command from the database, which may be hostile: without a copy button unless it
/// is a plain line (html.h).
std::string command_box(std::string_view id, std::string_view title, const std::string& command);

/// A text that is only to be read: the same without a button.
std::string shown_box(std::string_view id, std::string_view title, const std::string& text);

/// HTML note that only `most` trials are shown; empty if that is all of them.
std::string shown_note(const Context& context, size_t most);

/// Why the trace of a trial is empty or incomplete, as a notice; nothing when its ranks said
/// nothing.
std::string trace_notice(const Context& context, const store::TrialRow* trial);

}  // namespace moetune::reports

// Section "trials": every trial as a row, with the knobs that differ as columns and the reason of
// each failure.
#include <fmt/format.h>

#include <map>
#include <set>

#include "reports/context.h"
#include "reports/format.h"
#include "reports/html.h"
#include "reports/sections.h"

namespace moetune::reports {
namespace {

std::string filters(const Context& context) {
  std::set<std::string> statuses;
  std::set<std::string> phases;
  for (const store::TrialRow& trial : context.trials) {
    statuses.insert(trial.status);
    phases.insert(trial.phase);
  }
  const auto options = [](const std::set<std::string>& values) {
    std::string html = "<option value=\"\">all</option>";
    for (const std::string& value : values) {
      html += fmt::format("<option>{}</option>", escape(value));
    }
    return html;
  };
  return fmt::format(
      "<div class=\"controls needs-script\" id=\"trial-filter\"><label>Status <select "
      "data-filter=\"status\">{}</select></label> <label>Phase <select data-filter=\"phase\">{}"
      "</select></label> <label>Text <input type=\"search\" data-filter=\"text\" "
      "placeholder=\"knob, reason, hash\"></label> <output id=\"trial-count\"></output></div>\n",
      options(statuses), options(phases));
}

// The sizes of the process grid take more room than their values: their usual short names.
std::string knob_head(const std::string& name) {
  for (const LayoutSize& size : kLayoutSizes) {
    if (name != size.knob) continue;
    return fmt::format("<th class=\"knob\"><abbr title=\"{}\">{}</abbr></th>", name, size.label);
  }
  return fmt::format("<th class=\"knob\">{}</th>", breakable(name));
}

/// What the section's query says about a trial.
struct Story {
  std::string title;
  std::string told;
};

std::string trace_notes_of(const Context& context, const store::TrialRow& trial) {
  std::string html;
  if (const auto found = context.trace_notes.find(trial.id); found != context.trace_notes.end()) {
    for (const std::string& note : found->second) {
      html += fmt::format(" <span class=\"note\">Trace: {}</span>",
                          escape(shortened(note, kMostNoteBytes)));
    }
  }
  return html;
}

// How often a trial was measured, and, in a sweep that ran in several environments, in which of
// them what counts was.
std::string runs_cell(const Context& context, const store::TrialRow& trial) {
  const std::vector<store::MeasurementRow> runs = context.counted_runs(trial);
  if (runs.empty()) return "<td class=\"num\">–</td>";
  std::string where;
  if (context.environments.size() > 1) {
    const store::EnvironmentRow* environment = context.environment_of(runs.front());
    where = environment == nullptr ? ", build unknown"
                                   : fmt::format(", build {}", environment->ordinal);
  }
  return fmt::format("<td class=\"num\" data-value=\"{0}\">{0}{1}</td>", runs.size(), where);
}

std::string row_of(const Context& context, const store::TrialRow& trial, const Story& story) {
  const bool is_winner = &trial == context.at(context.winner);
  std::string marks;
  if (is_winner) {
    marks += " <span class=\"badge mark\">winner</span>";
  }
  if (trial.is_baseline) {
    marks += " <span class=\"badge mark\">start</span>";
  }
  std::string html = fmt::format(
      "<tr id=\"trial-{}\" data-status=\"{}\" data-phase=\"{}\"{}><td class=\"num\" "
      "data-value=\"{}\">{}{}</td><td>{}</td><td>{}</td><td>{}</td>",
      trial.ordinal, escape(trial.status), escape(trial.phase),
      is_winner ? " class=\"winner\"" : "", trial.ordinal, trial.ordinal, marks,
      status_badge(trial.status), phase_badge(trial.phase), wall_badge(trial.wall));
  html += number_cell(as_double(trial.step_ns), ns_text(trial.step_ns));
  html += number_cell(trial.tokens_per_s, count_text(trial.tokens_per_s));
  html += number_cell(as_double(trial.peak_bytes), bytes_text(trial.peak_bytes));
  html += runs_cell(context, trial);
  const std::string& why = trial.reason.empty() ? story.told : trial.reason;
  html += fmt::format("<td class=\"why\">{}{}{}</td>",
                      story.title.empty() ? "" : fmt::format("<b>{}</b> ", escape(story.title)),
                      story.title.empty() ? escape_or_dash(why) : escape(why),
                      trace_notes_of(context, trial));
  for (const std::string& knob : context.varying_knobs) {
    html += fmt::format("<td>{}</td>", breakable(knob_of(trial, knob)));
  }
  return html +
         fmt::format("<td><code>{}</code></td></tr>\n", escape(trial.spec_hash.substr(0, 8)));
}

}  // namespace

std::string render_trials(const SectionInput& input) {
  const Context& context = input.context;
  if (context.trials.empty()) {
    return "<p>No trial yet.</p>\n";
  }
  std::map<int64_t, Story> stories;
  for (size_t i = 0; i < input.rows.size(); ++i) {
    stories[input.rows.integer(i, "id").value_or(0)] = {input.rows.text(i, "title"),
                                                        input.rows.text(i, "told")};
  }
  std::string html = filters(context);
  html +=
      "<div class=\"scroll\"><table class=\"trials\" id=\"trial-table\"><thead><tr>"
      "<th class=\"num\">#</th><th>status</th><th>phase</th><th>wall</th><th "
      "class=\"num\">step</th>"
      "<th class=\"num\">tokens/s</th><th class=\"num\">peak</th><th class=\"num\">runs</th>"
      "<th>what it was for, or why it failed</th>";
  for (const std::string& knob : context.varying_knobs) {
    html += knob_head(knob);
  }
  html += "<th>spec</th></tr></thead>\n<tbody>\n";
  for (const store::TrialRow& trial : context.trials) {
    html += row_of(context, trial, stories[trial.id]);
  }
  return html + "</tbody></table></div>\n";
}

}  // namespace moetune::reports

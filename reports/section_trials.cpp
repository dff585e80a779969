// Section "trials": every trial as a row, with the knobs that differ as columns and the reason of
// each failure.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "profiler/store/verdict.h"
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

const LayoutSize* layout_size(const std::string& knob) {
  const auto* found =
      std::ranges::find_if(kLayoutSizes, [&](const LayoutSize& size) { return knob == size.knob; });
  return found == std::end(kLayoutSizes) ? nullptr : found;
}

// What the other trials' knobs are told against.
const store::TrialRow* compared_with(const Context& context) {
  const store::TrialRow* first = context.at(context.first_fit);
  return first == nullptr ? context.at(context.baseline) : first;
}

// The sizes of the process grid have columns of their own, under their usual short names; of all
// other knobs a trial tells those that are not as in the first that fitted, which tells them all.
std::string knob_heads(const Context& context) {
  std::string html;
  size_t num_others = 0;
  for (const std::string& name : context.varying_knobs) {
    const LayoutSize* size = layout_size(name);
    num_others += size == nullptr ? 1 : 0;
    if (size == nullptr) continue;
    html += fmt::format("<th class=\"num\"><abbr title=\"{}, {}\">{}</abbr></th>", name,
                        size->words, size->label);
  }
  if (num_others == 0) return html;
  const store::TrialRow* other = compared_with(context);
  return html + (other == nullptr
                     ? "<th>other knobs</th>"
                     : fmt::format("<th>other knobs, where not as in #{}</th>", other->ordinal));
}

std::string knob_cells(const Context& context, const store::TrialRow& trial) {
  std::string sizes;
  std::string others;
  size_t num_others = 0;
  const store::TrialRow* other = compared_with(context);
  for (const std::string& name : context.varying_knobs) {
    const std::string value = knob_of(trial, name);
    if (layout_size(name) != nullptr) {
      sizes += fmt::format("<td class=\"num\">{}</td>", escape_or_dash(value));
      continue;
    }
    ++num_others;
    if (other != nullptr && other != &trial && knob_of(*other, name) == value) continue;
    others += fmt::format("{}{} <b>{}</b>", others.empty() ? "" : ", ", breakable(name),
                          breakable(value));
  }
  return sizes + (num_others == 0 ? "" : fmt::format("<td class=\"knobs\">{}</td>", others));
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

std::string row_of(const Context& context, const store::TrialRow& trial, const Story& story,
                   bool is_cleared) {
  const bool is_winner = context.is_winner(trial);
  std::string marks;
  if (is_winner) {
    marks += " <span class=\"badge mark\">winner</span>";
  } else if (&trial == context.at(context.shown)) {
    marks += " <span class=\"badge mark\">shown</span>";
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
  std::string_view why = trial.reason.empty() ? story.told : trial.reason;
  // "scale: dp 4, ep 2" and "dp 4, ep 2: 6.2 % slower": what it was is said once.
  const size_t colon = why.find(": ");
  if (colon != std::string_view::npos && story.title.ends_with(why.substr(0, colon))) {
    why.remove_prefix(colon + 2);
  }
  const std::string cleared =
      is_cleared ? fmt::format("; <b>{}</b>", store::kClearedText) : std::string();
  html += fmt::format("<td class=\"why\">{}{}{}</td>",
                      story.title.empty() ? "" : fmt::format("<b>{}</b> ", escape(story.title)),
                      story.title.empty() ? escape_or_dash(why) : escape(why),
                      cleared + trace_notes_of(context, trial));
  return html + knob_cells(context, trial) +
         fmt::format("<td class=\"spec\"><code>{}</code></td></tr>\n",
                     escape(trial.spec_hash.substr(0, 8)));
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
  html += knob_heads(context) + "<th class=\"spec\">spec</th></tr></thead>\n<tbody>\n";
  const std::set<int64_t> cleared = store::cleared_trials(context.decisions);
  for (const store::TrialRow& trial : context.trials) {
    html += row_of(context, trial, stories[trial.id], cleared.contains(trial.id));
  }
  return html + "</tbody></table></div>\n";
}

}  // namespace moetune::reports

// Section "trials": every trial as a row, with the knobs that differ as columns and the reason of
// each failure.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "profiler/store/trial_statuses.h"
#include "profiler/store/verdict.h"
#include "reports/context.h"
#include "reports/format.h"
#include "reports/html.h"
#include "reports/sections.h"
#include "reports/trial_columns.h"
#include "reports/trial_table.h"

namespace moetune::reports {
namespace {

std::string filters(const Context& context) {
  std::set<std::string> statuses;
  std::set<std::string> phases;
  std::set<std::string> walls;
  for (const store::TrialRow& trial : context.trials) {
    statuses.insert(trial.status);
    phases.insert(trial.phase);
    if (!trial.wall.empty()) walls.insert(trial.wall);
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
      "</select></label> <label>Wall <select data-filter=\"wall\">{}</select></label> <label>Text "
      "<input type=\"search\" data-filter=\"text\" placeholder=\"knob, reason, hash\"></label> "
      "<output id=\"trial-count\"></output></div>\n",
      options(statuses), options(phases), options(walls));
}

const LayoutSize* layout_size(const std::string& knob) {
  const auto* found =
      std::ranges::find_if(kLayoutSizes, [&](const LayoutSize& size) { return knob == size.knob; });
  return found == std::end(kLayoutSizes) ? nullptr : found;
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
    html += fmt::format(
        "<th class=\"num\" data-key=\"knob\" data-knob=\"{0}\"><abbr title=\"{0}, {1}\">{2}</abbr>"
        "</th>",
        name, size->words, size->label);
  }
  if (num_others == 0) return html;
  const store::TrialRow* other = compared_with(context);
  return html + (other == nullptr
                     ? "<th data-key=\"knobs\">other knobs</th>"
                     : fmt::format("<th data-key=\"knobs\">other knobs, where not as in #{}</th>",
                                   other->ordinal));
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

// Of a sweep with more trials than the table has rows.
std::string beyond_note(const Context& context, size_t num_rows) {
  const size_t num = context.trials.size();
  if (num_rows >= num) return "";
  const std::string lost =
      num <= kMostColumnTrials
          ? ""
          : fmt::format(" {} are in the database only: <code>moetune ls</code> lists them.",
                        num - kMostColumnTrials);
  return fmt::format(
      "<p class=\"note\">Without scripts, {} of {} trials stand here: the winner, the start, what "
      "was kept, then the fastest. With them, lists and search find the others too.{}</p>\n",
      num_rows, num, lost);
}

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

// What never ran, and is no landmark of the sweep: left out on paper, where rows cost pages.
bool is_folded(const Context& context, const store::TrialRow& trial) {
  return store::never_ran(trial.status) && !trial.is_baseline && !context.is_winner(trial) &&
         &trial != context.at(context.shown);
}

std::string folded_note(const Context& context, const std::vector<size_t>& chosen) {
  size_t num_pruned = 0;
  size_t num_invalid = 0;
  for (const size_t position : chosen) {
    const store::TrialRow& trial = context.trials[position];
    if (!is_folded(context, trial)) continue;
    ++(trial.status == store::kTrialPruned ? num_pruned : num_invalid);
  }
  if (num_pruned + num_invalid == 0) return "";
  return fmt::format(
      "<p class=\"note on-paper\">Not on paper, but in the page: {} pruned (ruled out by "
      "prediction) and {} invalid (breaks a rule), which did not run.</p>\n",
      num_pruned, num_invalid);
}

std::string row_of(const Context& context, const store::TrialRow& trial, bool is_cleared) {
  const bool is_winner = context.is_winner(trial);
  std::string marks;
  if (is_winner) {
    marks += fmt::format(" <span class=\"badge mark\">{}</span>",
                         context.is_refused ? "not validated" : "winner");
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
      context.has_won(trial)      ? " class=\"winner\""
      : is_folded(context, trial) ? " class=\"folded\""
                                  : "",
      trial.ordinal, trial.ordinal, marks, status_badge(trial.status), phase_badge(trial.phase),
      wall_badge(trial.wall));
  html += number_cell(as_double(trial.step_ns), ns_text(trial.step_ns));
  html += number_cell(trial.tokens_per_s, count_text(trial.tokens_per_s));
  html += number_cell(as_double(trial.peak_bytes), bytes_text(trial.peak_bytes));
  html += fmt::format("<td class=\"num\">{}</td>", escape_or_dash(runs_text(context, trial)));
  const TrialStory story = story_of(context, trial);
  const std::string cleared =
      is_cleared ? fmt::format("; <b>{}</b>", store::kClearedText) : std::string();
  html += fmt::format("<td class=\"why\">{}{}{}</td>",
                      story.title.empty() ? "" : fmt::format("<b>{}</b> ", escape(story.title)),
                      story.title.empty() ? escape_or_dash(story.why) : escape(story.why),
                      cleared + trace_notes_of(context, trial));
  return html + knob_cells(context, trial) +
         fmt::format("<td class=\"spec\"><code>{}</code></td></tr>\n",
                     escape(trial.spec_hash.substr(0, kHashDigits)));
}

}  // namespace

TrialStory story_of(const Context& context, const store::TrialRow& trial) {
  TrialStory story;
  if (const auto title = context.titles.find(trial.id); title != context.titles.end()) {
    story.title = title->second;
  }
  const auto verdict = context.verdicts.find(trial.id);
  story.why = !trial.reason.empty()               ? trial.reason
              : verdict == context.verdicts.end() ? ""
                                                  : verdict->second;
  // "scale: dp 4, ep 2" and "dp 4, ep 2: 6.2 % slower": what it was is said once.
  const size_t colon = story.why.find(": ");
  if (colon != std::string::npos &&
      story.title.ends_with(std::string_view(story.why).substr(0, colon))) {
    story.why.erase(0, colon + 2);
  }
  return story;
}

std::string runs_text(const Context& context, const store::TrialRow& trial) {
  const std::vector<store::MeasurementRow> runs = context.counted_runs(trial);
  if (runs.empty()) return "";
  if (context.environments.size() < 2) return fmt::format("{}", runs.size());
  const store::EnvironmentRow* environment = context.environment_of(runs.front());
  return environment == nullptr ? fmt::format("{}, build unknown", runs.size())
                                : fmt::format("{}, build {}", runs.size(), environment->ordinal);
}

const store::TrialRow* compared_with(const Context& context) {
  const store::TrialRow* first = context.at(context.first_fit);
  return first == nullptr ? context.at(context.baseline) : first;
}

std::string_view short_name_of(const std::string& knob) {
  const LayoutSize* size = layout_size(knob);
  return size == nullptr ? "" : size->label;
}

std::string render_trials(const SectionInput& input) {
  const Context& context = input.context;
  if (context.trials.empty()) {
    return "<p>No trial yet.</p>\n";
  }
  const std::vector<size_t> chosen = context.most_telling(kMostTableRows);
  std::string html =
      filters(context) + beyond_note(context, chosen.size()) + folded_note(context, chosen);
  html +=
      "<div class=\"scroll\"><table class=\"trials\" id=\"trial-table\"><thead><tr>"
      "<th class=\"num\" data-key=\"n\">#</th><th data-key=\"status\">status</th><th "
      "data-key=\"phase\">phase</th><th data-key=\"wall\">wall</th><th class=\"num\" "
      "data-key=\"step\">step</th><th class=\"num\" data-key=\"tokens\">tokens/s</th><th "
      "class=\"num\" data-key=\"peak\">peak</th><th class=\"num\" data-key=\"runs\">runs</th><th "
      "data-key=\"why\">what it was for, or why it failed</th>";
  html += knob_heads(context) +
          "<th class=\"spec\" data-key=\"spec\">spec</th></tr></thead>\n<tbody>\n";
  const std::set<int64_t> cleared = store::cleared_trials(context.decisions);
  for (const size_t position : chosen) {
    const store::TrialRow& trial = context.trials[position];
    html += row_of(context, trial, cleared.contains(trial.id));
  }
  return html +
         "</tbody></table></div>\n<p class=\"needs-script\"><button type=\"button\" "
         "id=\"trial-more\" hidden>More</button></p>\n";
}

}  // namespace moetune::reports

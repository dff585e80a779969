// The rows of the section table. A new section is one .sql file, one render function and one row
// here.
#include "reports/sections.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "embedded/kBisectSql.h"
#include "embedded/kBudgetSql.h"
#include "embedded/kEvidenceSql.h"
#include "embedded/kLossSql.h"
#include "embedded/kMemorySql.h"
#include "embedded/kPredictionSql.h"
#include "embedded/kProvenanceSql.h"
#include "embedded/kRooflineSql.h"
#include "embedded/kStorySql.h"
#include "embedded/kTimelineSql.h"
#include "embedded/kVerdictSql.h"
#include "reports/format.h"
#include "reports/html.h"

namespace moetune::reports {
namespace {

constexpr auto kSections = std::to_array<SectionRow>({
    {"verdict", "Verdict", "Verdict", "", &kVerdictSql, render_verdict},
    {"story", "The walls, one after the other", "Walls",
     "What stood in the way, what was changed, and what that gained. Fixing one wall exposes the "
     "next.",
     &kStorySql, render_story},
    {"history", "Trial history", "History",
     "Every trial in order. The line is what the search held on to; trials without a time stand "
     "in "
     "the strip below.",
     nullptr, render_history},
    {"pareto", "Memory and throughput", "Front",
     "What more memory buys: up is faster, left is smaller.", nullptr, render_pareto},
    {"knobs", "What each knob was worth", "Knobs",
     "Trials that differ in one knob alone say what it does.", nullptr, render_knobs},
    {"compare", "Two trials side by side", "Compare", "What differs between them, and what it did.",
     nullptr, render_compare},
    {"memory", "Memory per rank", "Memory",
     "What the highest moment of each rank was made of, against the capacity of a device. Hatched: "
     "what the memory model had predicted.",
     &kMemorySql, render_memory},
    {"budget", "Where a step goes", "Step budget",
     "The traced step, mean over the ranks. Every nanosecond is booked once, so that the parts add "
     "up "
     "to the step.",
     &kBudgetSql, render_budget},
    {"evidence", "Evidence of the wall", "Evidence",
     "What the verdict rests on: three numbers of each communication, ceilings, the chain that "
     "decides, and the ranks.",
     &kEvidenceSql, render_evidence},
    {"roofline", "Operations against the roofline", "Roofline",
     "How fast each operation of a traced step computed, beside what the hardware lets it reach.",
     &kRooflineSql, render_roofline},
    {"timeline", "Timeline of one step", "Timeline",
     "One traced step: the host's launches and each stream of the device. In pale: waiting for a "
     "participant.",
     &kTimelineSql, render_timeline},
    {"prediction", "Prediction check", "Predictions",
     "What the models said before a trial ran, against what was measured. On the line: right.",
     &kPredictionSql, render_prediction},
    {"loss", "Training loss", "Loss",
     "The run learns: cross-entropy of each step, in nats per token.", &kLossSql, render_loss},
    {"bisect", "What changed it", "Bisect",
     "What <code>moetune bisect</code> found between a good and a bad end, the newest hunt first.",
     &kBisectSql, render_bisect, false},
    {"trials", "All trials", "Trials", "Failures are results too: each says why.", nullptr,
     render_trials},
    {"provenance", "Provenance", "Provenance",
     "What is needed to judge and to repeat these figures.", &kProvenanceSql, render_provenance},
});

}  // namespace

std::span<const SectionRow> section_table() { return kSections; }

std::string figure(std::string_view id, std::string_view description, std::string_view controls,
                   std::string_view table) {
  std::string html = fmt::format("<figure id=\"figure-{}\">\n", id);
  if (!controls.empty()) {
    html += fmt::format("<div class=\"controls needs-script\">{}</div>\n", controls);
  }
  html += fmt::format(
      "<div class=\"chart\" id=\"chart-{0}\" role=\"img\" aria-labelledby=\"title-{0}\" "
      "aria-describedby=\"desc-{0}\"></div>\n<figcaption id=\"desc-{0}\">{1}</figcaption>\n",
      id, escape(description));
  if (!table.empty()) {
    html += fmt::format(
        "<details class=\"data\"><summary>The data as a table</summary>\n{}</details>\n", table);
  }
  return html + "</figure>\n";
}

std::string card(std::string_view label, const std::string& value, const std::string& note) {
  return fmt::format(
      "<div class=\"card\"><dt>{}</dt><dd><span class=\"value\">{}</span>"
      "<span class=\"note\">{}</span></dd></div>\n",
      label, value, note);
}

std::string copy_box(std::string_view id, std::string_view title, const std::string& text) {
  return fmt::format(
      "<div class=\"copy\"><div class=\"copy-head\"><span>{1}</span><button type=\"button\" "
      "class=\"needs-script\" data-copy=\"{0}\">Copy</button></div><pre id=\"{0}\" "
      "tabindex=\"0\">{2}</pre></div>\n",
      id, title, escape(text));
}

std::string command_box(std::string_view id, std::string_view title, const std::string& command) {
  if (is_plain_line(command)) return copy_box(id, title, command);
  std::string line = command;
  // Neither is it copied by hand as more than the one line that is seen.
  std::ranges::replace_if(
      line, [](char c) { return c == '\n' || c == '\t'; }, '\x7f');
  return shown_box(id, title, line) +
         "<p class=\"note\">The stored command holds control characters, shown here as �: no shell "
         "should be given it.</p>\n";
}

std::string shown_box(std::string_view id, std::string_view title, const std::string& text) {
  return fmt::format(
      "<div class=\"copy\"><div class=\"copy-head\"><span>{}</span></div><pre id=\"{}\" "
      "tabindex=\"0\">{}</pre></div>\n",
      title, id, escape(text));
}

std::string shown_note(const Context& context, size_t most) {
  if (context.trials.size() <= most) return "";
  return fmt::format(
      "<p class=\"note\">Of the {} trials, the {} that tell most stand here: the winner, the "
      "start, what was kept, then the fastest. <code>moetune show</code> tells any other.</p>\n",
      context.trials.size(), most);
}

std::string trace_notice(const Context& context, const store::TrialRow* trial) {
  const auto found =
      trial == nullptr ? context.trace_notes.end() : context.trace_notes.find(trial->id);
  if (found == context.trace_notes.end()) {
    return "";
  }
  std::string html;
  for (const std::string& note : found->second) {
    html += fmt::format("<p class=\"notice\">The trace of trial {}: {}</p>\n",
                        trial_link(trial->ordinal), escape(shortened(note, kMostNoteBytes)));
  }
  return html;
}

}  // namespace moetune::reports

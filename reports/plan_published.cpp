// Published runs beside the user's: what they reached, and what lies between the two.
#include <fmt/format.h>

#include "reports/format.h"
#include "reports/html.h"
#include "reports/plan_sections.h"
#include "reports/sections.h"

namespace moetune::reports {
namespace {

std::string list_of(const std::vector<std::string>& texts) {
  if (texts.empty()) return "";
  std::string html = "<ul class=\"facts\">\n";
  for (const std::string& text : texts) html += "<li>" + escape(text) + "</li>\n";
  return html + "</ul>\n";
}

std::string figures_of(const PlanPublished& run) {
  return "<div class=\"scroll\"><table class=\"compact\"><thead><tr><th></th><th "
         "class=\"num\">TFLOP/s</th><th class=\"num\">tokens/s</th><th></th></tr></thead><tbody>\n"
         "<tr><td>published</td>" +
         number_cell(run.tflops, run.tflops ? speed_number(*run.tflops) : "–") +
         number_cell(run.tokens_per_s, speed_number(run.tokens_per_s)) +
         "<td></td></tr>\n<tr><td>priced</td>" + figure_cell(run.priced_tflops, speed_number) +
         figure_cell(run.priced_tokens_per_s, speed_number) +
         fmt::format("<td>{}</td></tr>\n</tbody></table></div>\n", escape(run.grade));
}

std::string conditions_of(const std::vector<PlanCondition>& conditions) {
  if (conditions.empty()) return "";
  std::string html =
      "<div class=\"scroll\"><table class=\"compact\"><caption>What is no flag, from it to yours, "
      "each with all before it</caption><thead><tr><th>what</th><th>from</th><th>to</th><th "
      "class=\"num\">throughput</th><th></th></tr></thead><tbody>\n";
  for (const PlanCondition& condition : conditions) {
    const PlanDifference& difference = condition.difference;
    html += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td>", escape(difference.knob),
                        breakable(difference.from), breakable(difference.to));
    const std::optional<double>& ratio = condition.speed_ratio;
    html += number_cell(ratio, ratio ? signed_percent(*ratio - 1) : "–");
    html += fmt::format("<td>{}</td></tr>\n",
                        (ratio ? "" : "not priced by itself: ") + escape(condition.why));
  }
  return html + "</tbody></table></div>\n";
}

}  // namespace

std::string plan_published(const PlanPage& page) {
  if (page.published_note.empty()) return "";
  std::string html = "<p class=\"reason\">" + escape(page.published_note) + "</p>\n";
  for (const PlanPublished& run : page.published) {
    html += "<h3>" + escape(run.title) + "</h3>\n" + figures_of(run) + list_of(run.facts) +
            conditions_of(run.conditions);
    if (!run.path.empty()) {
      html +=
          "<p class=\"lead\">From yours to its layout, step by step, each with all those before "
          "it.</p>\n" +
          step_table(run.path);
    }
    if (!run.changes.empty()) html += change_table(run.changes, "from yours to its layout", true);
    if (run.assumed.empty()) continue;
    html +=
        "<p class=\"lead\">What it leaves open, and what was taken.</p>\n" + list_of(run.assumed);
  }
  return html;
}

}  // namespace moetune::reports

// The sections of a diagnosis: the wall with its numbers, what to change, the ranks, the run.
#include "reports/diagnosis_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string_view>

#include "kernels/base/step_parts.h"
#include "reports/diagnosis_parts.h"
#include "reports/format.h"
#include "reports/html.h"
#include "reports/page.h"
#include "reports/sections.h"
#include "reports/step_figures.h"

namespace moetune::reports {
namespace {

std::string cards_of(const DiagnosisPage& page) {
  std::string html = "<dl class=\"cards\">\n";
  html += card("The wall", wall_badge(page.wall),
               page.sub_cause.empty() ? "what holds the run back" : told(page.sub_cause));
  if (page.share_ratio && *page.share_ratio > 0) {
    html += card("Its ceiling", ratio_text(*page.share_ratio),
                 "of a step: more cannot be gained" + meter(*page.share_ratio));
  }
  if (const auto& numbers = page.communication) {
    html += card("Communication: volume", ratio_text(numbers->volume_ratio),
                 "of the steps, kernels one after the other" + meter(numbers->volume_ratio));
    html += card("exposed", ratio_text(numbers->exposed_ratio),
                 "nothing else ran beside it" + meter(numbers->exposed_ratio));
    html += card("blocking", ratio_text(numbers->blocking_ratio),
                 "of that, what the next work waited for" + meter(numbers->blocking_ratio));
  }
  return html + "</dl>\n";
}

std::string wall_section(const DiagnosisPage& page) {
  std::string html = fmt::format("<p class=\"headline\">{}</p>\n", told(page.summary));
  html += cards_of(page);
  if (!page.evidence.empty()) {
    html += "<ul class=\"facts\">\n";
    for (const std::string& line : page.evidence) html += fmt::format("<li>{}</li>\n", told(line));
    html += "</ul>\n";
  }
  if (page.shares.empty()) return html;
  html +=
      "<div class=\"scroll\"><table class=\"compact\"><caption>What takes the judged time, each "
      "moment booked once</caption><thead><tr><th>cause</th><th class=\"num\">share</th><th></th>"
      "</tr></thead><tbody>\n";
  std::vector<DiagnosedShare> shares = page.shares;
  std::ranges::stable_sort(shares, std::greater(), &DiagnosedShare::ratio);
  for (const DiagnosedShare& share : shares) {
    html +=
        fmt::format("<tr><td>{}</td><td class=\"num\">{}</td><td class=\"share\">{}</td></tr>\n",
                    wall_badge(share.label), ratio_text(share.ratio), meter(share.ratio));
  }
  return html + "</tbody></table></div>\n";
}

// As lines of a diff: what is to be added. The signs are drawn by the style, so that only the
// settings are copied.
std::string flags_box(const DiagnosedRemedy& remedy, size_t n) {
  std::string lines;
  bool is_plain = true;
  for (const std::string& flag : remedy.flags) {
    is_plain = is_plain && is_plain_line(flag);
    lines += fmt::format("<span class=\"add\">{}\n</span>", told(flag));
  }
  const std::string button = is_plain ? fmt::format(
                                            "<button type=\"button\" class=\"needs-script\" "
                                            "data-copy=\"copy-remedy-{}\">Copy</button>",
                                            n)
                                      : "";
  return fmt::format(
      "<div class=\"copy diff\"><div class=\"copy-head\"><span>{}</span>{}</div><pre "
      "id=\"copy-remedy-{}\" tabindex=\"0\">{}</pre></div>\n",
      told(remedy.rule), button, n, lines);
}

/// Those that may let a failed run go on, or those that save time.
std::string remedies_section(const DiagnosisPage& page, bool is_for_failure) {
  std::string html;
  for (size_t i = 0; i < page.remedies.size(); ++i) {
    const DiagnosedRemedy& remedy = page.remedies[i];
    if (remedy.is_for_failure != is_for_failure) continue;
    html += fmt::format("<article class=\"remedy{}\">\n", remedy.refused.empty() ? "" : " refused");
    html += remedy.flags.empty() ? fmt::format("<p><strong>{}</strong></p>\n", told(remedy.rule))
                                 : flags_box(remedy, i + 1);
    html += fmt::format("<p>{}{}</p>\n",
                        remedy.ceiling_ratio ? fmt::format("<strong>At most {}.</strong> ",
                                                           ratio_text(*remedy.ceiling_ratio))
                                             : "",
                        told(remedy.why));
    if (!remedy.refused.empty()) {
      html += fmt::format("<p class=\"notice\">Not possible here: {}</p>\n", told(remedy.refused));
    }
    html += "</article>\n";
  }
  return html;
}

std::string windows_section(const DiagnosisPage& page) {
  std::vector<BudgetBar> bars;
  std::string rows;
  for (const DiagnosedBar& window : page.bars) {
    if (window.window_ns <= 0) continue;
    if (bars.size() == kMostWindows) break;
    bars.push_back(bar_of(window));
    const auto cell = [&](int64_t ns) {
      const double ratio = static_cast<double>(ns) / static_cast<double>(window.window_ns);
      return number_cell(ratio, ratio_text(ratio));
    };
    rows += fmt::format(
        "<tr><td>{}</td><td>{}</td>{}{}{}{}{}{}{}<td class=\"num\">{}</td><td>{}</td></tr>\n",
        escape(window.rank), told(window.window),
        number_cell(static_cast<double>(window.window_ns), ns_text(window.window_ns)),
        cell(window.compute_ns), cell(window.comm_ns), cell(window.exposed_comm_ns),
        cell(window.exposed_copy_ns), cell(window.idle_ns), cell(window.host_late_ns),
        window.num_kernels, escape_or_dash(shortened(window.device, 200)));
  }
  if (bars.empty()) return "";
  std::string html = budget_figure(
      bars,
      fmt::format("One bar for each window of a rank.{}",
                  page.bars.size() > bars.size()
                      ? fmt::format(" {} of {} windows are shown.", bars.size(), page.bars.size())
                      : ""),
      "window");
  return html +
         "<div class=\"scroll\"><table "
         "class=\"compact\"><thead><tr><th>rank</th><th>window</th><th "
         "class=\"num\">length</th><th class=\"num\">compute</th><th class=\"num\">communication, "
         "volume</th><th class=\"num\">exposed</th><th class=\"num\">copies</th><th "
         "class=\"num\">idle</th><th class=\"num\">host late</th><th class=\"num\">kernels</th><th>"
         "device</th></tr></thead><tbody>\n" +
         rows + "</tbody></table></div>\n";
}

std::string run_section(const DiagnosisPage& page) {
  if (page.facts.empty() && page.notes.empty()) return "";
  return fact_list(page.facts) + note_list(page.notes);
}

}  // namespace

std::string render_diagnosis(const DiagnosisPage& page) {
  Page result;
  result.title = page.title;
  result.subtitle = "diagnosed from what the run has left; nothing was run";
  result.origin = escape(page.date);
  const auto add = [&](std::string_view id, std::string_view title, std::string_view short_title,
                       std::string_view lead, std::string body) {
    if (!body.empty()) result.sections.push_back({id, title, short_title, lead, std::move(body)});
  };
  add("verdict", "Verdict", "Verdict", "", wall_section(page));
  add("failure", page.failure_heading, "To make it run",
      "To make it run, in the words of its framework. One at a time: they were not tried together.",
      remedies_section(page, true));
  add("remedies", "What to change", "To make it faster",
      "To make it faster, in the words of the run's framework. The share of the step is a ceiling: "
      "no setting saves more. One at a time: they were not tried together.",
      remedies_section(page, false));
  add("windows", "Where the time of each rank went", "Ranks",
      "Exposed: nothing else ran beside it. Host late: the device was idle until the host launched "
      "the next work.",
      windows_section(page));
  add("run", "The run", "Run", "What its logs and files say.", run_section(page));
  return render_page(result);
}

}  // namespace moetune::reports

// The first plan in depth: memory by stage, and its step as it was played.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "kernels/base/units.h"
#include "reports/format.h"
#include "reports/html.h"
#include "reports/plan_sections.h"
#include "reports/sections.h"
#include "reports/step_figures.h"

namespace moetune::reports {
namespace {

using nlohmann::json;

double total_of(const PlanStage& stage) {
  double sum = 0;
  for (const double bytes : stage.bytes) sum += bytes;
  return sum;
}

std::string stages_table(const PlanPage& page) {
  std::string html =
      "<div class=\"scroll\"><table class=\"compact\"><thead><tr><th>stage</th><th "
      "class=\"num\">first rank</th><th class=\"num\">peak, allocated</th><th "
      "class=\"num\">needed</th>";
  for (const std::string& term : page.memory_terms) {
    html += fmt::format("<th class=\"num\">{}</th>", escape(term));
  }
  html += "<th>when</th></tr></thead><tbody>\n";
  for (size_t i = 0; i < page.stages.size(); ++i) {
    const PlanStage& stage = page.stages[i];
    html += fmt::format("<tr><td>{}</td>{}{}{}", i,
                        number_cell(static_cast<double>(stage.rank), std::to_string(stage.rank)),
                        number_cell(stage.allocated_bytes, rounded_bytes(stage.allocated_bytes)),
                        number_cell(total_of(stage), rounded_bytes(total_of(stage))));
    for (const double bytes : stage.bytes) {
      html += number_cell(bytes, bytes > 0 ? rounded_bytes(bytes) : "–");
    }
    html += fmt::format("<td>{}</td></tr>\n", escape(stage.moment));
  }
  return html + "</tbody></table></div>\n";
}

/// How each line of the fullest stage is known: by lines.
std::string evidence_table(const PlanPage& page) {
  if (page.memory_evidence.empty()) return "";
  std::string html =
      "<details><summary>How each line of the fullest stage is known</summary>\n"
      "<div class=\"scroll\"><table class=\"compact\"><thead><tr><th>line</th><th "
      "class=\"num\">bytes</th><th>term</th><th>how much</th><th>known from</th><th></th></tr>"
      "</thead><tbody>\n";
  const std::string* before = nullptr;
  for (const PlanMemoryTerm& term : page.memory_evidence) {
    const bool is_new = before == nullptr || *before != term.line;
    before = &term.line;
    html += fmt::format(
        "<tr><td>{}</td>{}<td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
        is_new ? escape(term.line) : "",
        is_new ? number_cell(term.bytes, rounded_bytes(term.bytes)) : std::string("<td></td>"),
        escape(term.term), escape(term.how), escape(term.evidence), escape(term.basis));
  }
  return html + "</tbody></table></div></details>\n";
}

BudgetBar bar_of(const std::map<std::string, int64_t>& parts_ns, int64_t step_ns,
                 std::string label) {
  BudgetBar bar;
  bar.name = bar.cell = bar.label = std::move(label);
  bar.step_ns = static_cast<double>(step_ns);
  for (const auto& [name, ns] : parts_ns) {
    const std::optional<base::NamedPart> part = base::part_from_name(name);
    if (part) bar.parts[budget_part(*part)] += static_cast<double>(ns);
  }
  return bar;
}

}  // namespace

std::string plan_memory(const PlanPage& page) {
  if (page.stages.empty()) return "";
  json ranks = json::array();
  for (size_t i = 0; i < page.stages.size(); ++i) {
    json bytes = json::array();
    for (const double part : page.stages[i].bytes) bytes.push_back(std::llround(part));
    ranks.push_back({{"rank", i}, {"measured", json::array()}, {"predicted", bytes}});
  }
  const json data = {
      {"groups", page.memory_terms},
      {"unit", "stage"},
      {"shown", 1},
      {"trials",
       {{{"n", 1}, {"capacity", std::llround(page.allocatable_bytes)}, {"ranks", ranks}}}}};
  const auto worst = std::ranges::max_element(page.stages, {}, total_of);
  constexpr double kBeside = 1 << 20;  // less is not told
  std::string lead = fmt::format(
      "<p class=\"reason\">The fullest rank is <strong>{}</strong>, the first of stage {}: {} are "
      "allocated{}. Its others hold as much where their experts receive as many rows.</p>\n",
      worst->rank, worst - page.stages.begin(), rounded_bytes(worst->allocated_bytes),
      total_of(*worst) - worst->allocated_bytes < kBeside
          ? ""
          : fmt::format("; with the pool of graphs and buffers of the dispatcher it needs {}",
                        rounded_bytes(total_of(*worst))));
  if (page.has_experts && !page.rows.empty()) {
    lead += fmt::format(
        "<p class=\"reason\">It fits up to an imbalance of <strong>{}</strong>: so many times "
        "their share of the rows may the busiest rank's experts receive.</p>\n",
        escape(page.rows.front().load_text));
  }
  return lead +
         figure("memory",
                fmt::format("One bar for each pipeline stage, predicted. The line is what PyTorch "
                            "may allocate of the {} of a device; the rest is for the context, "
                            "communicators and fragments.",
                            rounded_bytes(page.capacity_bytes)),
                "", stages_table(page) + evidence_table(page)) +
         json_element("data-memory", data);
}

std::string plan_budget(const PlanPage& page) {
  if (!page.played)
    return page.not_played.empty() ? "" : "<p>" + escape(page.not_played) + "</p>\n";
  const PlanPlayed& played = *page.played;
  std::vector<BudgetBar> bars;
  for (size_t i = 0; i < played.stage_parts_ns.size(); ++i) {
    BudgetBar& bar = bars.emplace_back(
        bar_of(played.stage_parts_ns[i], played.step_ns, fmt::format("stage {}", i)));
    bar.wall = played.wall;
  }
  std::string html = fmt::format(
      "<p class=\"reason\">Played, the step takes <strong>{}</strong>; in closed form it is {}. "
      "Its "
      "wall: {}. It took {:.1f} s to play {} records.",
      ns_text(played.step_ns), ns_text(std::llround(page.rows.front().step_ns.value)),
      wall_badge(played.wall), played.seconds,
      base::format_count(static_cast<double>(played.num_records)));
  if (!played.left_out.empty()) {
    html += fmt::format(" Moetune's own engine is what is played: {} {} not in it.",
                        escape(fmt::format("{}", fmt::join(played.left_out, ", "))),
                        played.left_out.size() == 1 ? "is" : "are");
  }
  html += "</p>\n";
  std::string table =
      "<div class=\"scroll\"><table class=\"compact\"><caption>In closed form, on the fullest "
      "stage</caption><thead><tr><th>part</th><th class=\"num\">time</th><th "
      "class=\"num\">share</th></tr></thead><tbody>\n";
  double step = 0;
  for (const auto& [name, seconds] : page.step_parts) step += seconds;
  for (const auto& [name, seconds] : page.step_parts) {
    if (seconds < 5e-4 * step) continue;
    table += fmt::format("<tr><td>{}</td>{}{}</tr>\n", escape(name),
                         number_cell(seconds, ns_text(std::llround(seconds * 1e9))),
                         number_cell(seconds / step, base::format_ratio(seconds / step)));
  }
  return html +
         budget_figure(bars,
                       "One bar for each pipeline stage. Time in which no compute kernel ran is "
                       "booked to what the next one was waiting for.",
                       "stage") +
         table + "</tbody></table></div>\n";
}

std::string plan_timeline(const PlanPage& page) {
  if (!page.played || page.played->traces.empty()) return "";
  const PlanPlayed& played = *page.played;
  StepSlices slices(std::max<int64_t>(1, played.step_ns));
  const size_t most = kMaxSlices / played.traces.size();
  for (size_t i = 0; i < played.traces.size(); ++i) {
    std::vector<Slice> own = collect_slices(played.traces[i].records);
    for (Slice& slice : own) slice.rank = static_cast<int64_t>(i);
    slices.add(std::move(own), most);
  }
  std::string description = fmt::format(
      "One step of {} micro-batches, played: one rank for each of {} pipeline stages, {}. Buttons, "
      "the handles below or Ctrl and the wheel zoom; point at a slice for the operation.",
      played.num_micro_batches, played.traces.size(), ns_text(played.step_ns));
  if (played.is_thinned) {
    description += fmt::format(
        " Of {} records only those of the first, the middle and the last micro-batch are shown, "
        "and those of none; gaps in between are not idle.",
        base::format_count(static_cast<double>(played.num_records)));
  } else {
    description += fmt::format(" All {} records of these ranks are in it.",
                               base::format_count(static_cast<double>(played.num_records)));
  }
  return slices.figure(description, "stage");
}

}  // namespace moetune::reports

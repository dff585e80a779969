// Section "budget": the parts of the traced step of each trial. They add up to the step; what a
// database leaves out is shown as its own part instead of being spread over the others.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "kernels/base/step_parts.h"
#include "reports/format.h"
#include "reports/html.h"
#include "reports/sections.h"
#include "reports/step_figures.h"

namespace moetune::reports {
namespace {

using nlohmann::json;

struct BudgetTrial {
  int64_t id = 0;
  int64_t ordinal = 0;
  std::map<std::string, double> metrics;
  BudgetBar bar;
};

double take(const std::map<std::string, double>& metrics, const std::string& name) {
  const auto found = metrics.find(name);
  return found == metrics.end() ? 0.0 : found->second;
}

// What is moved is shown by group; what no group has of it, as its own part.
void add_by_group(const base::StepPartRow& row, double whole, BudgetTrial& trial) {
  const std::string prefix = fmt::format("{}.", row.metric);
  for (const auto& [name, ns] : trial.metrics) {
    if (!name.starts_with(prefix)) continue;
    const std::string_view group = std::string_view(name).substr(prefix.size());
    trial.bar.parts[budget_part({&row, group})] = std::max(0.0, ns);
    whole -= ns;
  }
  trial.bar
      .parts[{2 * static_cast<size_t>(row.id) + 1, fmt::format("other {}s", row.label), "red", 6}] =
      std::max(0.0, whole);
}

// Splits the step by the table of its parts.
void split_step(BudgetTrial& trial) {
  BudgetBar& bar = trial.bar;
  bar.step_ns = take(trial.metrics, "traced_step_ns");
  for (const base::StepPartRow& row : base::step_parts()) {
    const double ns = take(trial.metrics, row.metric) - take(trial.metrics, row.subtracted);
    if (row.id == base::StepPart::transfer) {
      add_by_group(row, ns, trial);
    } else {
      bar.parts[{2 * static_cast<size_t>(row.id), row.label, row.color, row.hatch}] =
          std::max(0.0, ns);
    }
  }
  double booked = 0;
  for (const auto& [part, ns] : bar.parts) booked += ns;
  bar.parts[{2 * base::step_parts().size(), "unexplained", "line", 6}] =
      std::max(0.0, bar.step_ns - booked);
}

std::vector<BudgetTrial> budget_trials(const Rows& rows) {
  std::vector<BudgetTrial> trials;
  std::map<int64_t, size_t> index;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto id = rows.integer(i, "trial_id").value_or(0);
    const auto [found, is_new] = index.try_emplace(id, trials.size());
    if (is_new) {
      BudgetTrial& trial = trials.emplace_back();
      trial.id = id;
      trial.ordinal = rows.integer(i, "ordinal").value_or(0);
      trial.bar.label = fmt::format("#{}", trial.ordinal);
      trial.bar.name = fmt::format("Trial {}", trial.ordinal);
      trial.bar.cell = trial_link(trial.ordinal);
      trial.bar.wall = rows.text(i, "wall");
    }
    if (const auto value = rows.real(i, "value")) {
      trials[found->second].metrics[rows.text(i, "name")] = *value;
    }
  }
  std::erase_if(trials,
                [](const BudgetTrial& t) { return take(t.metrics, "traced_step_ns") <= 0; });
  for (BudgetTrial& trial : trials) {
    split_step(trial);
  }
  return trials;
}

// The parts of which any bar has at least a ten-thousandth of its step, in the order they are
// stacked.
std::vector<BudgetPart> shown_parts(const std::vector<BudgetBar>& bars) {
  std::set<BudgetPart> shown;
  for (const BudgetBar& bar : bars) {
    for (const auto& [part, ns] : bar.parts) {
      if (ns > bar.step_ns * 1e-4) shown.insert(part);
    }
  }
  return {shown.begin(), shown.end()};
}

double ns_of(const BudgetBar& bar, const BudgetPart& part) {
  const auto found = bar.parts.find(part);
  return found == bar.parts.end() ? 0.0 : found->second;
}

std::string table_of(const std::vector<BudgetBar>& bars, const std::vector<BudgetPart>& parts,
                     std::string_view what, std::string_view length) {
  std::string html = fmt::format(
      "<div class=\"scroll\"><table class=\"compact\"><thead><tr><th>{}</th><th>wall</th>"
      "<th class=\"num\">{}</th>",
      what, length);
  for (const BudgetPart& part : parts) {
    html += fmt::format("<th class=\"num\">{}</th>", escape(part.name));
  }
  html += "</tr></thead><tbody>\n";
  for (const BudgetBar& bar : bars) {
    html += fmt::format("<tr><td>{}</td><td>{}</td><td class=\"num\">{}</td>", bar.cell,
                        wall_badge(bar.wall), ns_text(std::llround(bar.step_ns)));
    for (const BudgetPart& part : parts) {
      const double percent = 100 * ns_of(bar, part) / bar.step_ns;
      html += percent < 0.05 ? "<td class=\"num\">–</td>"
                             : fmt::format("<td class=\"num\">{:.1f} %</td>", percent);
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

}  // namespace

BudgetPart budget_part(const base::NamedPart& part) {
  const size_t turn = 2 * static_cast<size_t>(part.row->id);
  const base::GroupRow* own = base::find_group(part.group);
  const bool has_color = own != nullptr && own->color[0] != '\0';
  const std::string label = base::label_of(part);
  return has_color ? BudgetPart{turn + 1, label, own->color, own->hatch}
                   : BudgetPart{turn, label, part.row->color, part.row->hatch};
}

std::string budget_figure(const std::vector<BudgetBar>& bars, std::string_view description,
                          std::string_view what, std::string_view length) {
  const std::vector<BudgetPart> shown = shown_parts(bars);
  json data = {{"parts", json::array()}, {"styles", json::array()}, {"trials", json::array()}};
  for (const BudgetPart& part : shown) {
    data["parts"].push_back(part.name);
    data["styles"].push_back({part.color, part.hatch});
  }
  for (const BudgetBar& bar : bars) {
    json parts = json::array();
    for (const BudgetPart& part : shown) parts.push_back(std::llround(ns_of(bar, part)));
    data["trials"].push_back({{"label", bar.label},
                              {"name", bar.name},
                              {"wall", bar.wall},
                              {"step", std::llround(bar.step_ns)},
                              {"parts", parts}});
  }
  return figure("budget", description,
                "<div class=\"choice\" role=\"group\" aria-label=\"Unit\">"
                "<button type=\"button\" data-budget=\"time\" aria-pressed=\"true\">Time</button>"
                "<button type=\"button\" data-budget=\"share\" "
                "aria-pressed=\"false\">Share</button></div>",
                table_of(bars, shown, what, length)) +
         json_element("data-budget", data);
}

std::string render_budget(const SectionInput& input) {
  std::vector<BudgetBar> bars;
  for (BudgetTrial& trial : budget_trials(input.rows)) {
    const store::TrialRow* row = input.context.by_id(trial.id);
    if (row == nullptr || !is_reference(*row)) bars.push_back(std::move(trial.bar));
  }
  const std::string notice = trace_notice(input.context, input.context.at(input.context.traced));
  if (bars.empty()) {
    return "<p>No trial has a traced step.</p>\n" + notice;
  }
  return notice + shown_note(input.context, kMostDeep) +
         budget_figure(bars,
                       "One bar per traced trial, in order. Time in which no compute kernel ran is "
                       "booked to what the next one was waiting for.",
                       "trial");
}

}  // namespace moetune::reports

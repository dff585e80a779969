// Section "budget": the parts of the traced step of each trial. They add up to the step; what a
// database leaves out is shown as its own part instead of being spread over the others.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "kernels/base/step_parts.h"
#include "reports/format.h"
#include "reports/html.h"
#include "reports/sections.h"

namespace moetune::reports {
namespace {

using nlohmann::json;

/// A part as it is stacked: of the step's vocabulary, or what that leaves over.
struct Part {
  size_t turn = 0;  ///< place in the stack, from below; those of one turn by their names
  std::string name;
  std::string_view color;  ///< empty: one of the colours that groups take in turns
  int hatch = 0;

  auto operator<=>(const Part&) const = default;
};

struct BudgetTrial {
  int64_t id = 0;
  int64_t ordinal = 0;
  std::string wall;
  std::map<std::string, double> metrics;
  std::map<Part, double> parts;  ///< ns
};

double take(const std::map<std::string, double>& metrics, const std::string& name) {
  const auto found = metrics.find(name);
  return found == metrics.end() ? 0.0 : found->second;
}

// What is moved is shown by group; what no group has of it, as its own part.
void add_by_group(const base::StepPartRow& row, double whole, BudgetTrial& trial) {
  const size_t turn = 2 * static_cast<size_t>(row.id);
  const std::string prefix = fmt::format("{}.", row.metric);
  for (const auto& [name, ns] : trial.metrics) {
    if (!name.starts_with(prefix)) continue;
    const std::string_view group = std::string_view(name).substr(prefix.size());
    const base::GroupRow* own = base::find_group(group);
    const bool has_color = own != nullptr && own->color[0] != '\0';
    const std::string label = base::label_of({&row, group});
    trial.parts[has_color ? Part{turn + 1, label, own->color, own->hatch}
                          : Part{turn, label, row.color, row.hatch}] = std::max(0.0, ns);
    whole -= ns;
  }
  trial.parts[{turn + 1, fmt::format("other {}s", row.label), "red", 6}] = std::max(0.0, whole);
}

// Splits the step by the table of its parts.
void split_step(BudgetTrial& trial) {
  for (const base::StepPartRow& row : base::step_parts()) {
    const double ns = take(trial.metrics, row.metric) - take(trial.metrics, row.without);
    if (row.id == base::StepPart::transfer) {
      add_by_group(row, ns, trial);
    } else {
      trial.parts[{2 * static_cast<size_t>(row.id), row.label, row.color, row.hatch}] =
          std::max(0.0, ns);
    }
  }
  double booked = 0;
  for (const auto& [part, ns] : trial.parts) booked += ns;
  trial.parts[{2 * base::step_parts().size(), "unexplained", "line", 6}] =
      std::max(0.0, take(trial.metrics, "traced_step_ns") - booked);
}

std::vector<BudgetTrial> budget_trials(const Rows& rows) {
  std::vector<BudgetTrial> trials;
  std::map<int64_t, size_t> index;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto id = rows.integer(i, "trial_id").value_or(0);
    const auto [found, is_new] = index.try_emplace(id, trials.size());
    if (is_new) {
      trials.push_back({id, rows.integer(i, "ordinal").value_or(0), rows.text(i, "wall"), {}, {}});
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

// The parts of which any trial has at least a ten-thousandth of its step, in the order they are
// stacked.
std::vector<Part> shown_parts(const std::vector<BudgetTrial>& trials) {
  std::set<Part> shown;
  for (const BudgetTrial& trial : trials) {
    for (const auto& [part, ns] : trial.parts) {
      if (ns > take(trial.metrics, "traced_step_ns") * 1e-4) shown.insert(part);
    }
  }
  return {shown.begin(), shown.end()};
}

double ns_of(const BudgetTrial& trial, const Part& part) {
  const auto found = trial.parts.find(part);
  return found == trial.parts.end() ? 0.0 : found->second;
}

std::string table_of(const std::vector<BudgetTrial>& trials, const std::vector<Part>& parts) {
  std::string html =
      "<div class=\"scroll\"><table class=\"compact\"><thead><tr><th>trial</th><th>wall</th>"
      "<th class=\"num\">step</th>";
  for (const Part& part : parts) {
    html += fmt::format("<th class=\"num\">{}</th>", escape(part.name));
  }
  html += "</tr></thead><tbody>\n";
  for (const BudgetTrial& trial : trials) {
    const double step = take(trial.metrics, "traced_step_ns");
    html +=
        fmt::format("<tr><td>{}</td><td>{}</td><td class=\"num\">{}</td>",
                    trial_link(trial.ordinal), wall_badge(trial.wall), ns_text(std::llround(step)));
    for (const Part& part : parts) {
      const double percent = 100 * ns_of(trial, part) / step;
      html += percent < 0.05 ? "<td class=\"num\">–</td>"
                             : fmt::format("<td class=\"num\">{:.1f} %</td>", percent);
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

}  // namespace

std::string render_budget(const SectionInput& input) {
  std::vector<BudgetTrial> trials = budget_trials(input.rows);
  std::erase_if(trials, [&](const BudgetTrial& trial) {
    const store::TrialRow* row = input.context.by_id(trial.id);
    return row != nullptr && is_reference(*row);
  });
  const std::string notice = trace_notice(input.context, input.context.at(input.context.traced));
  if (trials.empty()) {
    return "<p>No trial has a traced step.</p>\n" + notice;
  }
  const std::vector<Part> shown = shown_parts(trials);
  json data = {{"parts", json::array()}, {"styles", json::array()}, {"trials", json::array()}};
  for (const Part& part : shown) {
    data["parts"].push_back(part.name);
    data["styles"].push_back({part.color, part.hatch});
  }
  for (const BudgetTrial& trial : trials) {
    json parts = json::array();
    for (const Part& part : shown) parts.push_back(std::llround(ns_of(trial, part)));
    data["trials"].push_back({{"n", trial.ordinal},
                              {"wall", trial.wall},
                              {"step", std::llround(take(trial.metrics, "traced_step_ns"))},
                              {"parts", parts}});
  }
  return notice +
         figure(
             "budget",
             "One bar per traced trial, in order. Time in which no compute kernel ran is booked to "
             "what the next one was waiting for.",
             "<div class=\"choice\" role=\"group\" aria-label=\"Unit\">"
             "<button type=\"button\" data-budget=\"time\" aria-pressed=\"true\">Time</button>"
             "<button type=\"button\" data-budget=\"share\" "
             "aria-pressed=\"false\">Share</button></div>",
             table_of(trials, shown)) +
         json_element("data-budget", data);
}

}  // namespace moetune::reports

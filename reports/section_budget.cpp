// Section "budget": the parts of the traced step of each trial. They add up to the step; what a
// database leaves out is shown as its own part instead of being spread over the others.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "reports/format.h"
#include "reports/html.h"
#include "reports/sections.h"

namespace moetune::reports {
namespace {

using nlohmann::json;

constexpr std::string_view kTransferPrefix = "blocking_transfer_ns.";

struct Trial {
  int64_t id = 0;
  int64_t ordinal = 0;
  std::string wall;
  std::map<std::string, double> metrics;
  std::vector<std::pair<std::string, double>> parts;  ///< ns, in the order they are stacked
};

// Not every group is a communicator: the dispatcher's own kernels and copies block too.
std::string transfer_name(const std::string& group) {
  if (group == "dispatcher") {
    return "dispatch packing";
  }
  return group == "memcpy" ? "copies" : "transfer " + group;
}

double take(const std::map<std::string, double>& metrics, const std::string& name) {
  const auto found = metrics.find(name);
  return found == metrics.end() ? 0.0 : found->second;
}

// Splits the step once: recomputation is a part of computing, the bubble is a part of waiting,
// groups are parts of transfer.
void add_parts(Trial& trial) {
  const auto& metrics = trial.metrics;
  const double step = take(metrics, "traced_step_ns");
  double booked = 0;
  const auto add = [&](const std::string& name, double ns) {
    const double value = std::max(0.0, ns);
    trial.parts.emplace_back(name, value);
    booked += value;
  };
  const double recompute = take(metrics, "recompute_busy_ns");
  add("compute", take(metrics, "compute_busy_ns") - recompute);
  add("recompute", recompute);
  add("launch-starved", take(metrics, "launch_starved_ns"));
  double transfer = take(metrics, "blocking_transfer_ns");
  for (const auto& [name, ns] : metrics) {
    if (name.starts_with(kTransferPrefix)) {
      add(transfer_name(name.substr(kTransferPrefix.size())), ns);
      transfer -= ns;
    }
  }
  const bool has_split =
      metrics.contains("blocking_transfer_ns") || metrics.contains("blocking_wait_ns");
  if (has_split) {
    add("other transfers", transfer);
    const double bubble = take(metrics, "pipeline_bubble_ns");
    add("late participant", take(metrics, "blocking_wait_ns") - bubble);
    add("pipeline bubble", bubble);
  } else {
    add("blocking", take(metrics, "blocking_ns"));
  }
  add("dependency-stalled", take(metrics, "dependency_stalled_ns"));
  add("unexplained", step - booked);
}

std::vector<Trial> collect(const Rows& rows) {
  std::vector<Trial> trials;
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
  std::erase_if(trials, [](const Trial& t) { return take(t.metrics, "traced_step_ns") <= 0; });
  for (Trial& trial : trials) {
    add_parts(trial);
  }
  return trials;
}

double part_of(const Trial& trial, const std::string& name) {
  const auto found = std::ranges::find(trial.parts, name, &std::pair<std::string, double>::first);
  return found == trial.parts.end() ? 0.0 : found->second;
}

// Names of the parts of which any trial has at least a ten-thousandth of its step, in the order
// they are stacked.
std::vector<std::string> part_names(const std::vector<Trial>& trials) {
  std::vector<std::string> transfers;
  for (const Trial& trial : trials) {
    for (const auto& [name, ns] : trial.parts) {
      if (name.starts_with("transfer ") && std::ranges::find(transfers, name) == transfers.end()) {
        transfers.push_back(name);
      }
    }
  }
  std::ranges::sort(transfers);
  std::vector<std::string> names = {"compute", "recompute", "launch-starved"};
  names.insert(names.end(), transfers.begin(), transfers.end());
  names.insert(names.end(),
               {"dispatch packing", "copies", "other transfers", "blocking", "late participant",
                "pipeline bubble", "dependency-stalled", "unexplained"});
  std::erase_if(names, [&](const std::string& name) {
    return std::ranges::none_of(trials, [&](const Trial& trial) {
      return part_of(trial, name) > take(trial.metrics, "traced_step_ns") * 1e-4;
    });
  });
  return names;
}

std::string table_of(const std::vector<Trial>& trials, const std::vector<std::string>& names) {
  std::string html =
      "<div class=\"scroll\"><table class=\"compact\"><thead><tr><th>trial</th><th>wall</th>"
      "<th class=\"num\">step</th>";
  for (const std::string& name : names) {
    html += fmt::format("<th class=\"num\">{}</th>", escape(name));
  }
  html += "</tr></thead><tbody>\n";
  for (const Trial& trial : trials) {
    const double step = take(trial.metrics, "traced_step_ns");
    html +=
        fmt::format("<tr><td>{}</td><td>{}</td><td class=\"num\">{}</td>",
                    trial_link(trial.ordinal), wall_badge(trial.wall), ns_text(std::llround(step)));
    for (const std::string& name : names) {
      const double percent = 100 * part_of(trial, name) / step;
      html += percent < 0.05 ? "<td class=\"num\">–</td>"
                             : fmt::format("<td class=\"num\">{:.1f} %</td>", percent);
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

}  // namespace

std::string render_budget(const SectionInput& input) {
  std::vector<Trial> trials = collect(input.rows);
  std::erase_if(trials, [&](const Trial& trial) {
    const store::TrialRow* row = input.context.by_id(trial.id);
    return row != nullptr && is_reference(*row);
  });
  const std::string notice = trace_notice(input.context, input.context.at(input.context.traced));
  if (trials.empty()) {
    return "<p>No trial has a traced step.</p>\n" + notice;
  }
  const std::vector<std::string> names = part_names(trials);
  json data = {{"parts", names}, {"trials", json::array()}};
  for (const Trial& trial : trials) {
    json parts = json::array();
    for (const std::string& name : names) {
      parts.push_back(std::llround(part_of(trial, name)));
    }
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
             table_of(trials, names)) +
         json_element("data-budget", data);
}

}  // namespace moetune::reports

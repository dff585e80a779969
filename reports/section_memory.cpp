// Section "memory": what the peak of each rank was made of, predicted beside measured, against the
// capacity.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "kernels/base/units.h"
#include "reports/device_account.h"
#include "reports/engine_trial.h"
#include "reports/format.h"
#include "reports/html.h"
#include "reports/sections.h"

namespace moetune::reports {
namespace {

using nlohmann::json;

// The groups of the ledger in the order they are stacked; others follow by name.
constexpr std::array<std::string_view, 6> kGroupOrder = {
    "weights", "gradients", "optimizer", "activations", "workspace", "communication"};

struct Rank {
  std::map<std::string, std::optional<int64_t>> measured;
  std::map<std::string, std::optional<int64_t>> predicted;
  std::string peak_allocation;
};

struct MemoryTrial {
  int64_t ordinal = 0;
  bool is_foreign = false;  ///< run by somebody else's engine
  std::map<int64_t, Rank> ranks;
};

std::map<int64_t, MemoryTrial> memory_trials(const SectionInput& input) {
  const Rows& rows = input.rows;
  std::map<int64_t, MemoryTrial> trials;
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t id = rows.integer(i, "trial_id").value_or(0);
    const auto [found, is_first] = trials.try_emplace(id);
    MemoryTrial& trial = found->second;
    if (is_first) {
      const store::TrialRow* row = input.context.by_id(id);
      trial.is_foreign = row != nullptr && is_of_another_engine(*row);
    }
    trial.ordinal = rows.integer(i, "ordinal").value_or(0);
    Rank& rank = trial.ranks[rows.integer(i, "rank").value_or(0)];
    const std::string group = rows.text(i, "memory_group");
    rank.measured[group] = known_bytes(trial.is_foreign, rows.integer(i, "bytes"));
    rank.predicted[group] = rows.integer(i, "predicted_bytes");
    if (group == "total") {
      rank.peak_allocation = rows.text(i, "peak_allocation");
    }
  }
  return trials;
}

std::vector<std::string> collect_groups(const Rows& rows) {
  std::vector<std::string> groups(kGroupOrder.begin(), kGroupOrder.end());
  const size_t column = rows.column("memory_group");
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string group = rows.text(i, column);
    if (group != "total" && group != "capacity" &&
        std::ranges::find(groups, group) == groups.end()) {
      groups.push_back(group);
    }
  }
  return groups;
}

std::optional<int64_t> value_of(const std::map<std::string, std::optional<int64_t>>& values,
                                const std::string& group) {
  const auto found = values.find(group);
  return found == values.end() ? std::nullopt : found->second;
}

/// Where nobody tells what a peak was made of, it is drawn as one part, and the table has no parts.
constexpr const char* kWholePeak = "peak, its parts are not told";

bool tells_parts(const std::map<int64_t, MemoryTrial>& trials,
                 const std::vector<std::string>& groups) {
  return std::ranges::any_of(trials, [&](const auto& trial) {
    return !trial.second.is_foreign ||
           std::ranges::any_of(trial.second.ranks, [&](const auto& rank) {
             return std::ranges::any_of(groups, [&](const std::string& group) {
               return value_of(rank.second.measured, group) ||
                      value_of(rank.second.predicted, group);
             });
           });
  });
}

json to_json(const std::map<std::string, std::optional<int64_t>>& values,
             const std::vector<std::string>& groups) {
  json result = json::array();
  for (const std::string& group : groups) {
    const auto value = value_of(values, group);
    result.push_back(value ? json(*value) : json());
  }
  return result;
}

json to_json(const MemoryTrial& trial, const Context& context, int64_t id,
             const std::vector<std::string>& groups) {
  const store::TrialRow* row = context.by_id(id);
  json ranks = json::array();
  json capacity;
  for (const auto& [rank, memory] : trial.ranks) {
    if (const auto value = value_of(memory.measured, "capacity"); value && *value > 0) {
      capacity = *value;
    }
    ranks.push_back({{"rank", rank},
                     {"measured", to_json(memory.measured, groups)},
                     {"predicted", to_json(memory.predicted, groups)},
                     {"allocation", memory.peak_allocation}});
  }
  return {{"n", trial.ordinal},
          {"status", row == nullptr ? "" : row->status},
          {"label", row == nullptr ? "" : layout_of(*row)},
          {"capacity", capacity},
          {"ranks", ranks}};
}

std::string table_of(const MemoryTrial& trial, const std::vector<std::string>& groups) {
  std::string html = fmt::format(
      "<div class=\"scroll\"><table class=\"compact\"><caption>Trial {}: measured, and predicted "
      "in "
      "brackets</caption><thead><tr><th>rank</th><th class=\"num\">peak</th>",
      trial.ordinal);
  for (const std::string& group : groups) {
    html += fmt::format("<th class=\"num\">{}</th>", escape(group));
  }
  html += "<th>set by</th></tr></thead><tbody>\n";
  for (const auto& [rank, memory] : trial.ranks) {
    html += fmt::format("<tr><td>{}</td>", rank);
    std::vector<std::string> columns = {"total"};
    columns.insert(columns.end(), groups.begin(), groups.end());
    for (const std::string& group : columns) {
      const auto predicted = value_of(memory.predicted, group);
      html += fmt::format(
          "<td class=\"num\">{}{}</td>", bytes_text(value_of(memory.measured, group)),
          predicted ? fmt::format(" <span class=\"note\">({})</span>", bytes_text(predicted)) : "");
    }
    html += fmt::format("<td><code>{}</code></td></tr>\n", escape_or_dash(memory.peak_allocation));
  }
  return html + "</tbody></table></div>\n";
}

std::string account_row(std::string_view name, int64_t bytes, double ratio) {
  return fmt::format("<tr><td>{}</td><td class=\"num\">{}</td><td class=\"num\">{}</td></tr>\n",
                     escape(name), bytes_text(bytes), base::format_ratio(ratio));
}

std::string account_of(const std::string& text) {
  const std::optional<DeviceAccount> account = read_device_account(text);
  if (!account) {
    return "<p class=\"note\">The stored account of the device's memory cannot be read.</p>\n";
  }
  std::string html = fmt::format(
      "<div class=\"scroll\"><table class=\"compact account\"><caption>{}: all that lies on the "
      "device</caption><thead><tr><th>what</th><th class=\"num\">bytes</th><th "
      "class=\"num\">share</th></tr></thead><tbody>\n",
      escape(account->ranks));
  for (const DeviceAccount::Line& line : account->lines) {
    html += account_row(line.name, line.bytes, line.used_ratio);
  }
  html += account_row(account->rest.name, account->rest.bytes, account->rest.used_ratio);
  return html + "</tbody><tfoot>" +
         account_row("used, as the driver says", account->driver_used_bytes, 1) +
         "</tfoot></table></div>\n";
}

// Trials on a GPU only: what the ledger has booked, and what else takes the device's memory.
std::string accounts_of(const Context& context, const store::TrialRow* trial) {
  if (trial == nullptr || !context.device_memory.contains(trial->id)) {
    return "";
  }
  std::string html = fmt::format("<h3>The device's memory, trial {}</h3>\n", trial->ordinal);
  for (const std::string& text : context.device_memory.at(trial->id)) {
    html += account_of(text);
  }
  return html;
}

}  // namespace

std::string render_memory(const SectionInput& input) {
  std::map<int64_t, MemoryTrial> trials = memory_trials(input);
  if (trials.empty()) {
    return "<p>No memory figures have been stored.</p>\n" +
           accounts_of(input.context, input.context.at(input.context.shown));
  }
  std::vector<std::string> groups = collect_groups(input.rows);
  const bool has_parts = tells_parts(trials, groups);
  if (!has_parts) {
    groups = {kWholePeak};
    for (auto& [id, trial] : trials) {
      for (auto& [number, rank] : trial.ranks) {
        rank.measured[kWholePeak] = value_of(rank.measured, "total");
      }
    }
  }
  // The deep trial first: the verdict's, or the run with the same knobs that was traced.
  int64_t shown = trials.rbegin()->first;
  for (const int position : {input.context.traced, input.context.shown}) {
    const store::TrialRow* row = input.context.at(position);
    if (row != nullptr && trials.contains(row->id)) {
      shown = row->id;
    }
  }
  json data = {{"groups", groups}, {"shown", trials.at(shown).ordinal}, {"trials", json::array()}};
  std::string options;
  for (const auto& [id, trial] : trials) {
    data["trials"].push_back(to_json(trial, input.context, id, groups));
    const store::TrialRow* row = input.context.by_id(id);
    const bool is_winner = row != nullptr && input.context.is_winner(*row);
    options += fmt::format("<option value=\"{0}\"{1}>#{0} {2}{3}</option>", trial.ordinal,
                           id == shown ? " selected" : "",
                           row == nullptr ? "" : escape(row->status + ": " + layout_of(*row)),
                           !is_winner                 ? ""
                           : input.context.is_refused ? " (not validated)"
                                                      : " (winner)");
  }
  return shown_note(input.context, kMostDeep) +
         figure("memory",
                has_parts
                    ? "Stacked bars per rank: left measured, right (hatched, paler) predicted. "
                      "The line is the capacity of a device."
                    : "A bar per rank: the peak that was logged. Neither its parts nor, where "
                      "there is no line, the capacity of a device are known.",
                "<label>Trial <select data-memory>" + options + "</select></label>",
                table_of(trials.at(shown), has_parts ? groups : std::vector<std::string>())) +
         accounts_of(input.context, input.context.by_id(shown)) + json_element("data-memory", data);
}

}  // namespace moetune::reports

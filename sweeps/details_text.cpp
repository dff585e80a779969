// Everything about a trial for people: one section after the other.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "kernels/base/units.h"
#include "profiler/store/metrics.h"
#include "profiler/store/untrusted_json.h"
#include "profiler/store/verdict.h"
#include "reports/device_account.h"
#include "reports/engine_trial.h"
#include "sweeps/analyse.h"
#include "sweeps/listing.h"
#include "sweeps/stored_flags.h"
#include "sweeps/table.h"
#include "sweeps/trial_list.h"

namespace moetune::sweeps {
namespace {

using nlohmann::json;
using Align = TextTable::Align;

std::string bytes_text(const std::optional<int64_t>& bytes) {
  return bytes ? base::format_bytes(*bytes) : "-";
}

std::string ns_text(const std::optional<int64_t>& ns) { return ns ? base::format_ns(*ns) : "-"; }

std::string section(const std::string& title, const std::string& body) {
  return body.empty() ? "" : "\n" + title + "\n" + body;
}

std::string head_text(const SweepView& view, const store::TrialRow& trial,
                      const std::string& title) {
  std::string text = fmt::format("trial {} ({}), {}: {}\n", trial.id, trial.spec_hash, trial.phase,
                                 one_line(purpose_text(view, trial, title)));
  const store::Validation validation = view.validation_of(trial);
  if (validation.is_passed == false) {
    text += fmt::format("NOT VALIDATED: {}\n", one_line(validation.text));
  }
  text += "status  " + trial.status;
  if (!trial.reason.empty()) text += ": " + one_line(trial.reason);
  if (view.is_cleared(trial)) text += fmt::format("; {}", store::kClearedText);
  text += fmt::format("\nstep    {} measured, {} predicted\n", ns_text(trial.step_ns),
                      ns_text(trial.predicted_step_ns));
  text += fmt::format("peak    {} measured, {} predicted\n", bytes_text(trial.peak_bytes),
                      bytes_text(trial.predicted_peak_bytes));
  if (trial.tokens_per_s) {
    text += fmt::format("speed   {} tokens/s\n", base::format_count(*trial.tokens_per_s));
  }
  if (trial.loss_final) text += fmt::format("loss    {:.4f} nats per token\n", *trial.loss_final);
  if (!trial.wall.empty()) text += "wall    " + trial.wall + "\n";
  return text;
}

/// Lines of whole words, indented, not wider than `width` where words allow it.
std::string wrapped(const std::string& text, std::optional<size_t> width) {
  std::string lines;
  std::string line = " ";
  std::istringstream words(one_line(text));
  for (std::string word; words >> word;) {
    if (width && line != " " && display_width(line) + 1 + display_width(word) > *width) {
      lines += line + "\n";
      line = " ";
    }
    line += " " + word;
  }
  return lines + line + "\n";
}

std::string wall_text(const std::vector<store::NamedText>& texts, std::optional<size_t> width) {
  std::string text;
  for (const store::NamedText& entry : texts) {
    if (entry.name != kWallEvidenceText) continue;
    const json document = store::parse_untrusted(entry.value);
    if (!document.is_object()) continue;
    text = wrapped(document.value("summary", ""), width);
    for (const json& fact : document.value("evidence", json::array())) {
      if (fact.is_object()) text += wrapped("- " + fact.value("text", ""), width);
    }
  }
  return text;
}

/// One line per run: those that count, and those of other environments.
std::string measurements_text(const SweepView& view, const store::TrialRow& trial,
                              std::optional<size_t> width) {
  if (view.measurements_of(trial).empty()) return {};
  TextTable table({{"  attempt", Align::right},
                   {"for"},
                   {"counts"},
                   {"status", Align::left, 0, true},
                   {"step", Align::right},
                   {"from", Align::right, 1},
                   {"to", Align::right, 2},
                   {"steps", Align::right, 3},
                   {"when", Align::left, 4},
                   {"environment"}});
  for (const store::MeasurementRow& run : view.measurements_of(trial)) {
    const store::EnvironmentRow* environment = view.environment_of(run);
    table.add({std::to_string(run.attempt), run.purpose, run.is_counted ? "yes" : "no",
               run.reason.empty() ? run.status : run.status + ": " + run.reason,
               ns_text(run.step_ns), ns_text(run.step_ns_low), ns_text(run.step_ns_high),
               std::to_string(run.samples_ns.size()), run.window_start,
               environment == nullptr ? "unknown" : environment_text(*environment)});
  }
  return table.text(width);
}

/// One line per rank: what it peaked at, and what the peak was made of.
std::string memory_text(std::vector<store::MemoryRow> rows, bool is_foreign,
                        std::optional<size_t> width) {
  if (rows.empty()) return {};
  std::vector<TextTable::Column> columns = {{"  rank", Align::right},
                                            {"peak", Align::right},
                                            {"predicted", Align::right},
                                            {"capacity", Align::right}};
  std::vector<std::string> groups;
  for (int i = 0; i < profiler::kNumMemoryGroups; ++i) {
    groups.emplace_back(profiler::name_of(static_cast<profiler::MemoryGroup>(i)));
    columns.push_back({groups.back(), Align::right, i + 1});
  }
  columns.push_back({"set by"});
  std::map<int, std::map<std::string, store::MemoryRow>> ranks;
  for (store::MemoryRow& row : rows) {
    row.bytes = reports::known_bytes(is_foreign, row.bytes);
    ranks[row.rank][row.group] = row;
  }
  TextTable table(columns);
  for (auto& [rank, by_group] : ranks) {
    const store::MemoryRow& total = by_group["total"];
    std::vector<std::string> cells = {std::to_string(rank), bytes_text(total.bytes),
                                      bytes_text(total.predicted_bytes),
                                      bytes_text(by_group["capacity"].bytes)};
    for (const std::string& group : groups) cells.push_back(bytes_text(by_group[group].bytes));
    cells.push_back(total.peak_allocation);
    table.add(std::move(cells));
  }
  return table.text(width);
}

/// What lies on the device of each process: a line each, and what the lines leave of what the
/// driver says is used.
std::string device_memory_text(const std::vector<store::NamedText>& texts,
                               std::optional<size_t> width) {
  std::string text;
  for (const store::NamedText& entry : texts) {
    if (entry.name != reports::kDeviceMemoryText) continue;
    const auto account = reports::read_device_account(entry.value);
    if (!account) {
      text += "  cannot be read\n";
      continue;
    }
    TextTable table({{"  " + account->ranks, Align::left, 0, true},
                     {"bytes", Align::right},
                     {"share", Align::right}});
    const auto add = [&](const std::string& name, int64_t bytes, double ratio) {
      table.add({"  " + name, base::format_bytes(bytes), base::format_ratio(ratio)});
    };
    for (const auto& line : account->lines) add(line.name, line.bytes, line.used_ratio);
    add(account->rest.name, account->rest.bytes, account->rest.used_ratio);
    add("used, as the driver says", account->driver_used_bytes, 1);
    text += table.text(width);
  }
  return text;
}

std::string trace_text(const std::vector<store::NamedText>& texts, std::optional<size_t> width) {
  std::string text;
  for (const store::NamedText& entry : texts) {
    if (entry.name == reports::kTraceNoteText) text += wrapped(entry.value, width);
  }
  return text;
}

/// What was noted of the run, such as settings that its log has otherwise than the command.
std::string notes_text(const std::vector<store::NamedText>& texts, std::optional<size_t> width) {
  std::string text;
  for (const store::NamedText& entry : texts) {
    const bool is_note = entry.name == "note" || entry.name == reports::kForcedBalancingText;
    if (is_note) text += wrapped(entry.value, width);
  }
  return text;
}

/// Every line two blanks further right.
std::string indented(std::string_view text) {
  std::string lines;
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size());
    lines += fmt::format("  {}\n", text.substr(start, end - start));
    start = end + 1;
  }
  return lines;
}

std::string cut_lines(const std::string& text, std::optional<size_t> width) {
  if (!width) return text;
  std::string cut;
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size());
    cut += cut_to_width(std::string_view(text).substr(start, end - start), *width) + "\n";
    start = end + 1;
  }
  return cut;
}

/// Of somebody else's engine: what differs from the user's command, and the whole command.
std::string engine_text(const store::Store& store, const store::TrialRow& trial) {
  const auto changes = reports::engine_changes(trial);
  if (!changes) return {};
  std::string lines;
  for (const std::string& change : *changes) lines += fmt::format("  {}\n", one_line(change));
  const reports::EngineRun run = reports::engine_run_of(store, trial);
  const std::string place = run.folder.empty() ? "" : fmt::format(", in {}", one_line(run.folder));
  return section("Settings that differ from your command", lines.empty() ? "  none\n" : lines) +
         section("Command" + place,
                 run.command.empty() ? "" : fmt::format("  {}\n", one_line(run.command)));
}

/// What became of the graphs of a trial on a GPU, all ranks together.
std::string graphs_text(const std::vector<store::MetricRow>& rows) {
  std::map<std::string, double> sums;
  for (const store::MetricRow& row : rows) {
    if (row.rank >= 0 && row.name.starts_with("num_graph")) sums[row.name] += row.value;
  }
  if (sums.empty()) return {};
  return fmt::format("  {} captured, {} launches of them, {} parts given up\n",
                     base::format_count(sums["num_graphs"]),
                     base::format_count(sums["num_graph_replays"]),
                     base::format_count(sums["num_graphs_given_up"]));
}

std::string metrics_text(const std::vector<store::MetricRow>& rows, std::optional<size_t> width) {
  TextTable table({{"  metric"}, {"value", Align::right}, {"meaning"}});
  bool has_rows = false;
  for (const store::MetricRow& row : rows) {
    if (row.rank >= 0) continue;
    has_rows = true;
    const store::MetricInfo& info = store::metric_info(row.name);
    table.add({"  " + row.name, base::format_value(row.value, info.unit), std::string(info.help)});
  }
  return has_rows ? table.text(width) : "";
}

}  // namespace

std::string trial_details_text(const store::Store& store, const store::TrialRow& trial,
                               std::optional<size_t> width) {
  const std::vector<store::TrialRow> all = store.list_trials(trial.sweep_id);
  const SweepView view(store, trial.sweep_id);
  std::string text = head_text(view, trial, title_of(store, trial, baseline_of(all)));
  std::string knobs;
  for (const store::NamedText& knob : trial.knobs) {
    knobs += fmt::format("  {:<36} {}\n", knob.name, one_line(knob.value));
  }
  const std::vector<store::NamedText> texts = store.read_texts(trial.id);
  const bool is_foreign = reports::is_of_another_engine(trial);
  std::string told;
  for (const store::DecisionRow& decision : store.read_decisions(trial.sweep_id)) {
    if (decision.trial_id == trial.id) {
      told += wrapped(fmt::format("{}: {}", name_of(decision.kind), decision.text), width);
    }
  }
  std::string log;
  for (const store::NamedText& entry : texts) {
    const bool is_told_above = is_foreign && entry.name == reports::kCommandText;
    if (is_told_above) continue;
    if (entry.name == "command" || entry.name == "stderr" || entry.name == "device_kernels") {
      log += fmt::format("  {}: {}\n", entry.name, one_line(entry.value));
    }
  }
  text += section("Knobs", knobs);
  // Whole on every terminal: it is there to be copied.
  const std::string flags = is_foreign ? engine_text(store, trial)
                                       : section("Megatron-LM flags", indented(flags_block(trial)));
  std::string rest = section("Measurements", measurements_text(view, trial, width));
  rest += section("Decisions", told);
  rest += section("Notes", notes_text(texts, width));
  rest += section("Wall", wall_text(texts, width));
  rest +=
      section("Memory at the peak", memory_text(store.read_memory(trial.id), is_foreign, width));
  rest += section("Memory of the device", device_memory_text(texts, width));
  rest += section("Trace", trace_text(texts, width));
  const std::vector<store::MetricRow> metrics = store.read_metrics(trial.id);
  rest += section("Graphs (all ranks)", graphs_text(metrics));
  rest += section("Metrics (whole run)", metrics_text(metrics, width));
  rest += section("Log", log);
  return cut_lines(text, width) + flags + cut_lines(rest, width);
}

}  // namespace moetune::sweeps

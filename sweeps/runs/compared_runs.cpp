#include "sweeps/runs/compared_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"
#include "kernels/base/units.h"
#include "kernels/base/utf8.h"
#include "profiler/analysis/trace_figures.h"
#include "profiler/analysis/trace_windows.h"
#include "reports/or_null.h"
#include "sweeps/runs/known_run.h"
#include "sweeps/table.h"

namespace moetune::sweeps {

namespace {

using nlohmann::json;
using profiler::MedianInterval;
using profiler::WindowKind;

constexpr size_t kFewestSteps = 3;
constexpr size_t kMostKernels = 20;

/// Values of the steps of a run.
using StepValues = std::vector<double>;
/// Of one figure by step, for means over ranks.
using ByStep = std::map<int64_t, StepValues>;

StepValues means_of(const ByStep& by_step) {
  StepValues means;
  for (const auto& [step, values] : by_step) {
    double sum = 0;
    for (const double value : values) sum += value;
    means.push_back(sum / static_cast<double>(values.size()));
  }
  return means;
}

struct Figures {
  std::vector<std::pair<std::string, std::string>> order;  ///< name and unit
  std::map<std::string, StepValues> values;

  void add(const std::string& name, const std::string& unit, StepValues steps) {
    std::erase_if(steps, [](double value) { return !std::isfinite(value); });
    if (steps.empty() || values.contains(name)) return;
    order.emplace_back(name, unit);
    values[name] = std::move(steps);
  }
};

/// A rate of the run as a whole, by steps: it varies as their time does. Their median is the rate.
StepValues by_steps(double rate, const RunFacts& facts) {
  const auto is_time = [](double seconds) { return std::isfinite(seconds) && seconds > 0; };
  if (!facts.step_time || facts.step_time->steady_s.empty() ||
      !std::ranges::all_of(facts.step_time->steady_s, is_time)) {
    return {rate};
  }
  const StepTime& time = *facts.step_time;
  const bool has_batches = time.steady_batches.size() == time.steady_s.size() &&
                           std::ranges::all_of(time.steady_batches, [](const StepBatch& b) {
                             return b.num_sequences > 0;
                           });
  StepValues rates;
  for (size_t i = 0; i < time.steady_s.size(); ++i) {
    // Batches may grow: a step of four times as many sequences may take four times as long.
    rates.push_back((has_batches ? time.steady_batches[i].num_sequences : 1) / time.steady_s[i]);
  }
  const double median = profiler::median_interval(rates).median;
  for (double& value : rates) value *= rate / median;
  return rates;
}

void add_logged(const RunFacts& facts, Figures& figures) {
  if (facts.step_time) figures.add("step_time_s", "s", facts.step_time->steady_s);
  if (facts.tokens_per_s_per_gpu) {
    figures.add("tokens_per_s_per_gpu", "tokens/s", by_steps(*facts.tokens_per_s_per_gpu, facts));
  }
  if (facts.tflops_per_gpu) {
    figures.add("tflops_per_gpu", "TFLOP/s", by_steps(*facts.tflops_per_gpu, facts));
  }
  if (facts.peak_memory) {
    figures.add("peak_memory_bytes", "bytes", {static_cast<double>(facts.peak_memory->bytes)});
  }
}

/// Microseconds of each key of a budget, by window of the kind, mean over ranks.
void add_traced(const Diagnosis& diagnosis, WindowKind kind, Figures& figures) {
  std::map<std::string, ByStep> keys;
  std::vector<std::string> order;
  for (const std::vector<DiagnosedWindow>& windows : diagnosis.windows) {
    int64_t step = 0;
    for (const DiagnosedWindow& window : windows) {
      if (window.kind != kind) continue;
      const auto add = [&](const std::string& key, int64_t ns) {
        if (!keys.contains(key)) order.push_back(key);
        keys[key][step].push_back(static_cast<double>(ns) / 1e3);
      };
      for (const profiler::BudgetKey& key : profiler::budget_keys()) {
        if (key.is_time) add(key.name, window.figures.wide.*key.value);
      }
      add("idle_before_launch_us", window.figures.idle.before_launch_ns);
      ++step;
    }
  }
  for (const std::string& key : order) figures.add(key, "us", means_of(keys[key]));
}

bool has_windows(const Diagnosis& diagnosis, WindowKind kind) {
  return std::ranges::all_of(diagnosis.windows, [&](const auto& windows) {
    return std::ranges::find(windows, kind, &DiagnosedWindow::kind) != windows.end();
  });
}

/// What both can be compared by: steps, where they have any, or all that was launched, or all.
WindowKind common_windows(const Diagnosis& before, const Diagnosis& after) {
  for (const WindowKind kind : {WindowKind::step_by_launch, WindowKind::launched}) {
    if (has_windows(before, kind) && has_windows(after, kind)) return kind;
  }
  return WindowKind::whole;
}

/// Microseconds of each kernel in a window of the kind, mean over ranks. One without it has 0.
std::map<std::string, StepValues> kernels_of(const Diagnosis& diagnosis, WindowKind kind) {
  std::map<std::string, std::map<int64_t, double>> sums;
  int64_t num_steps = 0;
  for (const profiler::ImportedTrace& trace : diagnosis.traces) {
    const profiler::TraceWindows windows(trace);
    int64_t step = 0;
    windows.for_each([&](const profiler::TraceWindow& window) {
      if (window.kind != kind) return;
      for (const profiler::KernelSum& sum :
           profiler::top_kernels(trace, window.ops, window.ops.size())) {
        sums[trace.names[sum.name]][step] +=
            static_cast<double>(sum.sum_ns) / 1e3 / static_cast<double>(diagnosis.traces.size());
      }
      num_steps = std::max(num_steps, ++step);
    });
  }
  std::map<std::string, StepValues> kernels;
  for (const auto& [name, by_step] : sums) {
    StepValues& steps = kernels[name];
    steps.assign(static_cast<size_t>(num_steps), 0);
    for (const auto& [step, us] : by_step) steps[static_cast<size_t>(step)] = us;
  }
  return kernels;
}

ComparedFigure compared(const std::string& name, const std::string& unit, StepValues before,
                        StepValues after) {
  ComparedFigure figure;
  figure.name = name;
  figure.unit = unit;
  const bool has_noise = std::min(before.size(), after.size()) >= kFewestSteps;
  figure.before = profiler::median_interval(std::move(before));
  figure.after = profiler::median_interval(std::move(after));
  if (figure.before.median != 0) {
    figure.change_ratio = figure.after.median / figure.before.median - 1;
  } else if (figure.after.median == 0) {
    figure.change_ratio = 0;
  }
  if (has_noise) {
    figure.is_beyond_noise =
        figure.after.low > figure.before.high || figure.after.high < figure.before.low;
  }
  return figure;
}

bool logs_time(const RunDiagnosis& run) { return run.facts && run.facts->step_time.has_value(); }

/// `has_traced_time`: no log says how long steps take.
Figures figures_of(const RunDiagnosis& run, WindowKind kind, bool has_traced_time) {
  Figures figures;
  // A rate by the profiler's step times would be another figure than one of a log.
  if (run.facts) add_logged(run.facts->step_time ? known_run(run).facts : *run.facts, figures);
  if (run.traces && has_traced_time) {
    ByStep times;
    for (const StepValues& own : step_times_s(*run.traces)) {
      for (size_t step = 0; step < own.size(); ++step) {
        times[static_cast<int64_t>(step)].push_back(own[step]);
      }
    }
    figures.add("step_time_s", "s", means_of(times));
  }
  if (run.traces) add_traced(*run.traces, kind, figures);
  return figures;
}

double moved(const ComparedFigure& figure) {
  return std::abs(figure.after.median - figure.before.median);
}

json interval_json(const MedianInterval& interval) {
  return {{"median", interval.median},
          {"low", interval.low},
          {"high", interval.high},
          {"num_values", interval.num_values}};
}

json figure_json(const ComparedFigure& figure) {
  return {{"name", figure.name},
          {"unit", figure.unit},
          {"before", interval_json(figure.before)},
          {"after", interval_json(figure.after)},
          {"change_ratio", reports::or_null(figure.change_ratio)},
          {"is_beyond_noise", reports::or_null(figure.is_beyond_noise)}};
}

json compared_wall_json(const WallInShort& wall) {
  return {{"label", wall.label},
          {"sub_cause", reports::text_or_null(wall.sub_cause)},
          {"share_ratio", reports::or_null(wall.share_ratio)}};
}

bool is_wall_known(const WallInShort& wall) { return wall.label != name_of(base::Wall::unknown); }

/// "host (launch) 31.0 %".
std::string compared_wall_text(const WallInShort& wall) {
  std::string text = wall.label;
  if (!wall.sub_cause.empty()) text += fmt::format(" ({})", wall.sub_cause);
  // Of an unknown wall the share is that of unexplained time.
  if (wall.share_ratio && is_wall_known(wall)) text += " " + base::format_ratio(*wall.share_ratio);
  return text;
}

/// Names of templates may have a thousand characters; JSON has them whole.
constexpr size_t kMostNameBytes = 100;

void add_row(const ComparedFigure& figure, TextTable& table) {
  const auto value = [](const MedianInterval& interval) {
    return fmt::format("{:.6g}", interval.median);
  };
  table.add({value(figure.before), value(figure.after),
             figure.change_ratio ? fmt::format("{:+.1f} %", 100 * *figure.change_ratio) : "new",
             figure.is_beyond_noise ? (*figure.is_beyond_noise ? "beyond noise" : "within noise")
                                    : "not known",
             figure.unit, base::shortened(figure.name, kMostNameBytes)});
}

}  // namespace

namespace {

/// The loss of the last step that both logs have.
void add_common_loss(const RunDiagnosis& before, const RunDiagnosis& after,
                     RunComparison& comparison) {
  if (!before.facts || !after.facts) return;
  std::map<int64_t, double> losses;
  for (const StepLine& line : before.facts->steps) {
    if (line.loss && std::isfinite(*line.loss)) losses[line.step] = *line.loss;
  }
  const std::vector<StepLine>& steps = after.facts->steps;
  for (auto line = steps.rbegin(); line != steps.rend(); ++line) {
    const auto found = losses.find(line->step);
    if (found == losses.end() || !line->loss || !std::isfinite(*line->loss)) continue;
    comparison.figures.push_back(
        compared(fmt::format("loss_at_step_{}", line->step), "", {found->second}, {*line->loss}));
    return;
  }
}

void differ(const char* what, const std::string& a, const std::string& b,
            RunComparison& comparison) {
  if (a == b) return;
  comparison.notes.push_back(fmt::format("{} differs: {} and {}", what, a, b));
}

/// Of the first trace.
std::string device_of(const Diagnosis& diagnosis) {
  const std::string name = diagnosis.traces.front().device_name();
  return name.empty() ? "not said" : name;
}

/// What makes two runs hard to compare.
void add_differences(const RunFacts& before, const RunFacts& after, RunComparison& comparison) {
  const auto text = [](const std::optional<int64_t>& value) {
    return value ? fmt::format("{}", *value) : std::string("not said");
  };
  differ("framework", std::string(spec::name_of(before.framework)),
         std::string(spec::name_of(after.framework)), comparison);
  differ("world size", text(before.world_size), text(after.world_size), comparison);
  differ("global batch", text(before.global_batch_size), text(after.global_batch_size), comparison);
  differ("sequence length", text(before.seq_length), text(after.seq_length), comparison);
}

}  // namespace

RunComparison compare_runs(const RunDiagnosis& before, const RunDiagnosis& after) {
  RunComparison comparison;
  comparison.wall_before = wall_in_short(before);
  comparison.wall_after = wall_in_short(after);
  const bool are_traced = before.traces && after.traces;
  if (are_traced) comparison.window_kind = common_windows(*before.traces, *after.traces);
  const WindowKind kind = comparison.window_kind;
  const bool has_traced_time = !logs_time(before) && !logs_time(after);
  Figures a = figures_of(before, kind, has_traced_time);
  Figures b = figures_of(after, kind, has_traced_time);
  for (const auto& [name, unit] : a.order) {
    if (!b.values.contains(name)) continue;
    comparison.figures.push_back(
        compared(name, unit, std::move(a.values[name]), std::move(b.values[name])));
  }
  if (are_traced) {
    std::map<std::string, StepValues> of_before = kernels_of(*before.traces, kind);
    std::map<std::string, StepValues> of_after = kernels_of(*after.traces, kind);
    const auto steps_of = [](const std::map<std::string, StepValues>& kernels) {
      return kernels.empty() ? size_t{0} : kernels.begin()->second.size();
    };
    const size_t steps_before = steps_of(of_before);
    const size_t steps_after = steps_of(of_after);
    for (const auto& [name, steps] : of_after) {
      of_before.try_emplace(name, StepValues(steps_before, 0));
    }
    for (auto& [name, steps] : of_before) {
      if (steps_before == 0 || steps_after == 0) break;
      of_after.try_emplace(name, StepValues(steps_after, 0));
      comparison.kernels.push_back(compared(name, "us", steps, of_after[name]));
      comparison.kernels.back().is_kernel = true;
    }
    std::ranges::stable_sort(comparison.kernels, std::greater{}, moved);
    if (comparison.kernels.size() > kMostKernels) comparison.kernels.resize(kMostKernels);
  }
  add_common_loss(before, after, comparison);
  if (are_traced) {
    if (kind != WindowKind::step_by_launch) {
      comparison.notes.push_back(fmt::format(
          "one of the traces marks no steps: {} is compared as a whole, and noise is not known",
          kind == WindowKind::launched ? "what was launched in each" : "each"));
    }
    differ("device", device_of(*before.traces), device_of(*after.traces), comparison);
  }
  if (before.config && after.config) {
    comparison.settings = differing_settings(*before.config, *after.config);
  }
  // Of a run that failed before its first step the settings tell.
  if (comparison.figures.empty() && comparison.settings.empty()) {
    throw base::UsageError("the two runs share no figure: each needs a log with steps, or traces");
  }
  const auto status_note = [&](const RunDiagnosis& run, const char* which) {
    if (!run.other_log.empty()) {
      comparison.notes.push_back(fmt::format("the {} run: {}", which, run.other_log));
    }
    if (!run.facts || run.facts->status == ForeignStatus::ok) return;
    comparison.notes.push_back(
        fmt::format("the {} run ended as {}", which, spec::name_of(run.facts->status)));
  };
  if (before.facts && after.facts) {
    add_differences(known_run(before).facts, known_run(after).facts, comparison);
  }
  status_note(before, "first");
  status_note(after, "second");
  return comparison;
}

json to_json(const RunComparison& comparison) {
  json document = {{"figures", json::array()},
                   {"kernels", json::array()},
                   {"settings", json::array()},
                   {"walls",
                    {{"before", compared_wall_json(comparison.wall_before)},
                     {"after", compared_wall_json(comparison.wall_after)}}},
                   {"notes", comparison.notes}};
  for (const ComparedFigure& figure : comparison.figures) {
    document["figures"].push_back(figure_json(figure));
  }
  for (const ComparedFigure& figure : comparison.kernels) {
    document["kernels"].push_back(figure_json(figure));
  }
  for (const ComparedSetting& setting : comparison.settings) {
    document["settings"].push_back(text_of(setting));
  }
  return document;
}

std::string comparison_text(const RunComparison& comparison, std::optional<size_t> width) {
  const auto table_of = [&](const std::vector<ComparedFigure>& figures, const char* title) {
    TextTable table({{"before", TextTable::Align::right},
                     {"after", TextTable::Align::right},
                     {"change", TextTable::Align::right},
                     {"noise"},
                     {"unit"},
                     {title}});
    for (const ComparedFigure& figure : figures) add_row(figure, table);
    return table.text(width);
  };
  std::string text;
  // What the windows are where they are no steps, a note says.
  const bool has_steps = comparison.window_kind == WindowKind::step_by_launch;
  if (!comparison.figures.empty()) {
    text = table_of(comparison.figures, has_steps ? "figure, of a step" : "figure");
  }
  if (!comparison.kernels.empty()) {
    text +=
        "\n" + table_of(comparison.kernels, has_steps ? "kernel, in a step: what moved most first"
                                                      : "kernel: what moved most first");
  }
  if (is_wall_known(comparison.wall_before) || is_wall_known(comparison.wall_after)) {
    if (!text.empty()) text += '\n';
    text += fmt::format("wall: {} -> {}\n", compared_wall_text(comparison.wall_before),
                        compared_wall_text(comparison.wall_after));
  }
  if (!comparison.settings.empty()) {
    if (!text.empty()) text += '\n';
    text += "settings that differ, from the first to the second:\n";
  }
  for (const ComparedSetting& setting : comparison.settings) {
    if (!setting.before.empty()) text += "- " + one_line(setting.before) + "\n";
    if (!setting.after.empty()) text += "+ " + one_line(setting.after) + "\n";
  }
  for (const std::string& note : comparison.notes) text += "note: " + one_line(note) + "\n";
  return text;
}

}  // namespace moetune::sweeps

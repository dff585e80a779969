#include "sweeps/diagnosis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "kernels/base/error.h"
#include "kernels/base/large_memory.h"
#include "kernels/base/parallel_for.h"
#include "kernels/base/units.h"
#include "profiler/analysis/one_run.h"
#include "profiler/analysis/stats.h"
#include "profiler/analysis/trace_figures.h"
#include "profiler/import/trace_files.h"
#include "reports/or_null.h"
#include "sweeps/analyse.h"
#include "sweeps/device_peaks.h"
#include "sweeps/table.h"

namespace moetune::sweeps {
namespace {

using nlohmann::json;
using profiler::ImportedTrace;
using profiler::WindowKind;
using reports::or_null;
using reports::text_or_null;

/// Exactly what three decimals can say.
json microseconds(int64_t ns) { return static_cast<double>(ns) / 1000; }

json window_json(const DiagnosedWindow& window) {
  json document = {{"window", window.name}};
  for (const profiler::BudgetKey& key : profiler::budget_keys()) {
    const int64_t value = window.figures.wide.*key.value;
    document[key.name] = key.is_time ? microseconds(value) : json(value);
  }
  const std::optional<double> overlap = window.figures.wide.overlap_pct();
  document["overlap_pct"] = overlap ? json(std::round(*overlap * 1000) / 1000) : json();
  const profiler::IdleSplit& idle = window.figures.idle;
  document["idle_before_launch_us"] = microseconds(idle.before_launch_ns);
  document["idle_after_launch_us"] = microseconds(idle.after_launch_ns);
  document["idle_unknown_us"] = microseconds(idle.unknown_ns);
  document["num_idle_gaps"] = idle.num_gaps;
  return document;
}

/// From step to step of one rank. A host that never waits may mark steps that take far less time
/// than the device needs for them: then between the ends of what was launched in each.
std::vector<double> times_of_steps(const ImportedTrace& trace,
                                   const std::vector<DiagnosedWindow>& windows) {
  constexpr double kClearlyLonger = 1.1;
  std::vector<double> on_host;
  for (size_t i = 1; i < trace.steps.size(); ++i) {
    on_host.push_back(static_cast<double>(trace.steps[i].start_ns - trace.steps[i - 1].start_ns) /
                      1e9);
  }
  std::vector<double> lengths;
  std::vector<double> on_device;
  const DiagnosedWindow* last = nullptr;
  for (const DiagnosedWindow& window : windows) {
    if (window.kind != WindowKind::step_by_launch) continue;
    lengths.push_back(static_cast<double>(window.figures.wide.window_ns) / 1e9);
    if (last != nullptr) {
      on_device.push_back(static_cast<double>(window.end_ns - last->end_ns) / 1e9);
    }
    last = &window;
  }
  // Of steps without device work it is not known which are neighbours.
  if (on_host.empty() || on_device.size() != on_host.size()) return on_host;
  const bool is_longer = profiler::median(lengths) > kClearlyLonger * profiler::median(on_host) &&
                         profiler::median(on_device) > kClearlyLonger * profiler::median(on_host);
  return is_longer ? on_device : on_host;
}

/// Of the run, what its traces know.
json run_json(const Diagnosis& diagnosis) {
  const std::vector<ImportedTrace>& traces = diagnosis.traces;
  json run = {{"step_time_s", or_null(step_time_s(diagnosis))}};
  int64_t peak_bytes = 0;
  size_t num_steps = 0;
  for (const ImportedTrace& trace : traces) {
    if (trace.facts.world_size) run["world_size"] = *trace.facts.world_size;
    num_steps = std::max(num_steps, trace.steps.size());
    peak_bytes =
        std::max({peak_bytes, trace.facts.peak_reserved_bytes, trace.facts.peak_allocated_bytes});
  }
  if (num_steps > 0) run["num_steps"] = num_steps;
  if (peak_bytes > 0) run["peak_memory_bytes"] = peak_bytes;
  return run;
}

json wall_json(const profiler::ImportedWall& wall) {
  const bool is_replayed = wall.num_steps > 0;
  return {{"label", base::name_of(wall.label)},
          {"sub_cause", text_or_null(wall.sub_cause)},
          {"rank", or_null(wall.rank)},
          {"share_ratio", wall.share_ratio},
          {"low_ratio", is_replayed ? json(wall.low_ratio) : json()},
          {"high_ratio", is_replayed ? json(wall.high_ratio) : json()},
          {"most_ratio", or_null(wall.most_ratio)},
          {"joint_ratio", or_null(wall.joint_ratio)},
          {"num_replayed_steps", wall.num_steps},
          {"ceilings", profiler::by_name(wall.ceilings)},
          {"unknown_ratio", wall.unknown_ratio},
          {"summary", wall.summary},
          {"evidence", evidence_json(wall.evidence)}};
}

/// Sentences on what a trace lacks.
std::vector<std::string> notes_of(const ImportedTrace& trace) {
  const profiler::TraceFacts& facts = trace.facts;
  std::vector<std::string> notes = facts.notes;
  if (trace.ops.empty()) {
    notes.emplace_back(
        "holds no device work: record with the activities of the device (CUDA), too");
  }
  if (facts.num_clipped > 0) {
    notes.push_back(
        fmt::format("{} events end before they begin and count as 0 long", facts.num_clipped));
  }
  if (facts.num_incomplete > 0) {
    notes.push_back(fmt::format("{} events have no time and are left out", facts.num_incomplete));
  }
  if (trace.names.num_cut() > 0) notes.emplace_back("some names are too long and were cut");
  if (facts.is_rank_guessed) {
    notes.emplace_back("does not say its rank: it is that of the file's name, or was counted");
  }
  return notes;
}

std::string share(int64_t part_ns, int64_t whole_ns) {
  return whole_ns == 0 ? "-"
                       : fmt::format("{:.1f} %", 100.0 * static_cast<double>(part_ns) /
                                                     static_cast<double>(whole_ns));
}

/// Of one trace its windows by launch, of several one window each.
bool is_shown(const Diagnosis& diagnosis, size_t trace, const DiagnosedWindow& window) {
  if (window.kind == WindowKind::step_by_host) return false;
  if (diagnosis.traces.size() == 1) return true;
  const bool has_launched = std::ranges::any_of(
      diagnosis.windows[trace],
      [](const DiagnosedWindow& one) { return one.kind == WindowKind::launched; });
  return window.kind == (has_launched ? WindowKind::launched : WindowKind::whole);
}

std::string windows_table(const Diagnosis& diagnosis, std::optional<size_t> width) {
  TextTable table({{"rank", TextTable::Align::right},
                   {"window"},
                   {"length", TextTable::Align::right},
                   {"compute", TextTable::Align::right},
                   {"comm", TextTable::Align::right, 1},
                   {"exposed", TextTable::Align::right},
                   {"copies", TextTable::Align::right, 2},
                   {"idle", TextTable::Align::right},
                   {"host late", TextTable::Align::right},
                   {"kernels", TextTable::Align::right, 3},
                   {"device", TextTable::Align::left, 4, true}});
  for (const ShownWindow& shown : shown_windows(diagnosis)) {
    const DiagnosedWindow& window = *shown.window;
    const profiler::WindowBudget& budget = window.figures.wide;
    const auto part = [&](int64_t ns) { return share(ns, budget.window_ns); };
    table.add({rank_text(*shown.trace), window.name, base::format_ns(budget.window_ns),
               part(budget.compute_busy_ns), part(budget.comm_busy_ns),
               part(budget.exposed_comm_ns), part(budget.exposed_copy_ns), part(budget.idle_ns),
               part(window.figures.idle.before_launch_ns), fmt::format("{}", budget.num_kernels),
               shown.trace->device_name()});
  }
  return table.text(width);
}

/// What one file has told.
struct ReadFile {
  std::vector<ImportedTrace> traces;
  std::vector<std::vector<DiagnosedWindow>> windows;  ///< of each trace
  std::exception_ptr failure;
};

ReadFile read_and_measure(const std::string& path) {
  ReadFile file;
  try {
    file.traces = profiler::read_trace_file(path);
    for (const ImportedTrace& trace : file.traces) {
      const profiler::TraceWindows windows(trace);
      auto& measured = file.windows.emplace_back();
      windows.for_each([&](const profiler::TraceWindow& window) {
        measured.push_back({window.name, window.kind, windows.measure(window), window.time.end_ns});
      });
    }
  } catch (...) {
    file.failure = std::current_exception();
  }
  return file;
}

/// Ranks that were counted in each file by itself, over all files.
void count_over_files(std::vector<ReadFile>& files) {
  std::set<int64_t> taken;
  const auto for_each = [&](auto&& visit) {
    for (ReadFile& file : files) {
      for (ImportedTrace& trace : file.traces) visit(trace.facts);
    }
  };
  for_each([&](profiler::TraceFacts& facts) {
    if (facts.rank && !facts.is_rank_counted) taken.insert(*facts.rank);
  });
  int64_t next = 0;
  for_each([&](profiler::TraceFacts& facts) {
    if (!facts.is_rank_counted) return;
    while (taken.contains(next)) ++next;
    facts.rank = next++;
  });
}

/// In the order of the paths; as many at a time as there are cores.
std::vector<ReadFile> read_files(const std::vector<std::string>& paths) {
  std::vector<ReadFile> files(paths.size());
  base::parallel_for(paths.size(), [&](size_t i) { files[i] = read_and_measure(paths[i]); });
  count_over_files(files);
  base::release_freed_memory();
  return files;
}

void add_trace(ReadFile& file, size_t place, Diagnosis& diagnosis) {
  diagnosis.traces.push_back(std::move(file.traces[place]));
  diagnosis.windows.push_back(std::move(file.windows[place]));
}

/// A trace with device work in a folder.
struct FoundTrace {
  ReadFile* file = nullptr;
  size_t place = 0;

  [[nodiscard]] const profiler::TraceFacts& facts() const { return file->traces[place].facts; }
};

/// The first one of the recorder that has most, which says most of the run; of as many the first.
const FoundTrace* first_of_most(const std::vector<FoundTrace>& found) {
  std::map<std::string_view, int64_t> counts;
  for (const FoundTrace& one : found) ++counts[one.facts().format];
  const auto most = std::ranges::max_element(
      found, {}, [&](const FoundTrace& one) { return counts.at(one.facts().format); });
  return most == found.end() ? nullptr : &*most;
}

void judge_traces(Diagnosis& diagnosis, const spec::HardwareSpec* hardware,
                  const profiler::MemoryFacts& memory) {
  diagnosis.wall =
      profiler::classify_imported(diagnosis.traces, peaks_of(diagnosis.traces, hardware),
                                  memory_of(diagnosis.traces, hardware, memory));
}

}  // namespace

Diagnosis diagnose_traces(const std::vector<std::string>& paths, const spec::HardwareSpec* hardware,
                          const profiler::MemoryFacts& memory) {
  Diagnosis diagnosis;
  bool has_device_work = false;
  for (ReadFile& file : read_files(paths)) {
    if (file.failure) std::rethrow_exception(file.failure);
    for (size_t i = 0; i < file.traces.size(); ++i) {
      has_device_work = has_device_work || !file.traces[i].ops.empty();
      add_trace(file, i, diagnosis);
    }
  }
  if (!has_device_work) {
    throw base::UsageError(fmt::format(
        "{}: holds no device work: record with the activities of the device (CUDA), too",
        paths.empty() ? "no trace" : paths.front()));
  }
  judge_traces(diagnosis, hardware, memory);
  return diagnosis;
}

Diagnosis diagnose_found_traces(const std::vector<std::string>& paths,
                                std::vector<std::string>& notes, const spec::HardwareSpec* hardware,
                                const profiler::MemoryFacts& memory) {
  std::vector<std::string> left_out;
  std::vector<ReadFile> files = read_files(paths);
  std::vector<FoundTrace> found;
  for (size_t at = 0; at < files.size(); ++at) {
    const std::string& path = paths[at];
    try {
      if (files[at].failure) std::rethrow_exception(files[at].failure);
    } catch (const base::UsageError& error) {
      left_out.push_back(fmt::format("left out: {}", error.what()));
      continue;
    }
    for (size_t i = 0; i < files[at].traces.size(); ++i) {
      const ImportedTrace& trace = files[at].traces[i];
      if (trace.ops.empty()) {
        left_out.push_back(path + " holds no device work: left out");
        continue;
      }
      const auto copy = std::ranges::find_if(found, [&](const FoundTrace& other) {
        return profiler::is_copy_of(trace, other.file->traces[other.place]);
      });
      if (copy != found.end()) {
        left_out.push_back(fmt::format("{} is a copy of {}: left out", path, copy->facts().file));
        continue;
      }
      found.push_back({&files[at], i});
    }
  }
  Diagnosis diagnosis;
  std::vector<int64_t> ranks;
  const FoundTrace* of_most = first_of_most(found);
  const profiler::TraceFacts kept = of_most == nullptr ? profiler::TraceFacts() : of_most->facts();
  for (const FoundTrace& one : found) {
    const profiler::TraceFacts& facts = one.facts();
    if (facts.format != kept.format) {
      left_out.push_back(fmt::format("{} is of {}, {} of {}: left out", facts.file, facts.format,
                                     kept.file, kept.format));
      continue;
    }
    if (const auto rank = facts.rank) {
      if (std::ranges::find(ranks, *rank) != ranks.end()) {
        left_out.push_back(
            fmt::format("{} is another trace of rank {}: left out", facts.file, *rank));
        continue;
      }
      ranks.push_back(*rank);
    }
    add_trace(*one.file, one.place, diagnosis);
  }
  add_left_out(left_out, notes);
  if (!diagnosis.traces.empty()) judge_traces(diagnosis, hardware, memory);
  return diagnosis;
}

void add_left_out(const std::vector<std::string>& left_out, std::vector<std::string>& notes) {
  constexpr size_t kMostNamed = 5;
  const size_t num_named = std::min(left_out.size(), kMostNamed);
  notes.insert(notes.end(), left_out.begin(),
               left_out.begin() + static_cast<std::ptrdiff_t>(num_named));
  if (const size_t num_more = left_out.size() - num_named; num_more > 0) {
    notes.push_back(
        fmt::format("{} more file{} left out", num_more, num_more == 1 ? " is" : "s are"));
  }
}

json to_json(const Diagnosis& diagnosis) {
  json ranks = json::array();
  for (size_t i = 0; i < diagnosis.traces.size(); ++i) {
    const ImportedTrace& trace = diagnosis.traces[i];
    json windows = json::array();
    for (const DiagnosedWindow& window : diagnosis.windows[i]) {
      windows.push_back(window_json(window));
    }
    ranks.push_back({{"rank", or_null(trace.facts.rank)},
                     {"file", trace.facts.file},
                     {"format", trace.facts.format},
                     {"device", text_or_null(trace.device_name())},
                     {"num_steps", trace.steps.size()},
                     {"windows", std::move(windows)},
                     {"notes", notes_of(trace)}});
  }
  return {{"run", run_json(diagnosis)},
          {"ranks", std::move(ranks)},
          {"wall", wall_json(diagnosis.wall)},
          {"remedies", json::array()}};
}

std::vector<std::vector<double>> step_times_s(const Diagnosis& diagnosis) {
  std::vector<std::vector<double>> times;
  for (size_t i = 0; i < diagnosis.traces.size(); ++i) {
    times.push_back(times_of_steps(diagnosis.traces[i], diagnosis.windows[i]));
  }
  return times;
}

std::optional<double> step_time_s(const Diagnosis& diagnosis) {
  std::vector<double> seconds;
  for (const std::vector<double>& own : step_times_s(diagnosis)) {
    seconds.insert(seconds.end(), own.begin(), own.end());
  }
  if (seconds.empty()) return std::nullopt;
  return profiler::median(std::move(seconds));
}

std::string rank_text(const ImportedTrace& trace) {
  return trace.facts.rank ? fmt::format("{}", *trace.facts.rank) : "?";
}

std::vector<ShownWindow> shown_windows(const Diagnosis& diagnosis) {
  std::vector<ShownWindow> shown;
  for (size_t i = 0; i < diagnosis.traces.size(); ++i) {
    for (const DiagnosedWindow& window : diagnosis.windows[i]) {
      if (is_shown(diagnosis, i, window)) shown.push_back({&diagnosis.traces[i], &window});
    }
  }
  return shown;
}

std::vector<std::string> trace_notes(const Diagnosis& diagnosis) {
  std::vector<std::string> notes;
  std::set<std::string> told;  // a file of several ranks says the same of each
  for (const ImportedTrace& trace : diagnosis.traces) {
    for (const std::string& note : notes_of(trace)) {
      std::string line = fmt::format("{}: {}", one_line(trace.facts.file), one_line(note));
      if (told.insert(line).second) notes.push_back(std::move(line));
    }
  }
  return notes;
}

std::string windows_text(const Diagnosis& diagnosis, std::optional<size_t> width) {
  std::string text = windows_table(diagnosis, width);
  for (const std::string& note : trace_notes(diagnosis)) text += fmt::format("note: {}\n", note);
  return text;
}

std::vector<std::string> evidence_texts(const profiler::ImportedWall& wall) {
  std::vector<std::string> texts;
  for (const profiler::Evidence& evidence : wall.evidence) {
    const bool is_said = evidence.unit == "ratio" || evidence.unit == "count";
    texts.push_back(is_said
                        ? one_line(evidence.text)
                        : fmt::format("{}: {}", base::format_value(evidence.value, evidence.unit),
                                      one_line(evidence.text)));
  }
  return texts;
}

std::vector<std::string> evidence_texts(const Diagnosis& diagnosis) {
  std::vector<std::string> texts = evidence_texts(diagnosis.wall);
  size_t num_steps = 0;
  for (const ImportedTrace& trace : diagnosis.traces) {
    num_steps = std::max(num_steps, trace.steps.size());
  }
  for (size_t i = 0; i < texts.size(); ++i) {
    // The first of several sums; those behind it are of the same time.
    if (diagnosis.wall.evidence[i].name != "comm_volume_ns") continue;
    texts[i] += num_steps > 1 ? fmt::format(", over all {} steps", num_steps)
                              : std::string(", over all that was judged");
  }
  return texts;
}

std::string wall_text(const Diagnosis& diagnosis) {
  std::string text = "wall: " + one_line(diagnosis.wall.summary) + "\n";
  for (const std::string& line : evidence_texts(diagnosis)) text += fmt::format("  {}\n", line);
  return text;
}

}  // namespace moetune::sweeps

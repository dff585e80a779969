// Takes from two diagnoses and what differs between them what their page shows.
#include "sweeps/runs/comparison_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "sweeps/runs/diagnosis_report.h"

namespace moetune::sweeps {
namespace {

/// The mean over a rank's windows of one kind. Each of its parts is a mean over the same windows,
/// so that they still add up. Nothing where it has none.
std::optional<reports::DiagnosedBar> mean_bar(const profiler::ImportedTrace& trace,
                                              const std::vector<DiagnosedWindow>& windows,
                                              profiler::WindowKind kind) {
  const int64_t count = std::ranges::count(windows, kind, &DiagnosedWindow::kind);
  if (count == 0) return std::nullopt;
  constexpr int64_t reports::DiagnosedBar::*kSums[] = {
      &reports::DiagnosedBar::window_ns,       &reports::DiagnosedBar::compute_ns,
      &reports::DiagnosedBar::comm_ns,         &reports::DiagnosedBar::exposed_comm_ns,
      &reports::DiagnosedBar::exposed_copy_ns, &reports::DiagnosedBar::idle_ns,
      &reports::DiagnosedBar::host_late_ns,    &reports::DiagnosedBar::num_kernels};
  // Quotients and remainders are summed apart: broken times of a trace, added up, may be more than
  // a number holds.
  reports::DiagnosedBar bar;
  reports::DiagnosedBar rest;
  for (const DiagnosedWindow& window : windows) {
    if (window.kind != kind) continue;
    const reports::DiagnosedBar one = diagnosed_bar(trace, window);
    if (count == 1) return one;
    bar.rank = one.rank;
    bar.device = one.device;
    for (const auto sum : kSums) {
      bar.*sum += one.*sum / count;
      rest.*sum += one.*sum % count;
    }
  }
  for (const auto sum : kSums) bar.*sum += rest.*sum / count;
  bar.window = fmt::format("mean of {} steps", count);
  return bar;
}

reports::ComparedWindow shown_window(profiler::WindowKind kind) {
  switch (kind) {
    case profiler::WindowKind::step_by_host:
    case profiler::WindowKind::step_by_launch:
      return reports::ComparedWindow::step;
    case profiler::WindowKind::launched:
      return reports::ComparedWindow::launched;
    case profiler::WindowKind::whole:
      break;
  }
  return reports::ComparedWindow::whole;
}

reports::ComparedRun compared_run(const NamedRun& run, profiler::WindowKind kind) {
  reports::DiagnosisPage page = diagnosis_page(run.diagnosis, run.path);
  reports::ComparedRun shown;
  shown.name = name_of_run(run.path);
  shown.wall = std::move(page.wall);
  shown.sub_cause = std::move(page.sub_cause);
  shown.summary = std::move(page.summary);
  shown.share_ratio = page.share_ratio;
  shown.shares = std::move(page.shares);
  shown.facts = std::move(page.facts);
  if (run.diagnosis.traces) {
    const Diagnosis& traces = *run.diagnosis.traces;
    for (size_t i = 0; i < traces.traces.size(); ++i) {
      if (auto bar = mean_bar(traces.traces[i], traces.windows[i], kind)) {
        shown.bars.push_back(std::move(*bar));
      }
    }
  }
  return shown;
}

/// "runs/a" and "more/a" have one last part: each is then told with its folder.
void tell_apart(const std::string& before_path, const std::string& after_path,
                reports::ComparisonPage& page) {
  if (page.before.name != page.after.name) return;
  const auto with_folder = [](const std::string& path, std::string& name) {
    std::error_code ignored;
    const std::filesystem::path whole = std::filesystem::weakly_canonical(path, ignored);
    const std::string folder = whole.parent_path().filename().string();
    if (!folder.empty()) name = folder + "/" + name;
  };
  with_folder(before_path, page.before.name);
  with_folder(after_path, page.after.name);
}

reports::ComparedRow compared_row(const ComparedFigure& figure) {
  const auto value = [](const profiler::MedianInterval& interval) {
    return reports::ComparedValue{interval.median, interval.low, interval.high};
  };
  return {.name = figure.name,
          .unit = figure.unit,
          .before = value(figure.before),
          .after = value(figure.after),
          .change_ratio = figure.change_ratio,
          .is_beyond_noise = figure.is_beyond_noise};
}

}  // namespace

reports::ComparisonPage comparison_page(const RunComparison& comparison, const NamedRun& before,
                                        const NamedRun& after) {
  reports::ComparisonPage page;
  page.date = date_of_page();
  page.before = compared_run(before, comparison.window_kind);
  page.after = compared_run(after, comparison.window_kind);
  tell_apart(before.path, after.path, page);
  page.title = fmt::format("{} and {}", page.before.name, page.after.name);
  page.window = shown_window(comparison.window_kind);
  page.differences = comparison.notes;
  for (const ComparedFigure& figure : comparison.figures)
    page.figures.push_back(compared_row(figure));
  for (const ComparedFigure& figure : comparison.kernels)
    page.kernels.push_back(compared_row(figure));
  page.are_settings_known =
      before.diagnosis.config.has_value() && after.diagnosis.config.has_value();
  for (const ComparedSetting& setting : comparison.settings) {
    page.settings.push_back({setting.before, setting.after, setting.is_variable});
  }
  for (const auto& [when, run] : {std::pair{"first", &before}, std::pair{"second", &after}}) {
    std::vector<std::string> notes = run->diagnosis.notes;
    if (run->diagnosis.traces) {
      const std::vector<std::string> more = trace_notes(*run->diagnosis.traces);
      notes.insert(notes.end(), more.begin(), more.end());
    }
    for (const std::string& note : notes) {
      page.notes.push_back(fmt::format("the {} run: {}", when, note));
    }
  }
  return page;
}

}  // namespace moetune::sweeps

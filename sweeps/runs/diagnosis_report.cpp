// Takes from a diagnosis what its page shows.
#include "sweeps/runs/diagnosis_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "profiler/store/store.h"
#include "sweeps/runs/known_run.h"

namespace moetune::sweeps {
namespace {

/// The wall as it is printed: that of the traces, of the failure, or why there is none.
void take_wall(const RunDiagnosis& diagnosis, reports::DiagnosisPage& page) {
  const nlohmann::json wall = to_json(diagnosis).at("wall");
  const auto text = [&](const char* key) {
    return wall.at(key).is_string() ? wall.at(key).get<std::string>() : std::string();
  };
  page.wall = text("label");
  page.sub_cause = text("sub_cause");
  page.summary = text("summary");
  if (wall.at("share_ratio").is_number()) page.share_ratio = wall.at("share_ratio").get<double>();
}

/// As the evidence has them.
std::optional<reports::CommunicationNumbers> communication_of(const profiler::ImportedWall& wall) {
  reports::CommunicationNumbers numbers;
  bool has_any = false;
  for (const auto& [name, ratio] : {std::pair{"comm_volume_ns", &numbers.volume_ratio},
                                    {"comm_exposed_ns", &numbers.exposed_ratio},
                                    {"comm_blocking_ns", &numbers.blocking_ratio}}) {
    const auto fact = std::ranges::find(wall.evidence, name, &profiler::Evidence::name);
    if (fact == wall.evidence.end() || wall.window_ns <= 0) continue;
    *ratio = fact->value / wall.window_ns;
    has_any = true;
  }
  return has_any ? std::optional(numbers) : std::nullopt;
}

void take_traces(const Diagnosis& traces, reports::DiagnosisPage& page) {
  for (size_t i = 0; i < traces.wall.shares.size(); ++i) {
    page.shares.push_back({base::name_of(static_cast<base::Wall>(i)), traces.wall.shares[i]});
  }
  page.evidence = evidence_texts(traces);
  page.communication = communication_of(traces.wall);
  for (const ShownWindow& shown : shown_windows(traces)) {
    page.bars.push_back(diagnosed_bar(*shown.trace, *shown.window));
  }
  page.notes = trace_notes(traces);
}

}  // namespace

std::string name_of_run(const std::string& path) {
  std::error_code ignored;
  const std::filesystem::path whole = std::filesystem::weakly_canonical(path, ignored);
  return whole.has_filename() ? whole.filename().string() : path;
}

std::string date_of_page() {
  // "2026-01-31T12:34:56.789Z" to the minute.
  const std::string now = store::now_utc();
  return fmt::format("{} {} UTC", now.substr(0, 10), now.substr(11, 5));
}

reports::DiagnosedBar diagnosed_bar(const profiler::ImportedTrace& trace,
                                    const DiagnosedWindow& window) {
  const profiler::WindowFigures& figures = window.figures;
  return {.rank = rank_text(trace),
          .window = window.name,
          .device = trace.device_name(),
          .window_ns = figures.wide.window_ns,
          .compute_ns = figures.wide.compute_busy_ns,
          .comm_ns = figures.wide.comm_busy_ns,
          .exposed_comm_ns = figures.wide.exposed_comm_ns,
          .exposed_copy_ns = figures.wide.exposed_copy_ns,
          .idle_ns = figures.wide.idle_ns,
          .host_late_ns = figures.idle.before_launch_ns,
          .num_kernels = figures.wide.num_kernels};
}

reports::DiagnosisPage diagnosis_page(const RunDiagnosis& diagnosis, const std::string& name) {
  reports::DiagnosisPage page;
  page.title = fmt::format("Diagnosis of {}", name);
  page.date = date_of_page();
  page.facts = fact_lines(diagnosis);
  if (diagnosis.traces) take_traces(*diagnosis.traces, page);
  take_wall(diagnosis, page);
  page.failure_heading = what_failure_asks_for(diagnosis);
  page.failure_heading.front() = 'W';  // as a title
  for (const Remedy& remedy : diagnosis.remedies) {
    page.remedies.push_back({.flags = remedy.flags,
                             .ceiling_ratio = remedy.is_for_failure
                                                  ? std::nullopt
                                                  : std::optional<double>(remedy.ceiling_ratio),
                             .rule = remedy.rule,
                             .why = remedy.why,
                             .refused = remedy.refused,
                             .is_for_failure = remedy.is_for_failure});
  }
  page.notes.insert(page.notes.end(), diagnosis.notes.begin(), diagnosis.notes.end());
  return page;
}

}  // namespace moetune::sweeps

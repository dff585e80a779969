// Looks a run up in the store before it makes one, and writes each new one before it is told.
#include "sweeps/bisect/commit_source.h"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <chrono>
#include <fstream>

#include "kernels/base/environment_failure.h"
#include "sweeps/bisect/git_program.h"
#include "sweeps/bisect/old_runs.h"
#include "sweeps/bisect/run_rows.h"
#include "sweeps/bisect/text.h"
#include "sweeps/processes/printed_output.h"
#include "sweeps/version.h"

namespace moetune::sweeps {
namespace {

std::string first_line_of(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line.substr(0, 200);
}

/// Driver and clocks that the cards are set to, by the driver's own program; empty without one.
std::string gpu_settings() {
  Command command;
  command.arguments = {find_in_path("nvidia-smi"), "--format=csv,noheader",
                       "--query-gpu=name,driver_version,clocks.applications.graphics,"
                       "clocks.max.graphics,power.limit"};
  if (command.arguments.front().empty()) return "";
  Attention attention;
  // A driver in trouble may never answer.
  attention.deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  try {
    const PrintedOutput printed = run_and_read(command, attention);
    if (printed.end.why == WhyEnded::interrupted) throw Interrupted();
    return plain_text(printed.out, 1000);
  } catch (const base::EnvironmentFailure&) {
    return "";  // what cannot be started tells nothing
  }
}

}  // namespace

std::string machine_identity() {
  utsname system{};
  uname(&system);
  const std::string cpu = "/sys/devices/system/cpu/cpu0/cpufreq/";
  std::string identity =
      fmt::format("host {}; system {} {}", system.nodename, system.release, system.machine);
  for (const store::NamedText& row : environment_rows()) {
    if (row.name == "cpu" || row.name == "cores") {
      identity += fmt::format("; {} {}", row.name, row.value);
    }
  }
  identity +=
      fmt::format("; governor {}; clocks up to {} kHz", first_line_of(cpu + "scaling_governor"),
                  first_line_of(cpu + "scaling_max_freq"));
  return fmt::format("{}; GPU driver {}; GPUs {}", identity,
                     first_line_of("/proc/driver/nvidia/version"), gpu_settings());
}

CommitSource::CommitSource(store::Store& store, int64_t hunt_id, CommitRunner& runner,
                           std::vector<CommitInfo> commits, std::string key_parts,
                           std::string metric)
    : store_(store),
      hunt_id_(hunt_id),
      runner_(runner),
      commits_(std::move(commits)),
      key_parts_(std::move(key_parts)),
      metric_(std::move(metric)) {}

const std::string& CommitSource::id_of(int position) const {
  return commits_.at(static_cast<size_t>(position)).id;
}

std::string CommitSource::key_of(int position) const {
  return fmt::format("commit {}; {}", id_of(position), key_parts_);
}

CommitRun CommitSource::measure(int position, const std::string& purpose) {
  CommitRun run = runner_.run(id_of(position));
  // The next call looks again.
  if (run.status == RunStatus::interrupted || run.status == RunStatus::not_prepared) return run;
  store_.add_bisect_run(hunt_id_, row_of(run, position, key_of(position), purpose));
  return run;
}

bool CommitSource::is_built(int position) const { return runner_.is_built(id_of(position)); }

void CommitSource::discard_build(int position) { runner_.discard_build(id_of(position)); }

std::vector<HuntRun> CommitSource::earlier() const {
  std::vector<std::pair<std::string, HuntRun>> runs;  // by time
  bool has_good = false;
  const auto keep = [&](const store::BisectRunRow& row, HuntRun run) {
    has_good = has_good || (run.position == 0 && run.run.status == RunStatus::ok);
    // The row is written when the run has ended: its started_at is that time.
    runs.emplace_back(row.started_at, std::move(run));
  };
  for (const store::BisectRunRow& row : store_.read_bisect_runs(hunt_id_)) {
    if (row.position < 0 || row.position >= static_cast<int>(commits_.size())) continue;
    if (row.key == key_of(row.position)) keep(row, {row.position, row.purpose, run_of(row)});
  }
  for (int position = 0; position < static_cast<int>(commits_.size()); ++position) {
    for (const auto& row : store_.read_bisect_runs_of_others(hunt_id_, key_of(position))) {
      std::optional<CommitRun> run = run_of_other(row, metric_);
      if (!run) continue;
      keep(row, {position, tuner::name_of(tuner::RunPurpose::search), std::move(*run)});
    }
  }
  std::stable_sort(runs.begin(), runs.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  // A good end that only failed may have been put right since; without it there is no hunt.
  if (!has_good) std::erase_if(runs, [](const auto& run) { return run.second.position == 0; });
  std::vector<RunTime> times;
  for (const auto& [ended_at, run] : runs) {
    times.push_back({ended_at, run.run.build_seconds + run.run.run_seconds});
  }
  const std::vector<int> pauses = pauses_since(times);
  std::vector<HuntRun> ordered;
  for (size_t i = 0; i < runs.size(); ++i) {
    runs[i].second.num_pauses = pauses[i];
    ordered.push_back(std::move(runs[i].second));
  }
  return ordered;
}

}  // namespace moetune::sweeps

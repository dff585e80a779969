// Measurements to rows of the store and back; see commit_source.h.
#include "sweeps/bisect/commit_source.h"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <fstream>

#include "sweeps/bisect/run_rows.h"
#include "sweeps/version.h"

namespace moetune::sweeps {
namespace {

std::string first_line_of(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line.substr(0, 200);
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
  return identity + "; GPU driver " + first_line_of("/proc/driver/nvidia/version");
}

CommitSource::CommitSource(store::Store& store, int64_t hunt_id, CommitRunner& runner,
                           std::vector<CommitInfo> commits, std::string key_parts)
    : store_(store),
      hunt_id_(hunt_id),
      runner_(runner),
      commits_(std::move(commits)),
      key_parts_(std::move(key_parts)) {}

const std::string& CommitSource::id_of(int position) const {
  return commits_.at(static_cast<size_t>(position)).id;
}

std::string CommitSource::key_of(int position) const {
  return fmt::format("commit {}; {}", id_of(position), key_parts_);
}

CommitRun CommitSource::measure(int position, const std::string& purpose) {
  CommitRun run = runner_.run(id_of(position));
  if (run.status == RunStatus::interrupted) return run;
  store_.add_bisect_run(hunt_id_, row_of(run, position, key_of(position), purpose));
  return run;
}

bool CommitSource::is_built(int position) const { return runner_.is_built(id_of(position)); }

std::vector<HuntRun> CommitSource::earlier() const {
  std::vector<HuntRun> runs;
  for (const store::BisectRunRow& row : store_.read_bisect_runs(hunt_id_)) {
    if (row.position < 0 || row.position >= static_cast<int>(commits_.size())) continue;
    if (row.key != key_of(row.position)) continue;
    // An end that failed may have been put right since; without the ends there is no hunt.
    const bool is_end = row.position == 0 || row.position + 1 == static_cast<int>(commits_.size());
    if (is_end && row.status != name_of(RunStatus::ok)) continue;
    runs.push_back({row.position, row.purpose, run_of(row)});
  }
  return runs;
}

}  // namespace moetune::sweeps

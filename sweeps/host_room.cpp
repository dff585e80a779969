// Reads what the kernel says. Formats: proc_meminfo(5), cgroups(7), and the kernel's cgroup-v1 and
// -v2 memory documentation.
#include "sweeps/host_room.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <string_view>

#include "engine/plan/layout.h"
#include "kernels/base/environment_failure.h"
#include "kernels/base/units.h"
#include "sweeps/strategies.h"

namespace moetune::sweeps {
namespace {

/// What a rank's process and threads need beside the emulated devices: records of a trace, the
/// text, libraries, stacks.
constexpr double kOverheadRatio = 0.05;
constexpr int64_t kOverheadBytes = int64_t{64} << 20;

/// The number behind a word at the beginning of a line; none when there is no such line.
std::optional<int64_t> number_after(const std::string& path, std::string_view word) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string name;
    int64_t value = 0;
    if (fields >> name && name == word && fields >> value) return value;
  }
  return std::nullopt;
}

/// A file that holds one number. "max", and what no machine has, is none.
std::optional<int64_t> number_in(const std::string& path) {
  constexpr int64_t kUnlimited = int64_t{1} << 60;
  std::ifstream file(path);
  int64_t value = 0;
  if (!(file >> value) || value >= kUnlimited) return std::nullopt;
  return value;
}

/// The names that the two versions of control groups have for the same things.
struct GroupFiles {
  const char* limit;
  const char* used;
  const char* reclaimable;  ///< a line of memory.stat: cached files that are given up first
};
constexpr GroupFiles kVersion1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                  "total_inactive_file"};
constexpr GroupFiles kVersion2 = {"memory.max", "memory.current", "inactive_file"};

std::optional<int64_t> left_in_group(const std::string& folder, const GroupFiles& files) {
  const auto limit = number_in(fmt::format("{}/{}", folder, files.limit));
  const auto used = number_in(fmt::format("{}/{}", folder, files.used));
  if (!limit || !used) return std::nullopt;
  const int64_t reclaimable = number_after(folder + "/memory.stat", files.reclaimable).value_or(0);
  return std::max<int64_t>(0, *limit - *used + reclaimable);
}

/// The least that any group from this one up to the root leaves.
std::optional<int64_t> left_in_groups(const std::string& mount, std::string group,
                                      const GroupFiles& files) {
  std::optional<int64_t> least;
  while (true) {
    const auto left = left_in_group(mount + group, files);
    if (left) least = std::min(*left, least.value_or(*left));
    const size_t slash = group.rfind('/');
    if (slash == std::string::npos) return least;
    group.resize(slash);
  }
}

std::optional<int64_t> left_in_all_groups(const std::string& root) {
  std::ifstream file(root + "/proc/self/cgroup");
  std::optional<int64_t> least;
  // "5:cpu,memory:/a/b" in version 1, "0::/a/b" in version 2.
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    std::string group = line.substr(second + 1);
    while (group.ends_with('/')) group.pop_back();
    std::optional<int64_t> left;
    if (controllers == ",,") {
      left = left_in_groups(root + "/sys/fs/cgroup", group, kVersion2);
    } else if (controllers.find(",memory,") != std::string::npos) {
      left = left_in_groups(root + "/sys/fs/cgroup/memory", group, kVersion1);
    }
    if (left) least = std::min(*left, least.value_or(*left));
  }
  return least;
}

int64_t own_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0) return std::numeric_limits<int>::max();
  return CPU_COUNT(&cores);
}

/// Ranks that compute on this machine's cores.
int64_t ranks_here(const spec::TrialSpec& spec) {
  if (spec::is_on_device(spec)) return 0;
  return spec::ranks_of(spec) == spec::RanksAre::alone ? 1
                                                       : plan::layout_of(spec.knobs).world_size();
}

}  // namespace

HostState read_host(const std::string& root) {
  HostState host;
  host.num_cores = own_cores();
  host.num_oom_kills = number_after(root + "/proc/vmstat", "oom_kill");
  if (const auto kilobytes = number_after(root + "/proc/meminfo", "MemAvailable:")) {
    host.available_bytes = *kilobytes << 10;
  }
  const std::optional<int64_t> group = left_in_all_groups(root);
  if (group && *group < host.available_bytes.value_or(*group + 1)) {
    host.available_bytes = group;
    host.is_group_limit = true;
  }
  return host;
}

int64_t host_bytes_of(const spec::TrialSpec& spec, const tuner::Prediction& known) {
  const int64_t num_ranks = ranks_here(spec);
  if (num_ranks == 0) return 0;
  const tuner::Prediction prediction = known.peak_bytes > 0 ? known : predict_memory(spec);
  int64_t bytes = 0;
  if (static_cast<int64_t>(prediction.ranks.size()) == num_ranks) {
    for (const tuner::Prediction::Rank& rank : prediction.ranks) bytes += rank.peak_bytes;
  } else {
    bytes = num_ranks * prediction.peak_bytes;
  }
  // None holds more than its emulated device has.
  if (spec.hardware.memory_bytes > 0) {
    bytes = std::min(bytes, num_ranks * spec.hardware.memory_bytes);
  }
  return bytes + static_cast<int64_t>(static_cast<double>(bytes) * kOverheadRatio) + kOverheadBytes;
}

void check_host_memory(const spec::TrialSpec& spec, int64_t needed_bytes, const HostState& host) {
  if (!host.available_bytes || needed_bytes <= *host.available_bytes) return;
  const int64_t num_ranks = std::max<int64_t>(ranks_here(spec), 1);
  throw base::EnvironmentFailure(fmt::format(
      "{} has {} of memory left, but the {} of this trial, which {} in it, {} about {}{}: nothing "
      "was started; free memory, take a smaller model, batch or layout, or a machine with more",
      host.is_group_limit ? "the control group of this process" : "this machine",
      base::format_bytes(*host.available_bytes),
      num_ranks == 1 ? "one rank" : fmt::format("{} ranks", num_ranks),
      num_ranks == 1 ? "lives" : "all live", num_ranks == 1 ? "needs" : "need",
      base::format_bytes(needed_bytes),
      num_ranks == 1 ? ""
                     : fmt::format(" ({} each)", base::format_bytes(needed_bytes / num_ranks))));
}

std::string cores_note(const spec::TrialSpec& spec, const HostState& host) {
  const int64_t num_ranks = ranks_here(spec);
  if (num_ranks <= host.num_cores) return {};
  return fmt::format("note: {} ranks share {} {}: {}", num_ranks, host.num_cores,
                     host.num_cores == 1 ? "core" : "cores",
                     spec.clock == spec::ClockMode::wall
                         ? "in wall time, waiting for a core counts as part of their steps"
                         : "in virtual time their steps take no longer for it, only the trials do");
}

}  // namespace moetune::sweeps

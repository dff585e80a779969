// Who runs a trial, and whether that process still lives: told by host, process id and start time.
#include <unistd.h>

#include <array>
#include <fstream>
#include <optional>
#include <sstream>

#include "profiler/store/store.h"

namespace moetune::store {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) {
    return "unknown";
  }
  return name.data();
}

// Start time of a living process; empty when there is none. A zombie has ended, only its parent has
// not looked yet.
std::optional<int64_t> start_time(int64_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) {
    return std::nullopt;
  }
  // The command name in brackets may hold anything, brackets and blanks included: fields 3 to 22
  // follow its last ')'.
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) {
    return std::nullopt;
  }
  std::istringstream fields(line.substr(name_end + 1));
  std::string state;
  fields >> state;
  if (state == "Z" || state == "X") {
    return std::nullopt;
  }
  std::string skipped;
  for (int field = 4; field < 22; ++field) {
    fields >> skipped;
  }
  int64_t start = 0;
  return fields >> start ? std::optional(start) : std::nullopt;
}

}  // namespace

Lease current_lease() {
  const auto pid = static_cast<int64_t>(getpid());
  return {pid, host_name(), start_time(pid).value_or(0)};
}

bool is_alive(const Lease& lease) {
  if (lease.host != host_name()) {
    return true;
  }
  return start_time(lease.pid) == std::optional(lease.start);
}

}  // namespace moetune::store

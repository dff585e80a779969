// What the build has written down of itself, and what the machine says of its own name and CPU.
#include "sweeps/version.h"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <fstream>
#include <sstream>
#include <string_view>
#include <thread>

#include "embedded/build_version.h"
#include "embedded/version.h"
#include "kernels/base/units.h"
#include "profiler/store/db.h"

namespace moetune::sweeps {
namespace {

/// Value behind "key : value" in a file of /proc; empty when there is none.
std::string proc_value(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || !line.starts_with(key)) continue;
    const size_t start = line.find_first_not_of(" \t", colon + 1);
    return start == std::string::npos ? "" : line.substr(start);
  }
  return {};
}

std::string memory_text() {
  std::istringstream text(proc_value("/proc/meminfo", "MemTotal"));
  int64_t kib = 0;
  return text >> kib ? base::format_bytes(kib * 1024) : "";
}

std::string sqlite_version() {
  store::Database memory(":memory:", store::OpenMode::read_write_create);
  store::Statement select(memory, "SELECT sqlite_version()");
  return select.step() ? select.get_text(0) : "";
}

}  // namespace

std::string version() { return base::kVersion; }

std::string commit() { return kBuildCommit; }

std::string version_line() { return fmt::format("moetune {} (commit {})", version(), commit()); }

std::vector<store::NamedText> environment_rows() {
  utsname system{};
  uname(&system);
  std::vector<store::NamedText> rows = {
      {"host", system.nodename},
      {"cpu", proc_value("/proc/cpuinfo", "model name")},
      {"cores", std::to_string(std::thread::hardware_concurrency())},
      {"memory", memory_text()},
      {"kernel", fmt::format("{} {} {}", system.sysname, system.release, system.machine)},
      {"compiler", kBuildCompiler},
      {"build_type", kBuildType},
      {"moetune", version()},
      {"commit", commit()},
      {"sqlite", sqlite_version()},
  };
  std::erase_if(rows, [](const store::NamedText& row) { return row.value.empty(); });
  return rows;
}

}  // namespace moetune::sweeps

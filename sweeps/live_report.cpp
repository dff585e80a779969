// Decides when a page is due, and keeps a page that cannot be written from ending the sweep.
#include "sweeps/live_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <filesystem>

#include "kernels/base/error.h"
#include "reports/report.h"
#include "sweeps/stored_flags.h"

namespace moetune::sweeps {

LiveReport::LiveReport(std::string database, std::string path, const std::string& sweep_file)
    : database_(std::move(database)), path_(std::move(path)) {
  if (path_.empty()) return;
  reports::check_target(database_, path_, "--report");
  std::error_code ignored;
  if (std::filesystem::equivalent(path_, sweep_file, ignored)) {
    throw base::UsageError(fmt::format(
        "{}: is the sweep file itself; --report takes the name of the HTML file", path_));
  }
}

void LiveReport::refresh() {
  if (!path_.empty() && std::chrono::steady_clock::now() >= next_) write();
}

void LiveReport::finish() {
  if (!path_.empty()) write();
}

void LiveReport::write() {
  const auto start = std::chrono::steady_clock::now();
  try {
    reports::write_report(database_, path_, {.sweep_id = sweep_id_, .flags = flags_block});
    told_.clear();
  } catch (const std::exception& error) {
    if (note_ && told_ != error.what()) {
      note_(fmt::format("the report was not written: {}", error.what()));
    }
    told_ = error.what();
  }
  const auto end = std::chrono::steady_clock::now();
  next_ =
      end + std::max<std::chrono::steady_clock::duration>(kLeastPause, kCostFactor * (end - start));
}

}  // namespace moetune::sweeps

#include "profiler/import/nsys_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "profiler/import/shown_text.h"

namespace moetune::profiler {
namespace {

// Schemas up to this one are known; columns are read by name, so that older ones can be, too.
constexpr int kKnownMajor = 3;
constexpr int kKnownMinor = 25;
constexpr size_t kMaxShownBytes = 300;

void read_version(ForeignTables& tables, TraceFacts& facts) {
  std::string product;
  std::string schema;
  if (auto rows = tables.rows("META_DATA_EXPORT", {"name", "value"}, 2)) {
    while (rows->next()) {
      const std::string_view name = rows->text(0);
      if (name != "EXPORT_PRODUCT_VERSION" && name != "EXPORT_SCHEMA_VERSION") continue;
      std::string& value = name == "EXPORT_PRODUCT_VERSION" ? product : schema;
      value = shown_text(rows->text(1), 40);
    }
  }
  facts.version = product.empty() || schema.empty() ? product + schema
                                                    : fmt::format("{}, schema {}", product, schema);
  int major = 0;
  int minor = 0;
  const char* const end = schema.data() + schema.size();
  const char* const dot = std::from_chars(schema.data(), end, major).ptr;
  if (dot != end) std::from_chars(dot + 1, end, minor);
  if (schema.empty()) {
    facts.notes.emplace_back("the export does not say the version of its schema");
  } else if (major != kKnownMajor || minor > kKnownMinor) {
    facts.notes.push_back(fmt::format(
        "schema {} is not known here (known: {}.0 to {}.{}): what it renamed is missing", schema,
        kKnownMajor, kKnownMajor, kKnownMinor));
  }
}

void read_devices(ForeignTables& tables, TraceFacts& facts) {
  constexpr size_t kMostDevices = 1024;
  auto rows = tables.rows("TARGET_INFO_GPU", {"id", "name"}, 2);
  if (!rows) return;
  std::vector<std::pair<int64_t, std::string>> devices;
  while (devices.size() < kMostDevices && rows->next()) {
    devices.emplace_back(rows->whole_or(0, 0), shown_text(rows->text(1), kMaxShownBytes));
  }
  std::ranges::sort(devices);
  for (auto& [id, name] : devices) facts.device_names.push_back(std::move(name));
}

/// Warnings and errors of the profiler, such as that it lost records.
void read_warnings(ForeignTables& tables, TraceFacts& facts) {
  auto rows = tables.rows("DIAGNOSTIC_EVENT", {"severity", "text"}, 2, "severity in (2, 3)");
  if (!rows) return;
  constexpr size_t kMostWarnings = 8;
  size_t num_more = 0;
  std::vector<std::string> lines;
  while (rows->next()) {
    std::string line = "Nsight Systems: " + shown_text(rows->text(1), kMaxShownBytes);
    if (std::ranges::find(lines, line) != lines.end()) continue;
    if (lines.size() < kMostWarnings) {
      lines.push_back(std::move(line));
    } else {
      ++num_more;
    }
  }
  facts.notes.insert(facts.notes.end(), lines.begin(), lines.end());
  if (num_more > 0)
    facts.notes.push_back(fmt::format("Nsight Systems: {} more warnings", num_more));
}

}  // namespace

void read_nsys_facts(ForeignTables& tables, TraceFacts& facts) {
  read_version(tables, facts);
  read_devices(tables, facts);
  if (auto rows = tables.rows("TARGET_INFO_SESSION_START_TIME", {"utcEpochNs"}, 1)) {
    if (rows->next()) facts.base_time_ns = rows->whole_or(0, 0);
  }
  facts.has_stacks = tables.has("CUDA_CALLCHAINS");  // of calls
  read_warnings(tables, facts);
  for (const std::string& lack : tables.lacks()) facts.notes.push_back(lack);
}

}  // namespace moetune::profiler

// Checks an account field by field: what is not a number of a device makes all of it nothing.
#include "reports/device_account.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "profiler/store/untrusted_json.h"
#include "reports/format.h"
#include "reports/json_at.h"

namespace moetune::reports {
namespace {

using nlohmann::json;

// Together they keep the sums within 64 bits, and a table that somebody made up within a page.
constexpr int64_t kMostBytes = int64_t{1} << 48;  // 256 TiB
constexpr size_t kMostLines = 1 << 14;            // of all ranks
constexpr size_t kMostNames = 64;
constexpr size_t kMostNameBytes = 80;
// An account is an object with a list of objects with a list of objects.
constexpr store::JsonLimits kAccountLimits{.bytes = 4 << 20, .depth = 8, .values = 1 << 20};

std::optional<int64_t> bytes_of(const json& value) {
  if (value.is_number_unsigned()) {
    const auto bytes = value.get<uint64_t>();
    if (bytes <= static_cast<uint64_t>(kMostBytes)) {
      return static_cast<int64_t>(bytes);
    }
  } else if (value.is_number_integer()) {
    const auto bytes = value.get<int64_t>();
    if (bytes >= -kMostBytes) {
      return bytes;
    }
  }
  return std::nullopt;
}

/// Adds a line of one rank to the line of that name; false when it is none.
bool add_line(DeviceAccount& account, const json& line) {
  const json& name = at(line, "name");
  const std::optional<int64_t> bytes = bytes_of(at(line, "bytes"));
  if (!name.is_string() || !bytes) {
    return false;
  }
  const std::string text = shortened(name.get<std::string>(), kMostNameBytes);
  auto found = std::ranges::find(account.lines, text, &DeviceAccount::Line::name);
  if (found == account.lines.end()) {
    if (account.lines.size() >= kMostNames) {
      return false;
    }
    account.lines.push_back({text, 0, 0});
    found = account.lines.end() - 1;
  }
  found->bytes += *bytes;
  return true;
}

}  // namespace

std::optional<DeviceAccount> read_device_account(const std::string& text) {
  const json document = store::parse_untrusted(text, kAccountLimits);
  const json& ranks = at(document, "ranks");
  const std::optional<int64_t> used = bytes_of(at(document, "driver_used_bytes"));
  if (!ranks.is_array() || ranks.empty() || !used || *used <= 0) {
    return std::nullopt;
  }
  DeviceAccount account;
  account.driver_used_bytes = *used;
  size_t num_lines = 0;
  for (const json& rank : ranks) {
    const json& lines = at(rank, "lines");
    if (!at(rank, "rank").is_number_integer() || !lines.is_array()) {
      return std::nullopt;
    }
    num_lines += lines.size();
    if (num_lines > kMostLines) {
      return std::nullopt;
    }
    for (const json& line : lines) {
      if (!add_line(account, line)) {
        return std::nullopt;
      }
    }
  }
  account.ranks = ranks.size() == 1 ? fmt::format("rank {}", at(ranks[0], "rank").dump())
                                    : fmt::format("{} ranks", ranks.size());
  account.rest.bytes = *used;
  const auto share = [&](int64_t bytes) {
    return static_cast<double>(bytes) / static_cast<double>(*used);
  };
  for (DeviceAccount::Line& line : account.lines) {
    line.used_ratio = share(line.bytes);
    account.rest.bytes -= line.bytes;
  }
  account.rest.name = account.rest.bytes < 0 ? "counted twice" : "not explained";
  account.rest.used_ratio = share(account.rest.bytes);
  return account;
}

}  // namespace moetune::reports

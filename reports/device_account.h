// What a trial on a GPU tells in texts beside its numbers: the account of the device's memory, as
// JSON that may have been written by anybody, and a note on its trace.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace moetune::reports {

/// Names of the texts. There is one of each per process of the trial.
constexpr const char* kDeviceMemoryText = "device_memory";
constexpr const char* kTraceNoteText = "trace_note";

/// What lies on a device, line by line, beside what its driver says is used.
struct DeviceAccount {
  struct Line {
    std::string name;
    int64_t bytes = 0;      ///< negative: it takes something off the others
    double used_ratio = 0;  ///< share of `driver_used_bytes`
  };
  std::string ranks;        ///< "rank 3", "8 ranks": whose lines these are, added up
  std::vector<Line> lines;  ///< in the order in which the ranks tell them
  Line rest;                ///< "not explained", or "counted twice" when there is less than nothing
  int64_t driver_used_bytes = 0;  ///< by all programs on the device; the lines and the rest
};

/// Nothing when the text is not such an account: wrong types, missing keys, numbers that no device
/// can have, lists or nesting longer than any trial makes. Names are as they were found, but short.
std::optional<DeviceAccount> read_device_account(const std::string& text);

}  // namespace moetune::reports

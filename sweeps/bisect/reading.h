// Reads the number that a run was made for: from the last line that it printed, or from the store
// or the log that it left.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moetune::sweeps {

/// Larger numbers are no measurements, and sums of their squares would not hold them.
inline constexpr double kLargestNumber = 1e100;

/// Neither NaN nor beyond `kLargestNumber`, whatever its sign.
bool is_measurement(double number);

/// Numbers under their names; all are measurements.
using Numbers = std::map<std::string, double>;

/// Values of a configuration as JSON texts, by dotted name; long ones as a digest.
using ConfigTexts = std::map<std::string, std::string>;

/// Numbers in the last line of a program's output.
struct PrintedNumbers {
  Numbers numbers;        ///< a bare number is there under the wanted metric's name
  ConfigTexts config;     ///< values of the object under "config"
  std::string complaint;  ///< why the wanted metric is not among them
};
/// `line` is a number, or a JSON object; numbers in objects within it are named "outer.inner".
PrintedNumbers read_printed(std::string_view line, const std::string& metric);

/// The newest trial of a store.
struct StoredNumbers {
  /// Metrics of the whole run as in profiler/store/metrics.cpp; memory_<group>_bytes, the largest
  /// of the ranks; op_<name>_ns, the mean of the ranks that run it; op_<name>_count, the sum.
  Numbers numbers;
  ConfigTexts config;  ///< of the trial, with its defaults filled in
  std::string status;  ///< as in TrialRow; empty: there is no trial
  std::string reason;
};
/// Reads a store. Upgrades a store with an older schema in place, so pass a copy. Throws
/// base::Error if the file is not a store or was written by a newer moetune.
StoredNumbers read_stored(const std::string& path);

/// Reads a training run of another framework from the logs among files and folders. Numbers:
/// step_ns (the median of its steps), peak_bytes, tokens_per_s_per_gpu, tflops_per_gpu, loss_final.
/// `config` is the echoed configuration, `status` a ForeignStatus, empty without a log.
StoredNumbers read_logged(const std::vector<std::string>& paths);

/// The newest "*.db" directly in a folder, without links; empty if there is none.
std::string newest_database(const std::string& folder);

/// The value of a metric, under its own name or the store's name for it. Values that cannot be
/// measurements count as missing.
std::optional<double> find_metric(const Numbers& numbers, const std::string& metric);

}  // namespace moetune::sweeps

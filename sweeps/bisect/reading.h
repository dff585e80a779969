// The number that a run was made for: printed as the last line, or left in a store.
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

/// What the last line of a program's output says.
struct PrintedNumbers {
  Numbers numbers;        ///< a bare number is there under the wanted metric's name
  ConfigTexts config;     ///< of the object under "config"
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
/// Also of a store with an older schema, which is brought up to date in place: give it a copy of
/// your own. Throws base::Error when the file is no store or was written by a newer moetune.
StoredNumbers read_stored(const std::string& path);

/// What the logs among files and folders tell of a training run of another framework, as a store
/// would: step_ns (the median of its steps), peak_bytes, tokens_per_s_per_gpu, tflops_per_gpu,
/// loss_final; the configuration that it echoes; status as in ForeignStatus, empty without a log.
StoredNumbers read_logged(const std::vector<std::string>& paths);

/// The newest "*.db" that lies in a folder itself, links left out; empty when there is none.
std::string newest_database(const std::string& folder);

/// The value of a metric: under its own name, or under the name that the store has for it. What is
/// no measurement counts as absent.
std::optional<double> find_metric(const Numbers& numbers, const std::string& metric);

}  // namespace moetune::sweeps

// What a metric's name says about it: its unit, and whether it is a duration or a counter.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace moetune::sweeps {

/// The metric that is followed if runs fail at the bad end: 1 for a run that fails in the same way,
/// 0 for any other.
inline constexpr const char* kRunFailsMetric = "the run fails";

/// The store's name of a metric that users may call otherwise: step_ns for step_time, peak_bytes
/// for peak_memory. Other names stay as they are.
std::string stored_metric(const std::string& metric);

/// Whether a metric of this name should be the same in every run of one commit, as bytes and counts
/// are. A guess; the hunt notices if it is wrong.
bool is_exact_metric(const std::string& name);

/// Whether numbers of this name may be counters. True if they are exact by their name. True, too,
/// if the name is not that of something measured and each side has three readings at least. The
/// caller checks whether the readings agree.
bool may_be_counter(const std::string& name, const std::vector<double>& a,
                    const std::vector<double>& b);

/// Whether it is a time in any unit: by the end of the name, or because it is one of "phases".
/// False for rates.
bool is_duration_metric(const std::string& name);

/// Whether it is the time of one operation of our own engine, which is no sum and holds no waiting.
bool is_own_operation(const std::string& name);

/// Seconds in one unit of the metric; empty if the name does not say its unit.
std::optional<double> seconds_per_unit(const std::string& name);

}  // namespace moetune::sweeps

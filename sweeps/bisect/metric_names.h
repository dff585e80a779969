// What the name of a metric says.
#pragma once

#include <optional>
#include <string>

namespace moetune::sweeps {

/// What is followed where runs fail at the bad end: 1 for a run that fails as that one does, 0 for
/// one that does not.
inline constexpr const char* kRunFailsMetric = "the run fails";

/// The name in the store for what users may write: step_time is step_ns, peak_memory is peak_bytes;
/// other names are taken as they are.
std::string stored_metric(const std::string& metric);

/// Whether a metric of this name should be the same in every run of one commit: bytes and counts.
/// A guess from the name; the hunt finds out when it is wrong.
bool is_exact_metric(const std::string& name);

/// Whether it is a time, in whatever unit; a rate is none.
bool is_duration_metric(const std::string& name);

/// Seconds in one of its units; none where the name does not say.
std::optional<double> seconds_per_unit(const std::string& name);

}  // namespace moetune::sweeps

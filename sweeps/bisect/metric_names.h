// What the name of a metric says.
#pragma once

#include <optional>
#include <string>
#include <vector>

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

/// Whether numbers of this name may be counters: those that are exact by their name, and others
/// whose name does not speak against it, with three readings of each side at least. The caller
/// checks whether the readings agree.
bool may_be_counter(const std::string& name, const std::vector<double>& a,
                    const std::vector<double>& b);

/// Whether it is a time, in whatever unit: by how the name ends, or as it is one of "phases". A
/// rate is none.
bool is_duration_metric(const std::string& name);

/// The time of one operation of our own engine, which is no sum of others and does not wait.
bool is_own_operation(const std::string& name);

/// Seconds in one of its units; none where the name does not say.
std::optional<double> seconds_per_unit(const std::string& name);

}  // namespace moetune::sweeps

// Statuses of trials that the store and reports ask for. The table of all is spec::TrialStatus,
// which neither may include: a test holds the names together.
#pragma once

#include <string_view>

namespace moetune::store {

inline constexpr std::string_view kTrialRunning = "running";
inline constexpr std::string_view kTrialInvalid = "invalid";
inline constexpr std::string_view kTrialPruned = "pruned";
inline constexpr std::string_view kTrialInterrupted = "interrupted";

/// Whether no process was started for it.
constexpr bool never_ran(std::string_view status) {
  return status == kTrialInvalid || status == kTrialPruned;
}

}  // namespace moetune::store

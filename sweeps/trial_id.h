// How a person names a stored trial on the command line.
#pragma once

#include <string>

#include "profiler/store/store.h"

namespace moetune::sweeps {

/// For the help and the messages of the commands that take one.
inline constexpr const char* kTrialIdHelp =
    "number of the trial, the first digits of its hash, or best, first-fit, baseline of the last "
    "sweep that has one";
inline constexpr const char* kTrialIdWhat = "the trial's number or hash, best or first-fit";

/// By number, by the first digits of the hash, or by what it is to the last sweep of the database
/// that has such a trial: best, first-fit or baseline. Throws base::UsageError where it has no such
/// trial.
store::TrialRow find_trial(const store::Store& store, const std::string& word);

}  // namespace moetune::sweeps

// How one of several processes of a trial has ended, in its own words: a launcher passes on one
// exit code for all of them, and often not that of the cause.
#pragma once

#include <string>

#include "engine/spec/trial_status.h"

namespace moetune::engine {

/// Leaves `out_dir`/last-word-RANK.json: {"code": exit code, "message": why, "time_ns": of the wall
/// clock since 1970}. A process that leaves none was killed. Does nothing where the file cannot be
/// written.
void leave_last_word(const std::string& out_dir, int rank, spec::ExitCode code,
                     const std::string& message) noexcept;

}  // namespace moetune::engine

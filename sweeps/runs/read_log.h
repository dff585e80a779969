// Reading a log of a run of another framework: lines against the tables of forms and failures.
#pragma once

#include <istream>
#include <string>
#include <string_view>

#include "sweeps/runs/run_log.h"

namespace moetune::sweeps {

/// Reads to the end with bounded memory, whatever is in it; `name` stands in places and notes.
ForeignLog read_log(std::istream& in, const std::string& name);

/// The same of a file. Throws base::UsageError where it cannot be read.
ForeignLog read_log_file(const std::string& path);

/// Whether a text, or the beginning of one, is the log of a training run: a form or a failure of
/// the tables can be read from it. Sources, scripts, traces and databases are none.
bool looks_like_log(std::string_view head);

}  // namespace moetune::sweeps

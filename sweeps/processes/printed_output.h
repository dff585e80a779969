// A short command and what it prints, without a file on the disk.
#pragma once

#include <string>

#include "sweeps/processes/attend.h"

namespace moetune::sweeps {

struct PrintedOutput {
  AttendedEnd end;
  std::string out;
  std::string err;
};

/// Runs the command, whose output paths are set here, to its end. Throws as ProcessRunner::start.
PrintedOutput run_and_read(Command command, const Attention& attention);

}  // namespace moetune::sweeps

// The place that a command writes a file to, looked at before anything runs: what is there may be
// what the user works with.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sweeps/trace_file.h"

namespace moetune::sweeps {

enum class OutputKind : uint8_t {
  page,      ///< HTML, of ours
  chrome,    ///< a trace as JSON
  perfetto,  ///< a trace in Perfetto's own format
  hardware,  ///< a hardware file
  rates,     ///< what calibrate writes
  fresh,     ///< a file that is not there yet
};

/// Kind of a trace file.
inline OutputKind output_kind(TraceFormat format) {
  return format == TraceFormat::perfetto ? OutputKind::perfetto : OutputKind::chrome;
}

/// Throws base::UsageError where `path` is no place for a file of this kind: a folder, a folder
/// that is not there or may not be written, one of the command's `inputs`, any SQLite file, or a
/// file that is there and of another kind. `option` is what the user gave it as, "--out". An empty
/// `path` is no output; empty inputs and "-" are none. Devices and pipes may be written, save by
/// pages, which are put in place by their name.
void check_output(const std::string& path, OutputKind kind, const std::string& option,
                  const std::vector<std::string>& inputs);

}  // namespace moetune::sweeps

// How frameworks print what a run does: ONE TABLE, a row a form of line. A new framework or a new
// release is a few rows; the forms of failures stand in failure_forms.h.
#pragma once

#include <span>
#include <string_view>

#include "sweeps/runs/run_log.h"

namespace moetune::sweeps {

class LogCollector;

struct LineForm {
  std::string_view name;    ///< for tests and messages
  std::string_view anchor;  ///< characters that every such line has
  Framework framework;      ///< who prints it; unknown: several do
  int weight = 0;           ///< how much that proves: of several the heaviest counts
  /// `text` is the line without prefixes, or the part of it that belongs to this anchor where two
  /// lines are glued; the anchor stands at `at`. False: it is no such line after all. Null: that
  /// it is there is all it says.
  bool (*read)(std::string_view text, size_t at, LogCollector& log) = nullptr;
};

std::span<const LineForm> line_forms();

}  // namespace moetune::sweeps

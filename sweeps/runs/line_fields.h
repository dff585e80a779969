// What readers of lines share: fields of a step and sizes, each with the words that they stand
// behind.
#pragma once

#include <span>
#include <string_view>

#include "sweeps/runs/run_log.h"

namespace moetune::sweeps {

class LogCollector;

/// What a key of a step line is, and in how much of our unit it counts.
struct StepField {
  std::string_view key;
  StepMember member;
  double scale = 1;
};

/// A size and the words in front of it.
struct SizeField {
  std::string_view key;
  NamedSize member;
};

/// Tells the sizes that the text has to the log. Whether it has any.
bool read_sizes(std::string_view text, std::span<const SizeField> fields, LogCollector& log);

}  // namespace moetune::sweeps

// Ways of making a program wrong, each of which its tape has to give away.
#pragma once

#include <span>

#include "engine/plan/program.h"

namespace moetune::engine::testing {

/// A change of the instruction at `at`. False where it does not apply, or where what it changes is
/// nothing that a device sees.
struct InstrChange {
  const char* name;
  bool (*apply)(plan::Segment& segment, size_t at) = nullptr;
  /// Instead: of operand `index`.
  bool (*apply_to)(plan::Segment& segment, size_t at, size_t index) = nullptr;
};
std::span<const InstrChange> instr_changes();

/// A change of the item at `at`; false alike.
struct ItemChange {
  const char* name;
  bool (*apply)(plan::StepProgram& program, size_t at);
};
std::span<const ItemChange> item_changes();

}  // namespace moetune::engine::testing

// From each operation of the program to its call of the backend.
#pragma once

#include <span>

#include "engine/exec/executor.h"

namespace moetune::engine {

/// One launch: the instruction and its operands as tensors, in the order in which the block has
/// written them.
struct Launch {
  Executor& exec;
  const plan::Instr& instr;
  std::span<const Tensor> t;

  [[nodiscard]] kernels::Backend& backend() const { return exec.rank().backend; }
  [[nodiscard]] const plan::LayerDims& dims() const { return exec.segment().dims; }
  [[nodiscard]] bool is_backward() const { return instr.pass == plan::Pass::backward; }
  [[nodiscard]] bool is_wgrad() const { return instr.pass == plan::Pass::wgrad; }
};

using Binder = void (*)(const Launch&);

/// The binder of an operation; null for communication and host work, and for what only plans know.
Binder binder_of(plan::Op op);

}  // namespace moetune::engine

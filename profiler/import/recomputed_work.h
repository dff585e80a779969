// Which device work computed activations a second time, as memory was not to keep them: what was
// launched while autograd ran a forward pass within the backward pass. PyTorch's profiler says it
// by operators, and other tools by the ranges of emit_nvtx().
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "profiler/imported_trace.h"

namespace moetune::profiler {

/// Begins the name of what autograd runs for each gradient; the function's name follows.
inline constexpr std::string_view kGradientRange = "autograd::engine::evaluate_function: ";

/// Collects the ranges of a process that tell. Rules:
///  - Launches within a gradient are backward, those within a gradient of a checkpoint a second
///    forward. Of gradients within gradients the innermost counts.
///  - What autograd records for a later gradient is forward, too: in a plain gradient it records
///    nothing. So checkpoints show that run in the hooks of saved tensors, and have no name.
///  - Where it records a gradient itself, second derivatives are computed, and nothing is told.
class RecomputedWork {
 public:
  /// A range of a host thread.
  struct Range {
    ImportedThread thread;
    int64_t start_ns = 0;
    int64_t end_ns = 0;
  };
  /// A gradient of `function`, such as "MmBackward0".
  void add_gradient(const Range& range, std::string_view function);
  /// An operation that autograd records for a later gradient.
  void add_recorded(const Range& range, std::string_view name);

  /// Fills trace.recomputed, behind trace.finish(): all such work except copies to and from the
  /// host. O(n log n).
  void give_to(ImportedTrace& trace) const;

 private:
  enum class Kind : uint8_t { gradient, checkpoint, recorded, recorded_gradient };
  struct Row {
    int64_t start_ns = 0;
    int64_t end_ns = 0;
    uint32_t thread = 0;  ///< row of threads_
    uint32_t name = 0;    ///< hash of the function's name
    Kind kind = Kind::gradient;
  };
  class Nesting;

  void add(const Range& range, std::string_view name, Kind kind);

  RowTable<ImportedThread> threads_;
  std::vector<Row> rows_;
  bool has_gradients_ = false;
};

}  // namespace moetune::profiler

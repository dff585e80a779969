// The points of a sweep: the axes of the file, enumerated over layouts and completed by what follows from them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/spec/sweep_spec.h"
#include "engine/spec/trial_spec.h"

namespace moetune::tuner {

/// A point of the space: legal, or with the first rule it breaks.
struct Point {
  spec::Knobs knobs;
  std::optional<spec::Violation> violation;
};

class SearchSpace {
 public:
  explicit SearchSpace(const spec::SweepSpec& sweep);

  /// Values of an axis as text, in file order; the baseline's value alone for knobs that are not axes.
  [[nodiscard]] std::vector<std::string> values(const std::string& knob) const;
  [[nodiscard]] bool is_axis(const std::string& knob) const;

  /// `from` with one knob changed. For the parallel sizes data_parallel_size follows so that the devices are used up,
  /// unless it is an axis itself. The violation is filled.
  [[nodiscard]] Point with(const spec::Knobs& from, const std::string& knob,
                           const std::string& value) const;

  /// Every combination of the layout axes (cp, ep, pp, micro_batch_size, stage layers), other knobs as in `from`, in a
  /// fixed order.
  [[nodiscard]] std::vector<Point> layouts(const spec::Knobs& from) const;

  /// All combinations of all axes, in a fixed order, at most `limit`.
  [[nodiscard]] std::vector<Point> all(size_t limit) const;

  /// Knobs checked against the constraints.
  [[nodiscard]] Point check(const spec::Knobs& knobs) const;

 private:
  const spec::SweepSpec& sweep_;
};

}  // namespace moetune::tuner

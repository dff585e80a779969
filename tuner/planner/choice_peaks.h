// Peaks of the many choices that one layout has.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "tuner/planner/memory_profile.h"

namespace moetune::tuner::planner {

/// Peaks of many choices of one run's sizes, as PreparedMemory::peak_bytes predicts them. Where
/// choices that follow each other have the same layers, these are priced once.
class ChoicePeaks {
 public:
  /// `memory` has to outlive it.
  ChoicePeaks(const PreparedMemory& memory, double load);

  /// Largest ones of the stages without and with experts, the latter without what is there for a
  /// dispatcher (dispatcher_bytes): one answer for all of them.
  struct Peaks {
    double plain = 0;
    double of_experts = 0;

    [[nodiscard]] double with(double dispatcher_bytes) const {
      return of_experts > 0 ? std::max(plain, of_experts + dispatcher_bytes) : plain;
    }
  };
  Peaks peaks(const spec::PlanKnobs& knobs);
  double peak_bytes(const spec::PlanKnobs& knobs);
  /// Of the run with these knobs.
  double dispatcher_bytes(const spec::PlanKnobs& knobs);

 private:
  /// Layers of choices that differ in nothing that layers hold.
  struct Known {
    spec::PlanKnobs knobs;
    std::vector<PreparedMemory::OfLayers> stages;  ///< the different ones
    /// Of the stages without a head, where the loss says nothing, by all other choices.
    std::vector<std::pair<spec::PlanKnobs, Peaks>> peaks{};
  };

  void choose(const spec::PlanKnobs& knobs);
  [[nodiscard]] Peaks peaks_of(const Known& known, bool has_head, Peaks peaks) const;
  Peaks peaks_without_head(Known& known) const;

  const PreparedMemory& memory_;
  PlanRun run_;
  std::array<Known, 2> known_;  ///< the last ones without and with overlap of exchanges
  std::optional<spec::PlanKnobs> layer_knobs_;
  PreparedMemory::Layers layers_;  ///< under layer_knobs_
};

}  // namespace moetune::tuner::planner

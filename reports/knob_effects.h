// What each knob was worth in a sweep: pairs of trials that differ in it alone say what it does,
// all trials together how much of the spread of step times goes with it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "reports/context.h"

namespace moetune::reports {

struct KnobEffect {
  std::string knob;
  size_t num_values = 0;  ///< that ran to the end
  /// Settings of all other knobs under which several values of this one ran.
  size_t num_settings = 0;
  /// Of these, where the intervals of the slowest and the fastest value lie apart.
  size_t num_clear = 0;
  double median_ratio = 0;  ///< slowest over fastest, less 1: the median of the settings
  double most_ratio = 0;    ///< the largest of them
  std::string best_value;   ///< the fastest one in most of the settings
  size_t num_best = 0;      ///< how many these are
  /// Share of the variance of log(step time) that goes with the value, from 0 to 1. Knobs that were
  /// changed together share it.
  double explained_ratio = 0;
};

/// Of the knobs that vary among the trials that ran to the end (the reference run aside): those
/// with settings first, by most_ratio, then by explained_ratio.
std::vector<KnobEffect> knob_effects(const Context& context);

}  // namespace moetune::reports

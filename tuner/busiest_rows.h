// How uneven routing slows a step down: whoever exchanges rows waits for the rank that gets most.
#pragma once

#include <map>
#include <utility>

#include "engine/plan/route.h"
#include "engine/spec/trial_spec.h"
#include "tuner/received_rows.h"

namespace moetune::tuner {

/// In each layer and micro-batch a rank with as many rows as the busiest of its expert-parallel
/// group gets: the mean of some steps of the profile; balanced without one. Not thread-safe, and
/// `rows` has to outlive it.
class BusiestBindings final : public plan::Bindings {
 public:
  BusiestBindings(const spec::TrialSpec& trial, int rank, const ReceivedRows& rows);
  [[nodiscard]] const plan::Route& at(int64_t layer, int64_t micro_batch) const override;

 private:
  [[nodiscard]] plan::Route made(int64_t layer, int64_t micro_batch) const;

  const spec::TrialSpec& trial_;
  const ReceivedRows& rows_;
  plan::Layout layout_;
  int rank_;
  plan::LayerDims dims_;  ///< of any layer with experts
  plan::Route balanced_;
  mutable std::map<std::pair<int64_t, int64_t>, plan::Route> routes_;
};

}  // namespace moetune::tuner

// The rows of a program's experts as a recorded run has routed them: a routing profile, bound for
// one rank of any layout.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "engine/plan/route.h"
#include "engine/spec/trial_spec.h"
#include "tuner/profile_rows.h"

namespace moetune::tuner {

/// Binds the first step of a profile. A chunk's rows are those of its tokens; where its borders cut
/// a piece of the profile, see rows_of_tokens. Not thread-safe.
class ProfileBindings final : public plan::Bindings {
 public:
  /// The trial must satisfy its constraints. Throws base::Error when the profile was recorded for
  /// another model or batch, or holds no step.
  ProfileBindings(spec::RoutingProfile profile, const spec::TrialSpec& trial, int rank);

  [[nodiscard]] const plan::Route& at(int64_t layer, int64_t micro_batch) const override;

 private:
  void check_counts(int64_t topk, int64_t seq_length) const;
  [[nodiscard]] std::vector<int32_t> counts_of(int64_t layer, int64_t micro_batch) const;

  ProfileRows rows_;
  spec::Knobs knobs_;
  plan::Layout layout_;
  int rank_;
  std::vector<plan::LayerDims> dims_;  ///< by layer
  mutable std::map<std::pair<int64_t, int64_t>, plan::Route> routes_;
};

}  // namespace moetune::tuner

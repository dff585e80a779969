// The rows of a program's experts as a recorded run has routed them: a routing profile, bound for
// one rank of any layout.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "engine/plan/route.h"
#include "engine/spec/routing_profile.h"
#include "engine/spec/trial_spec.h"

namespace moetune::tuner {

/// Of the rows of a piece of a sequence, sorted so that each expert's are spread evenly over the
/// piece's tokens, those of its tokens [begin, end) of `num_tokens`, by expert. Neighbouring ranges
/// add up: no row is lost or counted twice.
std::vector<int64_t> rows_of_tokens(const int32_t* counts, int64_t num_experts, int64_t num_tokens,
                                    int64_t begin, int64_t end);

/// Binds the first step of a profile. A chunk's rows are those of its tokens; where its borders cut
/// a piece of the profile, see rows_of_tokens. Not thread-safe.
class ProfileBindings final : public plan::Bindings {
 public:
  /// The trial must satisfy its constraints. Throws base::Error when the profile was recorded for
  /// another model or batch, or holds no step.
  ProfileBindings(spec::RoutingProfile profile, const spec::TrialSpec& trial, int rank);

  [[nodiscard]] const plan::Route& at(int64_t layer, int64_t micro_batch) const override;

 private:
  void check_counts(int64_t topk) const;
  [[nodiscard]] std::vector<int32_t> counts_of(int64_t layer, int64_t micro_batch) const;
  void add_tokens(int64_t layer, int64_t micro_batch, int source, int64_t begin, int64_t end,
                  int32_t* counts) const;

  spec::RoutingProfile profile_;
  spec::Knobs knobs_;
  int64_t seq_length_;
  plan::Layout layout_;
  int rank_;
  std::vector<int64_t> moe_layer_;     ///< layer -> index among MoE layers, -1: dense
  std::vector<plan::LayerDims> dims_;  ///< by layer
  mutable std::map<std::pair<int64_t, int64_t>, plan::Route> routes_;
};

}  // namespace moetune::tuner

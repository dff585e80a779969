// What a recorded run's router has done with the tokens of any rank, however a layout cuts
// sequences: the one place where the pieces of a routing profile are cut.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/plan/layout.h"
#include "engine/spec/routing_profile.h"
#include "engine/spec/trial_spec.h"

namespace moetune::tuner {

/// Of the rows of a piece of a sequence, sorted so that each expert's are spread evenly over the
/// piece's tokens, those of its tokens [begin, end) of `num_tokens`, by expert. Neighbouring ranges
/// add up: no row is lost or counted twice.
std::vector<int64_t> rows_of_tokens(const int32_t* counts, int64_t num_experts, int64_t num_tokens,
                                    int64_t begin, int64_t end);

class ProfileRows {
 public:
  ProfileRows() = default;
  /// Throws base::Error when the profile was recorded for another model or recipe.
  ProfileRows(spec::RoutingProfile profile, const spec::ModelSpec& model,
              const spec::TrainingSpec& training);

  [[nodiscard]] const spec::RoutingProfile& profile() const { return profile_; }
  /// Index of a layer among those with experts; -1: it has none.
  [[nodiscard]] int64_t moe_layer(int64_t layer) const {
    return moe_layer_[static_cast<size_t>(layer)];
  }
  /// Tokens that a rank holds of a sequence.
  [[nodiscard]] int64_t local_tokens(const plan::Layout& layout) const {
    return plan::num_local(layout, seq_length_);
  }

  /// Adds, by expert, the rows of the tokens [begin, end) of those that `rank` holds of a sequence,
  /// in the order of plan::local_ranges.
  void add(const plan::Layout& layout, int rank, int64_t step, int64_t moe_layer, int64_t sequence,
           int64_t begin, int64_t end, std::span<int64_t> by_expert) const;

 private:
  spec::RoutingProfile profile_;
  int64_t seq_length_ = 0;
  std::vector<int64_t> moe_layer_;
};

}  // namespace moetune::tuner

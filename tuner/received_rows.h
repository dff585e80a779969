// Rows that the experts of each rank receive, by the routing profile of a reference run. Callers
// assume balanced routing when there is no profile. This is the only part of the memory model that
// depends on data.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "engine/plan/layout.h"
#include "engine/spec/model_spec.h"
#include "engine/spec/trial_spec.h"
#include "tuner/profile_rows.h"

namespace moetune::tuner {

/// Answers for one model and recipe; keeps partial sums per way of cutting sequences and
/// experts, so that many layouts are asked cheaply. Not thread-safe.
class ReceivedRows {
 public:
  ReceivedRows() = default;
  /// Throws base::Error when the profile was recorded for another model or recipe.
  ReceivedRows(spec::RoutingProfile profile, const spec::ModelSpec& model,
               const spec::TrainingSpec& training);

  [[nodiscard]] bool has_profile() const { return !rows_.profile().is_empty(); }
  [[nodiscard]] int64_t num_steps() const { return rows_.profile().num_steps; }

  /// Rows of one rank. Requires has_profile(). Keeps references to *this, layout and knobs.
  class OfRank;
  [[nodiscard]] OfRank of_rank(const plan::Layout& layout, const spec::Knobs& knobs,
                               int rank) const;

 private:
  /// rows[(((step * layers + layer) * sequences + sequence) * members + member) * ep + ep_rank]:
  /// rows of the tokens that a member of a tp_cp group holds of a sequence, for the experts of
  /// ep_rank. Among its tensor-parallel ranks `parts` share a sequence.
  using Sums = std::vector<int64_t>;
  const Sums& sums(const plan::Layout& layout, int parts) const;

  ProfileRows rows_;
  mutable std::map<std::tuple<int, int64_t, int, int>, Sums> sums_;  ///< tp, members, parts, ep
};

class ReceivedRows::OfRank {
 public:
  /// Rows that the rank receives in MoE layer `layer` (global index over all layers) of
  /// `micro_batch` at `step` of the profile.
  [[nodiscard]] int64_t at(int64_t step, int64_t layer, int64_t micro_batch) const;

 private:
  friend class ReceivedRows;
  /// A member of the expert-parallel group, whose tokens may go to the rank.
  struct Peer {
    int64_t first_slot = 0;
    int64_t member = 0;
    int dp_rank = 0;
  };

  const ReceivedRows* rows_ = nullptr;
  const plan::Layout* layout_ = nullptr;
  const spec::Knobs* knobs_ = nullptr;
  const Sums* sums_ = nullptr;
  std::vector<Peer> peers_;
  int64_t own_sequences_ = 1;
  int64_t num_members_ = 1;
  int64_t ep_rank_ = 0;
};

}  // namespace moetune::tuner

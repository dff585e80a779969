// Process grid arithmetic: which rank does what. Ranks are numbered cp fastest, then dp, then pp:
// rank = (pp_rank * dp + dp_rank) * cp + cp_rank. Expert parallelism is folded over the dp x cp
// plane of a pipeline stage.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/spec/knobs.h"
#include "engine/spec/model_spec.h"

namespace moetune::plan {

using spec::Knobs;
using spec::ModelSpec;

enum class Group : uint8_t { world, dp_cp, cp, ep, edp, pp, embedding, count };
const char* name_of(Group group);

struct Layout {
  int dp = 1;
  int cp = 1;
  int ep = 1;
  int pp = 1;

  [[nodiscard]] int world_size() const { return dp * cp * pp; }
  [[nodiscard]] int edp() const { return dp * cp / ep; }
  [[nodiscard]] int pp_rank(int rank) const { return rank / (dp * cp); }
  [[nodiscard]] int dp_rank(int rank) const { return rank / cp % dp; }
  [[nodiscard]] int cp_rank(int rank) const { return rank % cp; }
  /// Position within the expert-parallel group: neighbours in rank order.
  [[nodiscard]] int ep_rank(int rank) const { return rank % (dp * cp) % ep; }
  [[nodiscard]] int edp_rank(int rank) const { return rank % (dp * cp) / ep; }
  /// Global ranks of the group that `rank` belongs to, ascending. `embedding`: first and last stage
  /// at the same plane position (one rank when pp is 1).
  [[nodiscard]] std::vector<int> group_ranks(Group group, int rank) const;
  [[nodiscard]] int64_t group_size(Group group) const;
  /// Index of `rank` within its group.
  [[nodiscard]] int rank_in(Group group, int rank) const;
};

Layout layout_of(const Knobs& knobs);

/// Layers of each pipeline stage: [first, first + count). Uneven by first/last counts; otherwise
/// the remainder goes to the earlier stages. Call only with constraints satisfied.
struct StageLayers {
  int64_t first = 0;
  int64_t count = 0;
};
std::vector<StageLayers> split_layers(const ModelSpec& model, const Knobs& knobs);

/// Global index of a sequence within the global batch: micro-batch m of data-parallel rank d, slot
/// b.
int64_t sequence_index(const Layout& layout, const Knobs& knobs, int64_t micro_batch, int dp_rank,
                       int64_t slot);

/// Micro-batches per step and rank.
int64_t num_micro_batches(const Layout& layout, const Knobs& knobs, int64_t global_batch_size);

/// Positions of the tokens of one sequence on a context-parallel rank, ascending within each of the
/// two zig-zag chunks (chunks cp_rank and 2*cp - 1 - cp_rank of 2*cp), so that causal work is
/// balanced. cp 1: all positions.
std::vector<int32_t> local_positions(const Layout& layout, int cp_rank, int64_t seq_length);

/// The communicator that each rank has of each group (by rank and name_of(group)), named by its
/// first rank: which records of different ranks are the same collective.
std::map<std::pair<int32_t, std::string>, int64_t> group_instances(const Layout& layout);

}  // namespace moetune::plan

// Process grid arithmetic: which rank does what. A rank is a point of two grids of axes over the
// same ranks, numbered fastest first: tp, cp, dp, pp for attention and everything dense, etp, ep,
// edp, pp for experts. Every group is a set of axes along which its members differ. A virtual stage
// of the model is a point of a third one: pp, vpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/spec/knobs.h"
#include "engine/spec/model_spec.h"

namespace moetune::plan {

using spec::Knobs;
using spec::ModelSpec;

enum class Axis : uint8_t { tp, cp, dp, pp, etp, ep, edp, vpp };

enum class Group : uint8_t {
  world,
  dp_cp,  ///< who holds the same dense parameters
  cp,
  ep,   ///< who exchanges rows of experts
  edp,  ///< who holds the same experts
  pp,
  embedding,  ///< first and last stage at the same place (one rank when pp is 1)
  tp,
  tp_cp,  ///< who shares the tokens of a sequence
  stage,  ///< everybody of a pipeline stage
  count
};
const char* name_of(Group group);
std::span<const Group> all_groups();
/// The group along all axes of `group` except `axis`; `group` itself where there is no such group.
/// Both have the same members where the axis has one place.
Group without(Group group, Axis axis);

struct Layout {
  int tp = 1;
  int cp = 1;
  int dp = 1;
  int pp = 1;
  int etp = 1;
  int ep = 1;
  int vpp = 1;  ///< virtual stages of each pipeline rank

  [[nodiscard]] int size(Axis axis) const;
  /// Where `rank` stands on the axis, which is not vpp: a rank has all of its virtual stages.
  [[nodiscard]] int place(Axis axis, int rank) const;
  /// Which pipeline rank (pp) has virtual stage `stage` of the model, and which of its own (vpp)
  /// that is.
  [[nodiscard]] int place_of_stage(Axis axis, int stage) const;

  [[nodiscard]] int num_stages() const { return size(Axis::pp) * size(Axis::vpp); }
  [[nodiscard]] int stage_size() const { return tp * cp * dp; }
  [[nodiscard]] int world_size() const { return stage_size() * pp; }
  [[nodiscard]] int edp() const { return stage_size() / (etp * ep); }
  [[nodiscard]] int pp_rank(int rank) const { return place(Axis::pp, rank); }
  [[nodiscard]] int dp_rank(int rank) const { return place(Axis::dp, rank); }
  [[nodiscard]] int cp_rank(int rank) const { return place(Axis::cp, rank); }
  [[nodiscard]] int tp_rank(int rank) const { return place(Axis::tp, rank); }
  [[nodiscard]] int ep_rank(int rank) const { return place(Axis::ep, rank); }
  [[nodiscard]] int etp_rank(int rank) const { return place(Axis::etp, rank); }
  /// Global ranks of the group that `rank` belongs to, ascending.
  [[nodiscard]] std::vector<int> group_ranks(Group group, int rank) const;
  [[nodiscard]] int64_t group_size(Group group) const;
  /// Index of `rank` within its group.
  [[nodiscard]] int rank_in(Group group, int rank) const;
};

Layout layout_of(const Knobs& knobs);

/// Number of the model's layers and of those of its multi-token prediction, which come behind them.
/// Each depth counts, even where all depths share their parameters.
int64_t num_layers_with_mtp(const ModelSpec& model);
/// The kind of one of these layers.
spec::LayerKind kind_of_layer(const ModelSpec& model, int64_t layer);

/// Layers of one virtual stage: [first, first + count).
struct StageLayers {
  int64_t first = 0;
  int64_t count = 0;
};
/// The virtual stages in the order of the model (Layout::place_of_stage). By
/// pipeline_model_parallel_layout; else by the counts of the first and the last pipeline rank, each
/// spread over its virtual stages; otherwise the remainder goes to the earlier stages. Multi-token
/// prediction is not counted: all of it belongs to the last stage, where a layout has to have it.
/// Call only with constraints satisfied.
std::vector<StageLayers> split_layers(const ModelSpec& model, const Knobs& knobs);

/// Global index of a sequence within the global batch: micro-batch m of data-parallel rank d, slot
/// b.
int64_t sequence_index(const Layout& layout, const Knobs& knobs, int64_t micro_batch, int dp_rank,
                       int64_t slot);

/// Micro-batches per step and rank.
int64_t num_micro_batches(const Layout& layout, const Knobs& knobs, int64_t global_batch_size);

/// Positions [begin, end) of a sequence.
struct PositionRange {
  int64_t begin = 0;
  int64_t end = 0;
};
/// What one of `cp` context-parallel ranks has of a sequence: the two zig-zag chunks cp_rank and
/// 2*cp - 1 - cp_rank of 2*cp, so that causal work is balanced. cp 1: all positions. Throws
/// base::Error for a length that 2*cp does not divide.
std::vector<PositionRange> local_ranges(int64_t cp, int64_t cp_rank, int64_t seq_length);

/// The same of a rank's place, and how many that are.
std::vector<PositionRange> local_ranges(const Layout& layout, int rank, int64_t seq_length);
int64_t num_local(const Layout& layout, int64_t seq_length);

/// The same, position by position.
std::vector<int32_t> local_positions(const Layout& layout, int rank, int64_t seq_length);

/// Those of all ranks that share sequences with `rank`, one rank after the other: num_local of
/// each.
std::vector<int32_t> positions_by_rank(const Layout& layout, int rank, int64_t seq_length);

/// The communicator that each rank has of each group (by rank and name_of(group)), named by its
/// first rank: which records of different ranks are the same collective.
std::map<std::pair<int32_t, std::string>, int64_t> group_instances(const Layout& layout);

}  // namespace moetune::plan

// Process grid arithmetic: groups, pipeline stages, and which tokens a rank holds.
#include "engine/plan/layout.h"

#include <algorithm>
#include <array>
#include <span>

#include "kernels/base/error.h"

namespace moetune::plan {

namespace {

using Axes = std::vector<Axis>;

// Fastest first.
constexpr std::array kDense = {Axis::tp, Axis::cp, Axis::dp, Axis::pp};
constexpr std::array kExpert = {Axis::etp, Axis::ep, Axis::edp, Axis::pp};
constexpr std::array kStages = {Axis::pp, Axis::vpp};
using Grid = std::array<Axis, 4>;

const Grid& grid_of(Axis axis) {
  return std::find(kDense.begin(), kDense.end(), axis) != kDense.end() ? kDense : kExpert;
}

/// Where number `at` of a grid stands on one of its axes.
int place_in(std::span<const Axis> grid, const Layout& layout, Axis axis, int at) {
  for (const Axis other : grid) {
    if (other == axis) break;
    at /= layout.size(other);
  }
  return at % layout.size(axis);
}

/// One row a group: its name in traces and the axes along which its members differ.
struct GroupRow {
  Group id;
  const char* name;
  Axes axes;
};
const std::array<GroupRow, static_cast<size_t>(Group::count)>& group_table() {
  static const std::array<GroupRow, static_cast<size_t>(Group::count)> kGroups = {{
      {Group::world, "world", {Axis::tp, Axis::cp, Axis::dp, Axis::pp}},
      {Group::dp_cp, "dp_cp", {Axis::cp, Axis::dp}},
      {Group::cp, "cp", {Axis::cp}},
      {Group::ep, "ep", {Axis::etp, Axis::ep}},
      {Group::edp, "edp", {Axis::edp}},
      {Group::pp, "pp", {Axis::pp}},
      {Group::embedding, "embedding", {Axis::pp}},
      {Group::tp, "tp", {Axis::tp}},
      {Group::tp_cp, "tp_cp", {Axis::tp, Axis::cp}},
      {Group::stage, "stage", {Axis::tp, Axis::cp, Axis::dp}},
  }};
  return kGroups;
}

}  // namespace

const char* name_of(Group group) { return group_table()[static_cast<size_t>(group)].name; }

std::span<const Group> all_groups() {
  static const auto kIds = [] {
    std::array<Group, static_cast<size_t>(Group::count)> ids{};
    std::ranges::transform(group_table(), ids.begin(), &GroupRow::id);
    return ids;
  }();
  return kIds;
}

Group without(Group group, Axis axis) {
  Axes rest = group_table()[static_cast<size_t>(group)].axes;
  if (std::erase(rest, axis) == 0) return group;
  const auto& rows = group_table();
  const auto same =
      std::find_if(rows.begin(), rows.end(), [&](const GroupRow& row) { return row.axes == rest; });
  return same == rows.end() ? group : same->id;
}

int Layout::size(Axis axis) const {
  switch (axis) {
    case Axis::tp:
      return tp;
    case Axis::cp:
      return cp;
    case Axis::dp:
      return dp;
    case Axis::pp:
      return pp;
    case Axis::etp:
      return etp;
    case Axis::ep:
      return ep;
    case Axis::edp:
      return edp();
    case Axis::vpp:
      return vpp;
  }
  return 1;
}

int Layout::place(Axis axis, int rank) const {
  MOETUNE_CHECK(axis != Axis::vpp,
                "rank {} has no place on axis vpp: it has all of its virtual stages", rank);
  return place_in(grid_of(axis), *this, axis, rank);
}

int Layout::place_of_stage(Axis axis, int stage) const {
  MOETUNE_CHECK(axis == Axis::pp || axis == Axis::vpp,
                "stage {} has a place on the axes pp and vpp only", stage);
  return place_in(kStages, *this, axis, stage);
}

std::vector<int> Layout::group_ranks(Group group, int rank) const {
  MOETUNE_CHECK(rank >= 0 && rank < world_size(), "rank {} is not in a world of {}", rank,
                world_size());
  const GroupRow& row = group_table()[static_cast<size_t>(group)];
  // Steps along the group's axes, from the member that stands at 0 on all of them.
  std::vector<int> ranks = {rank};
  int stride = 1;
  for (const Axis axis : grid_of(row.axes.front())) {
    if (std::find(row.axes.begin(), row.axes.end(), axis) != row.axes.end()) {
      std::vector<int> wider;
      for (int at = 0; at < size(axis); ++at) {
        for (const int member : ranks) {
          wider.push_back(member + (at - place(axis, rank)) * stride);
        }
      }
      ranks = std::move(wider);
    }
    stride *= size(axis);
  }
  if (group == Group::embedding && pp > 2) ranks = {ranks.front(), ranks.back()};
  return ranks;
}

int64_t Layout::group_size(Group group) const {
  return static_cast<int64_t>(group_ranks(group, 0).size());
}

int Layout::rank_in(Group group, int rank) const {
  const std::vector<int> ranks = group_ranks(group, rank);
  return static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

Layout layout_of(const Knobs& knobs) {
  Layout layout;
  layout.tp = static_cast<int>(knobs.tensor_model_parallel_size);
  layout.cp = static_cast<int>(knobs.context_parallel_size);
  layout.dp = static_cast<int>(knobs.data_parallel_size);
  layout.pp = static_cast<int>(knobs.pipeline_model_parallel_size);
  layout.ep = static_cast<int>(knobs.expert_model_parallel_size);
  layout.etp = static_cast<int>(knobs.expert_tensor_parallel_size);
  layout.vpp = static_cast<int>(spec::num_virtual_stages(knobs));
  return layout;
}

namespace {

std::vector<StageLayers> stages_with(const std::vector<int64_t>& counts) {
  std::vector<StageLayers> stages;
  int64_t next = 0;
  for (const int64_t count : counts) {
    stages.push_back({next, count});
    next += count;
  }
  return stages;
}

}  // namespace

int64_t num_layers_with_mtp(const ModelSpec& model) {
  return model.num_layers + model.mtp.depth * static_cast<int64_t>(model.mtp.layers.size());
}

spec::LayerKind kind_of_layer(const ModelSpec& model, int64_t layer) {
  if (layer < model.num_layers) return model.kind_of(layer);
  const auto behind = static_cast<size_t>(layer - model.num_layers);
  return model.mtp.layers[behind % model.mtp.layers.size()];
}

std::vector<StageLayers> split_layers(const ModelSpec& model, const Knobs& knobs) {
  const Layout layout = layout_of(knobs);
  MOETUNE_CHECK(layout.pp >= 1, "pipeline_model_parallel_size is {}", layout.pp);
  std::vector<int64_t> counts;
  const std::vector<std::string> spelled = spec::pipeline_layout_stages(knobs);
  for (const std::string& stage : spelled) {
    counts.push_back(std::count(stage.begin(), stage.end(), 't'));
    MOETUNE_CHECK(&stage == &spelled.back() || stage.find('m') == std::string::npos,
                  "stage {} of the layout has multi-token prediction (m), which only the last "
                  "stage may have",
                  counts.size() - 1);
  }
  if (!counts.empty()) return stages_with(counts);
  const int64_t first = layout.pp > 1 ? knobs.decoder_first_pipeline_num_layers : 0;
  const int64_t last = layout.pp > 1 ? knobs.decoder_last_pipeline_num_layers : 0;
  // Pipeline ranks without a count of their own share what is left.
  const int64_t num_free = layout.vpp * (layout.pp - (first > 0 ? 1 : 0) - (last > 0 ? 1 : 0));
  const int64_t rest = model.num_layers - first - last;
  MOETUNE_CHECK(rest >= 0 && (num_free > 0 || rest == 0),
                "{} layers do not split into {} stages with {} in the first and {} in the last",
                model.num_layers, layout.num_stages(), first, last);
  int64_t next_free = 0;
  for (int stage = 0; stage < layout.num_stages(); ++stage) {
    const int pp_rank = layout.place_of_stage(Axis::pp, stage);
    if (pp_rank == 0 && first > 0) {
      counts.push_back(first / layout.vpp);
    } else if (pp_rank == layout.pp - 1 && last > 0) {
      counts.push_back(last / layout.vpp);
    } else {
      counts.push_back(rest / num_free + (next_free < rest % num_free ? 1 : 0));
      ++next_free;
    }
  }
  return stages_with(counts);
}

int64_t sequence_index(const Layout& layout, const Knobs& knobs, int64_t micro_batch, int dp_rank,
                       int64_t slot) {
  return (micro_batch * layout.dp + dp_rank) * knobs.micro_batch_size + slot;
}

int64_t num_micro_batches(const Layout& layout, const Knobs& knobs, int64_t global_batch_size) {
  return global_batch_size / (knobs.micro_batch_size * layout.dp);
}

std::vector<PositionRange> local_ranges(int64_t cp, int64_t cp_rank, int64_t seq_length) {
  if (cp == 1) return {{0, seq_length}};
  MOETUNE_CHECK(seq_length % (2 * cp) == 0, "sequence of {} does not split into {} chunks",
                seq_length, 2 * cp);
  const int64_t chunk = seq_length / (2 * cp);
  std::vector<PositionRange> ranges;
  for (const int64_t index : {cp_rank, 2 * cp - 1 - cp_rank}) {
    ranges.push_back({index * chunk, (index + 1) * chunk});
  }
  return ranges;
}

std::vector<PositionRange> local_ranges(const Layout& layout, int rank, int64_t seq_length) {
  return local_ranges(layout.cp, layout.cp_rank(rank), seq_length);
}

int64_t num_local(const Layout& layout, int64_t seq_length) { return seq_length / layout.cp; }

std::vector<int32_t> local_positions(const Layout& layout, int rank, int64_t seq_length) {
  MOETUNE_CHECK(rank >= 0 && rank < layout.world_size(), "rank {} is not in a world of {}", rank,
                layout.world_size());
  std::vector<int32_t> positions;
  positions.reserve(static_cast<size_t>(num_local(layout, seq_length)));
  for (const PositionRange& range : local_ranges(layout, rank, seq_length)) {
    for (int64_t p = range.begin; p < range.end; ++p) positions.push_back(static_cast<int32_t>(p));
  }
  return positions;
}

std::vector<int32_t> positions_by_rank(const Layout& layout, int rank, int64_t seq_length) {
  std::vector<int32_t> positions;
  for (const int member : layout.group_ranks(Group::cp, rank)) {
    const std::vector<int32_t> part = local_positions(layout, member, seq_length);
    positions.insert(positions.end(), part.begin(), part.end());
  }
  return positions;
}

std::map<std::pair<int32_t, std::string>, int64_t> group_instances(const Layout& layout) {
  std::map<std::pair<int32_t, std::string>, int64_t> instances;
  for (int rank = 0; rank < layout.world_size(); ++rank) {
    for (const GroupRow& row : group_table()) {
      instances[{rank, row.name}] = layout.group_ranks(row.id, rank).front();
    }
  }
  return instances;
}

}  // namespace moetune::plan

// The rows of the vocabulary: each part with its wall, its words and its colour.
#include "kernels/base/step_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace moetune::base {
namespace {

using P = StepPart;

/// In the order of Wall.
constexpr std::array<const char*, kNumWalls> kWalls = {
    "communication", "host", "pipeline", "imbalance", "memory", "compute", "unknown"};

constexpr const char* kBlocking = "blocking";
constexpr const char* kBlockingText = "blocking {} communication";

constexpr std::array<StepPartRow, static_cast<size_t>(P::count)> kParts = {{
    {P::compute, "compute", false, Wall::compute, "compute_busy_ns", "recompute_busy_ns", "compute",
     "compute", "green", 0},
    {P::recompute, "recompute", false, Wall::memory, "recompute_busy_ns", "", "recomputation",
     "recompute", "sky", 1},
    {P::launch_starved, "launch_starved", false, Wall::host, "launch_starved_ns", "",
     "waiting for the host's launches", "launch-starved", "pink", 2},
    {P::transfer, kBlocking, true, Wall::communication, "blocking_transfer_ns", "", kBlockingText,
     "transfer", "", 0},
    {P::late, kBlocking, true, Wall::communication, "blocking_wait_ns", "pipeline_bubble_ns",
     kBlockingText, "late participant", "yellow", 3},
    {P::pipeline_bubble, "bubble", false, Wall::pipeline, "pipeline_bubble_ns", "",
     "pipeline bubble", "pipeline bubble", "black", 4},
    {P::device_shared, "device_shared", false, Wall::compute, "device_shared_ns", "",
     "waiting while other virtual ranks use the card", "shared card", "green", 5},
    {P::stalled, "dependency_stalled", false, Wall::unknown, "dependency_stalled_ns", "",
     "unexplained waiting", "dependency-stalled", "blue", 5},
}};

template <class Rows>
constexpr bool is_indexed_by_id(const Rows& rows) {
  for (size_t i = 0; i < rows.size(); ++i) {
    if (static_cast<size_t>(rows[i].id) != i) return false;
  }
  return true;
}
static_assert(is_indexed_by_id(kParts), "kParts must be in the order of StepPart");

constexpr auto kGroups = std::to_array<GroupRow>({
    {"tp", "tensor-parallel", "", "", "", 0},
    {"cp", "context-parallel", "", "", "", 0},
    {"tp_cp", "tensor- and context-parallel", "", "", "", 0},
    {"stage", "stage-wide", "", "", "", 0},
    {"ep", "expert-parallel", "", "", "", 0},
    {"dp_cp", "data-parallel", "", "", "", 0},
    {"edp", "expert-data-parallel", "", "", "", 0},
    {"pp", "pipeline-parallel", "", "", "", 0},
    {"embedding", "shared-embedding", "", "", "", 0},
    {"world", "world-wide", "", "", "", 0},
    {kDispatcherGroup, "", "packing and routing by the token dispatcher", "dispatch packing",
     "blue", 4},
    {kMemcpyGroup, "", "waiting for copies between memories", "copies", "blue", 2},
    {kStepEndGroup, "", "waiting for the slowest rank to end the step", "step end", "yellow", 0},
});

constexpr auto kWorks = std::to_array<WorkRow>({
    {"products", "dense GEMMs"},
    {"experts", "expert GEMMs"},
    {"attention", "attention"},
    {"bytes", "memory-bound kernels"},
    {"optimizer", "optimizer"},
    {"fixed", "fixed cost per step"},
});

const WorkRow* find_work(std::string_view name) {
  const auto* found = std::ranges::find(kWorks, name, &WorkRow::name);
  return found == kWorks.end() ? nullptr : found;
}

const WorkRow* work_of(const NamedPart& part) {
  return part.row->id == P::compute ? find_work(part.group) : nullptr;
}

/// The group's own words, where waiting for it is no communication.
const GroupRow* own_words(std::string_view group) {
  const GroupRow* row = find_group(group);
  return row == nullptr || row->text[0] == '\0' ? nullptr : row;
}

}  // namespace

const char* name_of(Wall wall) { return kWalls[static_cast<size_t>(wall)]; }

Wall binding_wall(const std::array<double, kNumWalls>& shares, double least_ratio) {
  Wall binding = Wall::compute;
  double largest = 0;
  for (const Wall wall : kRecoverableWalls) {
    const double share = shares[static_cast<size_t>(wall)];
    if (share < least_ratio || share <= largest) continue;
    binding = wall;
    largest = share;
  }
  return binding;
}

void add_share(std::string_view part, double ratio, std::array<double, kNumWalls>& shares) {
  const std::optional<NamedPart> named = part_from_name(part);
  if (named) shares[static_cast<size_t>(named->row->wall)] += ratio;
}

std::optional<Wall> wall_from_name(std::string_view name) {
  const auto found = std::ranges::find(kWalls, name);
  if (found == kWalls.end()) return std::nullopt;
  return static_cast<Wall>(found - kWalls.begin());
}

std::span<const StepPartRow> step_parts() { return kParts; }
const StepPartRow& row_of(StepPart part) { return kParts[static_cast<size_t>(part)]; }

std::span<const GroupRow> group_rows() { return kGroups; }

const GroupRow* find_group(std::string_view name) {
  const auto* found = std::ranges::find(kGroups, name, &GroupRow::name);
  return found == kGroups.end() ? nullptr : found;
}

std::span<const WorkRow> work_rows() { return kWorks; }

std::string name_of(StepPart part, std::string_view group) {
  const StepPartRow& row = row_of(part);
  return row.is_by_group || !group.empty() ? fmt::format("{}_{}", row.name, group)
                                           : std::string(row.name);
}

std::optional<NamedPart> part_from_name(std::string_view name) {
  for (const StepPartRow& row : kParts) {
    const std::string_view known = row.name;
    if (!row.is_by_group && name == known) return NamedPart{&row, {}};
    if (!name.starts_with(known) || !name.substr(known.size()).starts_with('_')) continue;
    const std::string_view group = name.substr(known.size() + 1);
    const bool is_work = row.id == StepPart::compute && find_work(group) != nullptr;
    if (row.is_by_group || is_work) return NamedPart{&row, group};
  }
  return std::nullopt;
}

std::string text_of(const NamedPart& part) {
  if (const WorkRow* work = work_of(part)) return work->label;
  if (!part.row->is_by_group) return part.row->text;
  if (const GroupRow* own = own_words(part.group)) return own->text;
  return fmt::format(fmt::runtime(part.row->text), part.group);
}

std::string label_of(const NamedPart& part) {
  if (part.group.empty()) return part.row->label;
  if (const WorkRow* work = work_of(part)) return work->label;
  if (const GroupRow* own = own_words(part.group)) return own->label;
  return fmt::format("{} {}", part.row->label, part.group);
}

}  // namespace moetune::base

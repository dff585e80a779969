#include "profiler/analysis/wall_label.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace moetune::profiler {
namespace {

constexpr SubCauseRow kSubCauses[] = {
    {SubCause::transfer, Wall::communication, "transfer"},
    {SubCause::one_link, Wall::communication, "one link"},
    {SubCause::contention, Wall::communication, "contention"},
    {SubCause::launch, Wall::host, "launch"},
    {SubCause::sync, Wall::host, "sync"},
    {SubCause::allocator, Wall::host, "allocator"},
    {SubCause::loader, Wall::host, "loader"},
    {SubCause::bubble, Wall::pipeline, "bubble"},
    {SubCause::uneven_stage, Wall::pipeline, "uneven stage"},
    {SubCause::rank, Wall::imbalance, "rank"},
    {SubCause::experts, Wall::imbalance, "experts"},
    {SubCause::recompute, Wall::memory, "recompute"},
    {SubCause::offload, Wall::memory, "offload"},
    {SubCause::capped_micro_batch, Wall::memory, "capped micro-batch"},
    {SubCause::occupancy, Wall::compute, "occupancy"},
    {SubCause::bandwidth, Wall::compute, "bandwidth"},
    {SubCause::flops, Wall::compute, "FLOPs"},
    {SubCause::unexplained, Wall::unknown, "unexplained"}};
static_assert(std::size(kSubCauses) == kNumSubCauses);

}  // namespace

Wall label_of(const std::array<double, kNumWalls>& ceilings) {
  Wall label = Wall::compute;
  double largest = 0;
  double second = 0;
  for (const Wall wall : base::kRecoverableWalls) {
    const double ceiling = ceilings[static_cast<size_t>(wall)];
    if (ceiling > largest) {
      second = std::exchange(largest, ceiling);
      label = wall;
    } else {
      second = std::max(second, ceiling);
    }
  }
  const double unknown = ceilings[static_cast<size_t>(Wall::unknown)];
  const bool binds = largest >= base::kLeastBindingRatio;
  const bool is_hidden = !binds && unknown >= base::kLeastBindingRatio;
  if (!is_sure(largest, second, unknown) || is_hidden) return Wall::unknown;
  return binds ? label : Wall::compute;
}

std::map<std::string, double, std::less<>> by_name(const std::array<double, kNumWalls>& ratios) {
  std::map<std::string, double, std::less<>> named;
  for (size_t i = 0; i < kNumWalls; ++i) named[name_of(static_cast<Wall>(i))] = ratios[i];
  return named;
}

std::span<const SubCauseRow> sub_causes() { return kSubCauses; }

std::map<std::string, double, std::less<>> by_name(
    const std::array<double, kNumSubCauses>& ratios) {
  std::array<bool, kNumWalls> is_told = {};
  for (const SubCauseRow& row : sub_causes()) {
    if (ratios[static_cast<size_t>(row.id)] > 0) is_told[static_cast<size_t>(row.label)] = true;
  }
  std::map<std::string, double, std::less<>> named;
  for (const SubCauseRow& row : sub_causes()) {
    if (is_told[static_cast<size_t>(row.label)]) {
      named.emplace(row.name, ratios[static_cast<size_t>(row.id)]);
    }
  }
  return named;
}

}  // namespace moetune::profiler

#include "profiler/analysis/wall_label.h"

#include <iterator>

namespace moetune::profiler {
namespace {

constexpr SubCauseRow kSubCauses[] = {
    {SubCause::transfer, WallLabel::communication, "transfer"},
    {SubCause::one_link, WallLabel::communication, "one link"},
    {SubCause::contention, WallLabel::communication, "contention"},
    {SubCause::launch, WallLabel::host, "launch"},
    {SubCause::sync, WallLabel::host, "sync"},
    {SubCause::allocator, WallLabel::host, "allocator"},
    {SubCause::loader, WallLabel::host, "loader"},
    {SubCause::bubble, WallLabel::pipeline, "bubble"},
    {SubCause::uneven_stage, WallLabel::pipeline, "uneven stage"},
    {SubCause::rank, WallLabel::imbalance, "rank"},
    {SubCause::experts, WallLabel::imbalance, "experts"},
    {SubCause::recompute, WallLabel::memory, "recompute"},
    {SubCause::offload, WallLabel::memory, "offload"},
    {SubCause::capped_micro_batch, WallLabel::memory, "capped micro-batch"},
    {SubCause::occupancy, WallLabel::compute, "occupancy"},
    {SubCause::bandwidth, WallLabel::compute, "bandwidth"},
    {SubCause::flops, WallLabel::compute, "FLOPs"},
    {SubCause::unexplained, WallLabel::unknown, "unexplained"}};
static_assert(std::size(kSubCauses) == kNumSubCauses);

}  // namespace

std::map<std::string, double, std::less<>> by_name(
    const std::array<double, kNumWallLabels>& ratios) {
  std::map<std::string, double, std::less<>> named;
  for (size_t i = 0; i < kNumWallLabels; ++i) named[name_of(static_cast<WallLabel>(i))] = ratios[i];
  return named;
}

std::span<const SubCauseRow> sub_causes() { return kSubCauses; }

std::map<std::string, double, std::less<>> by_name(
    const std::array<double, kNumSubCauses>& ratios) {
  std::array<bool, kNumWallLabels> is_told = {};
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

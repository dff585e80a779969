// What can hold a step back, for verdicts on traces of our own and of other tools: a label and, of
// it, a cause.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "kernels/base/step_parts.h"

namespace moetune::profiler {

using base::kNumWalls;
using base::Wall;

/// Of a label or a cause, in arrays with a value for each.
constexpr size_t place_of(auto id) { return static_cast<size_t>(id); }

/// With a larger unexplained share, a label must lead by more than that share.
constexpr double kMaxUnknownRatio = 0.15;
/// Whether the unexplained share is small, or could not make another label the largest.
inline bool is_sure(double largest, double second, double unknown) {
  return unknown <= kMaxUnknownRatio || largest > second + unknown;
}

/// The label whose causes, dropped together, shorten a step most: by base::kLeastBindingRatio at
/// least, else compute; unknown where what is unexplained could change that.
Wall label_of(const std::array<double, kNumWalls>& ceilings);

/// A number for each label, by its name.
std::map<std::string, double, std::less<>> by_name(const std::array<double, kNumWalls>& ratios);

/// What of a label it is.
enum class SubCause : uint8_t {
  transfer,            ///< moving data
  one_link,            ///< of one communicator more slowly than of those like it
  contention,          ///< collectives keep multiprocessors from the work beside them
  launch,              ///< launching, and the program between launches
  sync,                ///< waiting for the device
  allocator,           ///< allocating and freeing
  loader,              ///< loading data, or another long stall of the program
  bubble,              ///< waiting for messages between stages
  uneven_stage,        ///< stages with more work than others
  rank,                ///< a rank that computes more slowly
  experts,             ///< ranks whose experts get more rows
  recompute,           ///< because memory is short
  offload,             ///< copies to the host and back
  capped_micro_batch,  ///< small work, and no memory for larger
  occupancy,           ///< work too small for the device
  bandwidth,           ///< bound by memory's bandwidth
  flops,               ///< bound by arithmetic
  unexplained,
  count
};
constexpr size_t kNumSubCauses = static_cast<size_t>(SubCause::count);

struct SubCauseRow {
  SubCause id;
  Wall label;
  const char* name;
};
/// In the order of the enumeration.
std::span<const SubCauseRow> sub_causes();
inline const SubCauseRow& row_of(SubCause cause) {
  return sub_causes()[static_cast<size_t>(cause)];
}

/// The same for each cause of the labels that were told apart: of which one is above 0.
std::map<std::string, double, std::less<>> by_name(const std::array<double, kNumSubCauses>& ratios);

}  // namespace moetune::profiler

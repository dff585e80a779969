// What verdicts on a run are given beside its records, and what they rest on.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/base/step_parts.h"

namespace moetune::profiler {

using base::kNumWalls;
using base::Wall;

/// Memory is short where the peak is at least this share of the capacity.
inline constexpr double kShortMemoryRatio = 0.75;

/// Facts from the memory ledgers of all ranks. Bytes are those of the fullest rank.
struct MemoryFacts {
  int64_t peak_bytes = 0;
  int64_t capacity_bytes = 0;  ///< 0: unlimited, or not known
  bool is_oom = false;
  std::string oom_reason;  ///< which allocation on which rank
};

/// Whether headroom shows that memory was short; not where its capacity is unknown.
inline bool is_memory_short(const MemoryFacts& memory, double short_ratio = kShortMemoryRatio) {
  return memory.capacity_bytes > 0 && static_cast<double>(memory.peak_bytes) >
                                          short_ratio * static_cast<double>(memory.capacity_bytes);
}

/// One fact: a number for machines, a sentence for people.
struct Evidence {
  std::string name;
  double value = 0;
  std::string unit;  ///< "ratio", "ns", "bytes", "count"
  std::string text;
};

}  // namespace moetune::profiler

// A series of collectives that two traces do not have equally many of, as where one begins later or
// lost a record: a collective ends at once for all its ranks, so ends tell which belong together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace moetune::profiler {

/// Launched in no marked step, or in nobody knows which.
constexpr int64_t kNoStep = std::numeric_limits<int64_t>::min();

/// Of fewer pairs a distance of clocks that their order or their steps tell may fit by chance.
constexpr size_t kFewestOfSteps = 3;

/// One instance of a series, on its trace's own clock.
struct SeriesEnd {
  int64_t end_ns = 0;
  int64_t step = kNoStep;  ///< number of the marked step that launched it
};

/// How far the second clock is ahead, as far as anything else says it.
struct ClockHints {
  std::optional<int64_t> known_ns;   ///< from other collectives of the two
  std::optional<int64_t> shared_ns;  ///< if both have the clock of one machine
};

struct AlignedEnds {
  std::vector<std::pair<uint32_t, uint32_t>> pairs;  ///< places in the first and the second
  int64_t shift_ns = 0;                              ///< how far the second clock is ahead
};

/// Ends of one instance are no further apart: an eighth of the usual time between two instances,
/// within limits.
int64_t end_tolerance_ns(std::span<const SeriesEnd> ends);

/// Pairs two series, each by its ends. The clocks' distance is the known one; else that of the
/// steps which launch equally many on both; else one is looked for at which most end together. An
/// instance of one step is never paired with one of another, and what has no partner is left out.
/// Nothing where they do not end together, or where several distances fit alike and none of them is
/// that of a shared clock.
std::optional<AlignedEnds> align_by_ends(std::span<const SeriesEnd> first,
                                         std::span<const SeriesEnd> second,
                                         const ClockHints& hints);

}  // namespace moetune::profiler

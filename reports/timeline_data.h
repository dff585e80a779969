// The slices of one traced step, compact enough for a page: names once, numbers in columns, and
// when there are too many, neighbours merged into one.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/record.h"
#include "reports/rows.h"

namespace moetune::reports {

/// What colours a slice. The order is that of kClassNames.
enum class SliceClass : uint8_t {
  forward,
  backward,
  recompute,
  update,
  communication,
  copy,
  host_sync,
  launch
};

/// One interval of one lane. Times in ns from the start of the step.
struct Slice {
  int64_t rank = 0;
  int64_t stream = 0;  ///< -1: the host
  SliceClass slice_class = SliceClass::forward;
  std::string name;
  std::string group;
  int64_t layer = -1;
  int64_t micro_batch = -1;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  int64_t wait_ns = 0;  ///< communication: the part before all participants had arrived
  int64_t bytes = 0;
  int64_t count = 1;  ///< slices that were merged into this one
};

/// More slices than this are merged.
constexpr size_t kMaxSlices = 50'000;

/// Device records and host launches of the query's answer, by rank, stream and start. A graph
/// replay is one launch.
std::vector<Slice> collect_slices(const Rows& rows);
/// The same of records whose times count from the start of the step.
std::vector<Slice> collect_slices(std::span<const profiler::TraceRecord> records);

/// Merges neighbours of the same lane and class that are shorter than a bin and less than a bin
/// apart, in growing bins, until no more than `max_slices` are left (or everything that may be
/// merged is).
std::vector<Slice> downsample(std::vector<Slice> slices, size_t max_slices, int64_t step_ns);

/// {"classes", "names", "groups", "step", "unit", "lanes": [{rank, stream, label, slices:
/// columns}]}. A column but start, length, class and name is one value where it is the
/// same for the whole lane. `unit`: what Slice::rank counts.
nlohmann::json timeline_json(const std::vector<Slice>& slices, int64_t step_ns,
                             std::string_view unit = "rank");

/// "stream 1 · ep": what the slices of a stream say it is for.
std::string lane_label(int64_t stream, const std::vector<const Slice*>& slices);

}  // namespace moetune::reports

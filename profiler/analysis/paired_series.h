// The same series of collectives in the traces of two ranks: which of their instances belong
// together, by sequence, order or ends.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "profiler/analysis/aligned_ends.h"
#include "profiler/imported_trace.h"

namespace moetune::profiler {

/// Ends of one instance agree within some 10 us on a node; clocks of nodes drift.
constexpr int64_t kEndsAgreeNs = 500'000;

/// Key of a series: collectives with the same group, members, kind and size.
using SeriesKey = std::tuple<std::string, std::string, std::string, int64_t>;

struct Instance {
  int64_t sequence = -1;
  uint32_t op = 0;
  int64_t step = kNoStep;  ///< number of the marked step that launched it
};

/// Instances of each series, in the order of the trace.
using Series = std::map<SeriesKey, std::vector<Instance>>;
/// Rows of a trace's ops.
using OpRows = std::set<uint32_t>;

Series series_of(const ImportedTrace& trace, const OpRows& left_out);

/// On the clock of its own trace.
int64_t end_of(const ImportedTrace& trace, const Instance& instance);
std::vector<SeriesEnd> ends_of(const ImportedTrace& trace, const std::vector<Instance>& instances);
/// Distance of any two numbers, at most 2^60: the difference itself could overflow.
int64_t distance_of(int64_t a, int64_t b);
/// Whether two instances may be of one step.
inline bool may_be_of_one_step(const Instance& a, const Instance& b) {
  return a.step == b.step || a.step == kNoStep || b.step == kNoStep;
}

/// A series of two ranks whose instances end together.
struct PairedInstances {
  size_t trace = 0;                                  ///< of the second
  std::vector<std::pair<uint32_t, uint32_t>> pairs;  ///< places in the two series
  std::vector<int64_t> shifts;  ///< by pair: how much later it ends on the second one's clock
  int64_t shift_ns = 0;         ///< in their middle
};

/// By sequence or order. None where too few of them end together, or are of the same step.
std::optional<PairedInstances> pair_up(const ImportedTrace& first, const std::vector<Instance>& a,
                                       const ImportedTrace& second, const std::vector<Instance>& b);
/// Whether sequences or marked steps say of any pair that its instances belong together.
bool is_any_told(const PairedInstances& paired, const std::vector<Instance>& a,
                 const std::vector<Instance>& b);
/// By their ends. `known_ns`: how far the second clock is ahead, if that is known.
std::optional<PairedInstances> align(const ImportedTrace& first, const std::vector<Instance>& a,
                                     const ImportedTrace& second, const std::vector<Instance>& b,
                                     std::optional<int64_t> known_ns);

}  // namespace moetune::profiler

// Ranks of a run whose traces nobody gave. A collective ends for all when its last rank has come,
// and a message when its sender has: where that one has no trace, waiting for it looks like a
// transfer, or like a pipeline's bubble.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "profiler/analysis/matched_collectives.h"
#include "profiler/analysis/wall.h"
#include "profiler/analysis/wall_label.h"
#include "profiler/imported_trace.h"

namespace moetune::profiler {

/// Of how many ranks the run is, as far as the traces say, by the world or a group; at least 1.
int64_t known_ranks(std::span<const ImportedTrace> traces);

/// Time of one kind of communication, and what of it may be waiting for a rank without a trace.
struct DoubtfulTime {
  double all_ns = 0;
  double doubtful_ns = 0;

  void add(double ns, bool is_doubtful) {
    all_ns += ns;
    if (is_doubtful) doubtful_ns += ns;
  }
  /// Whether the doubt reaches kLeastBindingRatio of the time.
  [[nodiscard]] bool is_large() const {
    return doubtful_ns > 0 && doubtful_ns >= base::kLeastBindingRatio * all_ns;
  }
};

class MissingRanks {
 public:
  MissingRanks() = default;
  /// Refers to the traces. `matching` is of them, or empty.
  MissingRanks(std::span<const ImportedTrace> traces, const CollectiveMatching& matching);

  /// Ranks without device work in a trace; 0 where no trace says that there are more.
  [[nodiscard]] int64_t num() const { return num_; }
  /// Whether a rank without a trace may take part in this communication of a trace. Not where the
  /// file says the size of its group and so many ranks were found, or both ends of a message were.
  /// Where no trace says how many ranks there are, and the file not how large the group is:
  /// whatever was found on no other rank.
  [[nodiscard]] bool may_delay(size_t trace, uint32_t op) const;
  /// A verdict's sentence with that doubt, of communication or pipeline. `sub_cause` stands in it,
  /// unless that is empty: a transfer may be waiting instead, or is more likely that; of a
  /// pipeline, nothing else is known.
  [[nodiscard]] std::string with_doubt(std::string summary, Wall label,
                                       const std::string& sub_cause, bool is_likely = false) const;
  /// "ranks_missing": "3 of the run's 4 ranks have no trace: ...", or "ranks_unknown" where no
  /// trace says how many there are. `wanted`: those to record first; empty: not known.
  [[nodiscard]] Evidence evidence(const std::string& wanted) const;

  /// "waiting for one of the 3 ranks without a trace".
  [[nodiscard]] std::string waiting_text() const;

 private:
  std::span<const ImportedTrace> traces_;
  int64_t num_ = 0;
  int64_t num_known_ = 1;
  bool is_world_known_ = true;
  std::vector<std::vector<bool>>
      is_complete_;  ///< by trace and op: all its group's ranks are there
};

}  // namespace moetune::profiler

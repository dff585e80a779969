// Ranks of a run whose traces nobody gave. A collective ends for all when its last rank has come:
// where that one has no trace, waiting for it looks like a transfer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "profiler/analysis/matched_collectives.h"
#include "profiler/imported_trace.h"

namespace moetune::profiler {

/// Of how many ranks the run is, as far as the traces say, by the world or a group; at least 1.
int64_t known_ranks(std::span<const ImportedTrace> traces);

class MissingRanks {
 public:
  MissingRanks() = default;
  /// Refers to the traces. `matching` is of them, or empty.
  MissingRanks(std::span<const ImportedTrace> traces, const CollectiveMatching& matching);

  /// Ranks without device work in a trace; 0 where no trace says that there are more.
  [[nodiscard]] int64_t num() const { return num_; }
  /// Whether a rank without a trace may take part in this communication of a trace. Not where the
  /// file says the size of its group and so many ranks were found.
  [[nodiscard]] bool may_delay(size_t trace, uint32_t op) const;
  /// "waiting for one of the 3 ranks without a trace".
  [[nodiscard]] std::string waiting_text() const;
  /// "3 of the run's 4 ranks have no trace: ...".
  [[nodiscard]] std::string evidence_text() const;

 private:
  std::span<const ImportedTrace> traces_;
  int64_t num_ = 0;
  int64_t num_known_ = 1;
  std::vector<std::vector<bool>>
      is_complete_;  ///< by trace and op: all its group's ranks are there
};

}  // namespace moetune::profiler

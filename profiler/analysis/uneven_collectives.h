// Collectives that a rank without a trace takes part in: whether they moved data all the time, or
// waited for that rank. A transfer takes about equally long each time; a wait does not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "profiler/analysis/wall_label.h"
#include "profiler/imported_trace.h"

namespace moetune::profiler {

class UnevenCollectives {
 public:
  /// Adds time in which the collective `op` of a trace ran alone and lacked a rank's trace.
  void add(size_t trace, uint32_t op, double ns) {
    if (lost_.size() <= trace) lost_.resize(trace + 1);
    lost_[trace].push_back({op, ns});
  }

  /// "uneven_collectives_ratio": of the time that was added, what is waiting rather than transfer.
  /// Nothing where that is less than half. Alike are collectives of one trace, group, kind, type
  /// and size. What one takes longer than a quarter of those is waiting, if it takes twice as long;
  /// that much work beside a collective does not cost it. So is what a large one takes longer than
  /// it would over a link that is slower than any that ranks are trained over.
  [[nodiscard]] std::optional<Evidence> evidence(std::span<const ImportedTrace> traces) const;

  /// The ranks without a trace in the group that lost most: "ranks 1 and 3 of
  /// TENSOR_MODEL_PARALLEL_GROUP". Empty where no trace says them.
  [[nodiscard]] std::string ranks_to_record(std::span<const ImportedTrace> traces) const;

 private:
  struct Lost {
    uint32_t op = 0;
    double ns = 0;
  };
  /// The same with one entry of each operation.
  [[nodiscard]] static std::vector<Lost> summed(std::vector<Lost> lost);

  std::vector<std::vector<Lost>> lost_;  ///< by trace, as added
};

}  // namespace moetune::profiler

// Who printed a line: launchers put a rank in front, frameworks a time and a rank of their own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace moetune::sweeps {

/// What stands in front of a line. -1 where nothing says it.
struct LineOrigin {
  int rank = -1;        ///< of the whole run
  int local_rank = -1;  ///< of one node: torchrun's own prefix
  int task = -1;        ///< of srun and mpirun: a rank where each task is one
  int world_size = -1;  ///< Primus says it, too
  bool is_primus = false;

  /// The same for lines of the same writer.
  [[nodiscard]] int64_t key() const {
    return (int64_t{rank} + 1) * 4'000'000 + (int64_t{local_rank} + 1) * 2000 + task + 1;
  }
  /// The best that is known of its rank; -1: nothing. A local rank behind a task is one of several
  /// nodes, and which rank that is depends on how many each has.
  [[nodiscard]] int likely_rank() const {
    if (rank >= 0) return rank;
    if (local_rank >= 0 && task >= 0) return -1;
    return std::max(local_rank, task);
  }
};

/// Takes all prefixes off that the table knows, in any order and number.
std::string_view without_prefixes(std::string_view text, LineOrigin& origin);

}  // namespace moetune::sweeps

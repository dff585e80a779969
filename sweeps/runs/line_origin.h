// Who printed a line: launchers put a rank in front, frameworks a time and a rank of their own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace moetune::sweeps {

/// Who wrote a line, by its prefixes. -1: not stated.
struct LineOrigin {
  int rank = -1;         ///< global rank
  int local_rank = -1;   ///< rank within a node: torchrun's own prefix
  int task = -1;         ///< task of srun or mpirun: the rank, if each task is one
  int world_size = -1;   ///< in Primus's prefix
  int64_t process = -1;  ///< its number, where Ray names no more
  bool is_primus = false;

  /// Equal for lines of the same writer.
  [[nodiscard]] int64_t key() const {
    if (process >= 0 && rank < 0 && local_rank < 0 && task < 0) return -process;
    return (int64_t{rank} + 1) * 4'000'000 + (int64_t{local_rank} + 1) * 2000 + task + 1;
  }
  /// The most likely global rank; -1: unknown. A local rank together with a task may be on any
  /// node, so its global rank is not known.
  [[nodiscard]] int likely_rank() const {
    if (rank >= 0) return rank;
    if (local_rank >= 0 && task >= 0) return -1;
    return std::max(local_rank, task);
  }
};

/// Removes all known prefixes, in any order and number.
std::string_view without_prefixes(std::string_view text, LineOrigin& origin);

/// Where another writer goes on within a line, whose end was lost or is still in a buffer.
struct GluedPrefix {
  size_t at = std::string_view::npos;   ///< of its first character; npos: there is none
  size_t end = std::string_view::npos;  ///< behind it
  LineOrigin origin;
};

/// The first "[rank3]:", "[default0]:" or "[rank-7/8]" of Primus from `from` on. Looks at a bounded
/// number of characters for each '['.
GluedPrefix next_glued_prefix(std::string_view text, size_t from);

}  // namespace moetune::sweeps

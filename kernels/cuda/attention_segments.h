// Which rows of an attention call sit at consecutive positions: what the host has to know about the
// positions before a library that only knows diagonals can do the call. Free of any library, so
// that it can be tested without a card.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/error.h"
#include "kernels/op_args.h"

namespace moetune::kernels::cuda {

/// Query rows [first_row, first_row + num_rows) of every sequence, at positions from
/// `first_position` up, one by one. They see keys up to their own position, no further than
/// end_position().
struct AttentionSegment {
  int64_t first_row = 0;
  int64_t num_rows = 0;
  int64_t first_position = 0;

  [[nodiscard]] int64_t end_position() const { return first_position + num_rows; }

  bool operator==(const AttentionSegment&) const = default;
};

/// The segments of a rank's positions: one for a whole sequence, two for a zig-zag shard.
inline std::vector<AttentionSegment> segments_of(std::span<const int32_t> positions) {
  std::vector<AttentionSegment> segments;
  for (size_t row = 0; row < positions.size(); ++row) {
    if (row > 0 && positions[row] == positions[row - 1] + 1) {
      ++segments.back().num_rows;
    } else {
      segments.push_back({static_cast<int64_t>(row), 1, positions[row]});
    }
  }
  return segments;
}

/// The segments of positions in device memory, by address and number: reading them back waits for
/// the device, and cannot be done inside a capture. Positions must not change where they lie.
class SegmentCache {
 public:
  /// `read` gives the positions; called at the first sight of them only.
  template <typename Read>
  std::span<const AttentionSegment> get(const void* positions, int64_t num_rows, Read&& read) {
    const auto key = std::pair(static_cast<const char*>(positions), num_rows);
    auto found = segments_.find(key);
    if (found == segments_.end()) found = segments_.emplace(key, segments_of(read())).first;
    return found->second;
  }

  /// The memory is given back: what comes to lie there next has other positions.
  void forget(const void* memory, int64_t bytes) {
    const auto* begin = static_cast<const char*>(memory);
    segments_.erase(segments_.lower_bound({begin, 0}), segments_.lower_bound({begin + bytes, 0}));
  }

 private:
  std::map<std::pair<const char*, int64_t>, std::vector<AttentionSegment>> segments_;
};

/// Why these segments cannot stand for the call's rows, empty when they can: together they are
/// every query row once, in order, and see no key that is not there.
inline std::string why_not_segments_of(const AttentionArgs& args,
                                       std::span<const AttentionSegment> segments) {
  const int64_t queries = args.q.rows / args.batch;
  const int64_t keys = args.k.rows / args.batch;
  int64_t next_row = 0;
  for (const AttentionSegment& segment : segments) {
    if (segment.first_row != next_row || segment.num_rows <= 0) {
      return "the segments do not cover the query rows one after the other";
    }
    if (segment.first_position < 0 || segment.end_position() > keys) {
      return fmt::format("positions {} to {} are not in [0, {})", segment.first_position,
                         segment.end_position() - 1, keys);
    }
    next_row += segment.num_rows;
  }
  return next_row == queries ? std::string() : "the segments do not cover the query rows";
}

}  // namespace moetune::kernels::cuda

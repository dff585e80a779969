// Links between two ranks by the messages on them, such as those between the stages of a pipeline:
// is one slower than the others?
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "profiler/analysis/replayed_run.h"

namespace moetune::profiler {

/// Transfers that take so many times as long as alike ones of others are slow.
inline constexpr double kSlowLinkRatio = 1.2;

/// A link whose messages are slow, one way. Traces are indices.
struct SlowLink {
  uint32_t from = 0;
  uint32_t to = 0;
  double message_ns = 0;  ///< a message of it
  double usual_ns = 0;    ///< one of the same size of the fastest link between two other ranks
};

/// Of the messages that have a number of their own (ReplayedRun): medians of the transfers of each
/// size, from one rank to another. A link is compared with those between two others, as both ways
/// of one may be slow. It is slow where all its messages together take kSlowLinkRatio times as
/// long. Where slow links have no rank in common, as those between nodes, none is one slow link.
class MessageLinks {
 public:
  explicit MessageLinks(const ReplayedRun& run);

  /// Two ranks, the smaller index first, and whether a way between them is slow. Only those that
  /// could be compared.
  struct Pair {
    uint32_t first = 0;
    uint32_t second = 0;
    bool is_slow = false;
    [[nodiscard]] bool has(uint32_t trace) const { return first == trace || second == trace; }
  };
  [[nodiscard]] const std::vector<Pair>& pairs() const { return pairs_; }
  /// The slowest first.
  [[nodiscard]] const std::vector<SlowLink>& slow_links() const { return slow_; }

  /// Whether these links judge the message.
  [[nodiscard]] bool has(size_t op) const { return !has_.empty() && has_[op]; }
  /// What a message of a slow link would take on the fastest other one; -1: no less.
  [[nodiscard]] int64_t usual_ns(size_t op) const { return usual_ns_[op]; }

 private:
  using Way = std::pair<uint32_t, uint32_t>;             ///< from, to
  using Transfers = std::map<Way, std::vector<double>>;  ///< of one size, in ns

  void compare(const std::map<int64_t, Transfers>& by_size);

  std::vector<bool> has_;          ///< by op; empty where there are no such messages
  std::vector<int64_t> usual_ns_;  ///< by op
  std::vector<Pair> pairs_;
  std::vector<SlowLink> slow_;
  std::map<std::pair<int64_t, Way>, double> usual_of_;  ///< by size and way, of slow ones
};

}  // namespace moetune::profiler

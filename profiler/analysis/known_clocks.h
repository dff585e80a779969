// How far the clocks of traces are ahead of each other, as far as collectives tell that two traces
// have in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace moetune::profiler {

struct KnownClock {
  int64_t ahead_ns = 0;
  size_t num_pairs = 0;  ///< of instances that say so; of a chain, in its weakest link
};

/// Each series that two traces have in common says how far one is ahead. What agrees is counted
/// together, and what most pairs of instances say is believed: a few agree by chance.
class KnownClocks {
 public:
  explicit KnownClocks(size_t num_traces) : neighbours_(num_traces), ahead_(num_traces) {}

  /// `num_pairs`: of instances of one series that agree with it.
  void add(size_t first, size_t second, int64_t ahead_ns, size_t num_pairs);
  /// By trace, how far it is ahead of one, by the chain whose weakest link has most pairs; none: no
  /// chain leads there. Numbers of pairs may have doubled since they were counted. Valid until the
  /// next add() or recount().
  const std::vector<std::optional<KnownClock>>& ahead_of(size_t first);
  /// Then the numbers of pairs are those of all that was added.
  void recount();

 private:
  struct Estimate {
    KnownClock best;
    size_t num_counted = 0;  ///< pairs of the best when chains were last made anew for it
    /// By the first that said it: what the largest series among those that agree says, its pairs,
    /// and those of all.
    struct Votes {
      int64_t ahead_ns = 0;
      size_t num_largest = 0;
      size_t num_all = 0;
    };
    std::map<int64_t, Votes> votes;
  };
  [[nodiscard]] std::vector<std::optional<KnownClock>> chains_from(size_t first) const;

  std::map<std::pair<size_t, size_t>, Estimate> estimates_;  ///< the first trace is the lower one
  std::vector<std::vector<size_t>> neighbours_;              ///< by trace
  /// By trace, ahead_of() as far as it was asked for. There are more series than that changes.
  std::vector<std::optional<std::vector<std::optional<KnownClock>>>> ahead_;
};

}  // namespace moetune::profiler

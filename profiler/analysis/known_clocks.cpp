#include "profiler/analysis/known_clocks.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <tuple>

#include "profiler/analysis/aligned_ends.h"
#include "profiler/analysis/paired_series.h"

namespace moetune::profiler {

void KnownClocks::add(size_t first, size_t second, int64_t ahead_ns, size_t num_pairs) {
  if (first > second) return add(second, first, -ahead_ns, num_pairs);
  const auto [at, is_new] = estimates_.try_emplace({first, second});
  Estimate& estimate = at->second;
  if (is_new) {
    neighbours_[first].push_back(second);
    neighbours_[second].push_back(first);
  }
  auto votes = estimate.votes.lower_bound(ahead_ns - kEndsAgreeNs);
  if (votes == estimate.votes.end() || votes->first - kEndsAgreeNs > ahead_ns) {
    votes = estimate.votes.emplace_hint(votes, ahead_ns, Estimate::Votes());
  }
  Estimate::Votes& agreeing = votes->second;
  agreeing.num_all += num_pairs;
  if (num_pairs > agreeing.num_largest) {
    agreeing.num_largest = num_pairs;
    agreeing.ahead_ns = ahead_ns;
  }
  if (agreeing.num_all <= estimate.best.num_pairs) return;
  const KnownClock before = std::exchange(estimate.best, {agreeing.ahead_ns, agreeing.num_all});
  const bool is_same = before.ahead_ns == estimate.best.ahead_ns;
  if (is_same && before.num_pairs >= kFewestOfSteps &&
      estimate.best.num_pairs < 2 * estimate.num_counted) {
    return;
  }
  estimate.num_counted = estimate.best.num_pairs;
  recount();
}

void KnownClocks::recount() { std::ranges::fill(ahead_, std::nullopt); }

const std::vector<std::optional<KnownClock>>& KnownClocks::ahead_of(size_t first) {
  if (!ahead_[first]) ahead_[first] = chains_from(first);
  return *ahead_[first];
}

std::vector<std::optional<KnownClock>> KnownClocks::chains_from(size_t first) const {
  std::vector<std::optional<KnownClock>> ahead(neighbours_.size());
  // Pairs of the weakest link, how far it is ahead, and the trace, of which lower ones come first.
  using Reached = std::tuple<size_t, int64_t, size_t>;
  const auto is_later = [](const Reached& a, const Reached& b) {
    return std::get<0>(a) != std::get<0>(b) ? std::get<0>(a) < std::get<0>(b)
                                            : std::get<2>(a) > std::get<2>(b);
  };
  std::priority_queue<Reached, std::vector<Reached>, decltype(is_later)> open(is_later);
  open.emplace(std::numeric_limits<size_t>::max(), 0, first);
  while (!open.empty()) {
    const auto [num_pairs, ahead_ns, trace] = open.top();
    open.pop();
    if (ahead[trace]) continue;
    ahead[trace] = {ahead_ns, num_pairs};
    for (const size_t other : neighbours_[trace]) {
      const KnownClock& link = estimates_.at(std::minmax(trace, other)).best;
      int64_t sum_ns = 0;
      const int64_t link_ns = trace < other ? link.ahead_ns : -link.ahead_ns;
      if (ahead[other] || link.num_pairs < kFewestOfSteps ||
          __builtin_add_overflow(ahead_ns, link_ns, &sum_ns)) {
        continue;
      }
      open.emplace(std::min(num_pairs, link.num_pairs), sum_ns, other);
    }
  }
  return ahead;
}

}  // namespace moetune::profiler

#include "profiler/analysis/messages_by_ends.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

namespace moetune::profiler {
namespace {

/// Ends of one message on a node differ by some 30 us; messages follow one another by more.
constexpr int64_t kEndTogetherNs = 100'000;
/// Of so many ends of other ranks around one, at most, its partner is looked for.
constexpr size_t kMostNear = 32;
constexpr size_t kMostStageNeighbours = 2;
constexpr double kLeastPairedRatio = 0.8;

/// Two traces, that with the smaller index first.
using Neighbours = std::pair<uint32_t, uint32_t>;
Neighbours neighbours_of(const LooseEnd& a, const LooseEnd& b) {
  return std::minmax(a.trace, b.trace);
}

using PairedEnds = std::vector<std::pair<LooseEnd, LooseEnd>>;

/// Of any two times; the largest number where the difference does not fit.
int64_t distance_between(int64_t a, int64_t b) {
  int64_t distance = 0;
  if (__builtin_sub_overflow(std::max(a, b), std::min(a, b), &distance)) {
    return std::numeric_limits<int64_t>::max();
  }
  return distance;
}

/// Both by their ends. `allowed`: null where any two ranks may be neighbours.
PairedEnds nearest_pairs(const std::vector<LooseEnd>& sent, const std::vector<LooseEnd>& received,
                         const std::set<Neighbours>* allowed) {
  struct Candidate {
    int64_t distance_ns = 0;
    size_t sent = 0;
    size_t received = 0;
  };
  std::vector<Candidate> candidates;
  for (size_t i = 0; i < sent.size(); ++i) {
    const auto behind = std::ranges::lower_bound(received, sent[i].end_ns, {}, &LooseEnd::end_ns);
    const auto middle = static_cast<size_t>(behind - received.begin());
    // False where those beyond are too far away.
    const auto look_at = [&](size_t j) {
      const int64_t distance_ns = distance_between(received[j].end_ns, sent[i].end_ns);
      if (distance_ns > kEndTogetherNs) return false;
      const bool may_be =
          received[j].trace != sent[i].trace &&
          (allowed == nullptr || allowed->contains(neighbours_of(sent[i], received[j])));
      if (may_be) candidates.push_back({distance_ns, i, j});
      return true;
    };
    const size_t last = std::min(received.size(), middle + kMostNear);
    for (size_t j = middle; j < last && look_at(j);) ++j;
    const size_t first = middle - std::min(middle, kMostNear);
    for (size_t j = middle; j > first && look_at(j - 1);) --j;
  }
  std::ranges::stable_sort(candidates, {}, &Candidate::distance_ns);
  std::vector<bool> is_sent_taken(sent.size());
  std::vector<bool> is_received_taken(received.size());
  PairedEnds pairs;
  for (const Candidate& one : candidates) {
    if (is_sent_taken[one.sent] || is_received_taken[one.received]) continue;
    is_sent_taken[one.sent] = is_received_taken[one.received] = true;
    pairs.emplace_back(sent[one.sent], received[one.received]);
  }
  return pairs;
}

/// Those with most pairs, no more than two for each trace.
std::set<Neighbours> chosen_neighbours(const PairedEnds& pairs) {
  std::map<Neighbours, size_t> counts;
  for (const auto& [sent, received] : pairs) ++counts[neighbours_of(sent, received)];
  std::vector<std::pair<Neighbours, size_t>> by_count(counts.begin(), counts.end());
  std::ranges::stable_sort(by_count, std::ranges::greater(),
                           [](const auto& entry) { return entry.second; });
  std::map<uint32_t, size_t> num_of;
  std::set<Neighbours> chosen;
  for (const auto& [neighbours, count] : by_count) {
    const auto [a, b] = neighbours;
    if (num_of[a] == kMostStageNeighbours || num_of[b] == kMostStageNeighbours) continue;
    ++num_of[a];
    ++num_of[b];
    chosen.insert(neighbours);
  }
  return chosen;
}

}  // namespace

std::vector<std::pair<LooseEnd, LooseEnd>> pair_by_ends(std::vector<LooseEnd> sent,
                                                        std::vector<LooseEnd> received) {
  std::ranges::stable_sort(sent, {}, &LooseEnd::end_ns);
  std::ranges::stable_sort(received, {}, &LooseEnd::end_ns);
  const std::set<Neighbours> chosen = chosen_neighbours(nearest_pairs(sent, received, nullptr));
  PairedEnds pairs = nearest_pairs(sent, received, &chosen);
  const auto num_ends = static_cast<double>(sent.size() + received.size());
  if (2.0 * static_cast<double>(pairs.size()) < kLeastPairedRatio * num_ends) pairs.clear();
  std::ranges::stable_sort(pairs, {}, [](const auto& pair) { return pair.first.end_ns; });
  return pairs;
}

}  // namespace moetune::profiler

#include "profiler/analysis/messages_by_ends.h"

#include <algorithm>
#include <iterator>
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

/// Of any two times; the largest number where the difference does not fit.
int64_t distance_between(int64_t a, int64_t b) {
  int64_t distance = 0;
  if (__builtin_sub_overflow(std::max(a, b), std::min(a, b), &distance)) {
    return std::numeric_limits<int64_t>::max();
  }
  return distance;
}

/// Both by their ends. `may_be(one that was sent, one that was received)`: whether their ranks may
/// be neighbours.
template <typename MayBe>
EndsTogether nearest_pairs(const std::vector<LooseEnd>& sent, const std::vector<LooseEnd>& received,
                           const MayBe& may_be) {
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
      if (received[j].trace != sent[i].trace && may_be(sent[i], received[j])) {
        candidates.push_back({distance_ns, i, j});
      }
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
  EndsTogether pairs;
  for (const Candidate& one : candidates) {
    if (is_sent_taken[one.sent] || is_received_taken[one.received]) continue;
    is_sent_taken[one.sent] = is_received_taken[one.received] = true;
    pairs.emplace_back(sent[one.sent], received[one.received]);
  }
  return pairs;
}

/// What two traces have in common, and which of them sent first.
struct Link {
  Neighbours traces;
  size_t num_pairs = 0;
  LooseEnd first;
};

/// Those with most pairs, no more than two for each trace: of those with half as many as its first
/// at least, one to which it sends first, as to the next stage, and one from which it receives
/// first. Ranks of one stage that end together would else be told from each other by chance only.
std::set<Neighbours> chosen_neighbours(const EndsTogether& pairs) {
  std::map<Neighbours, Link> by_traces;
  for (const auto& [sent, received] : pairs) {
    Link& link = by_traces[neighbours_of(sent, received)];
    if (link.num_pairs++ == 0 || sent.end_ns < link.first.end_ns) link.first = sent;
  }
  std::vector<Link> links;
  for (const auto& [traces, link] : by_traces) {
    links.push_back(link);
    links.back().traces = traces;
  }
  std::ranges::stable_sort(links, std::ranges::greater(), &Link::num_pairs);
  std::map<uint32_t, size_t> most_of;  // pairs, by trace
  for (const Link& link : links) {
    most_of.try_emplace(link.traces.first, link.num_pairs);
    most_of.try_emplace(link.traces.second, link.num_pairs);
  }
  std::map<uint32_t, size_t> num_of;
  std::set<uint32_t> with_next;
  std::set<uint32_t> with_before;
  std::set<Neighbours> chosen;
  for (const bool may_be_any : {false, true}) {
    for (const Link& link : links) {
      const auto [a, b] = link.traces;
      const uint32_t from = link.first.trace;
      const uint32_t to = from == a ? b : a;
      if (num_of[a] == kMostStageNeighbours || num_of[b] == kMostStageNeighbours) continue;
      const bool has_many = 2 * link.num_pairs >= std::max(most_of[a], most_of[b]);
      const bool is_one_each_way = !with_next.contains(from) && !with_before.contains(to);
      if (!may_be_any && !(has_many && is_one_each_way)) continue;
      if (!chosen.insert(link.traces).second) continue;
      ++num_of[a];
      ++num_of[b];
      with_next.insert(from);
      with_before.insert(to);
    }
  }
  return chosen;
}

bool are_most(const EndsTogether& pairs, size_t num_ends) {
  return 2.0 * static_cast<double>(pairs.size()) >=
         kLeastPairedRatio * static_cast<double>(num_ends);
}

/// From the trace of a stage to that of the next one.
using Hop = std::pair<uint32_t, uint32_t>;

/// Of neighbours that send each other messages.
std::set<Hop> hops_of(const EndsTogether& messages) {
  std::map<Neighbours, Hop> first;
  std::set<Hop> hops;
  for (const auto& [sent, received] : messages) {
    const Hop hop = {sent.trace, received.trace};
    const Hop& known = first.try_emplace(neighbours_of(sent, received), hop).first->second;
    if (known != hop) hops.insert(known);
  }
  return hops;
}

/// What one stage does, by time.
struct StageTurns {
  bool has_next = false;
  bool has_before = false;
  std::vector<int64_t> messages;    ///< ends of those that it sends or receives alone
  std::vector<LooseEnd> exchanges;  ///< by their ends

  /// Whether it has the exchange at `place` with the next stage.
  [[nodiscard]] bool is_with_next(size_t place) const {
    if (!has_next || !has_before) return has_next;
    // Those that no message of its own is between.
    const auto behind = std::ranges::upper_bound(messages, exchanges[place].end_ns);
    const auto place_of = [&](int64_t end_ns) {
      const auto at = std::ranges::lower_bound(exchanges, end_ns, {}, &LooseEnd::end_ns);
      return static_cast<size_t>(at - exchanges.begin());
    };
    if (behind != messages.begin()) return (place - place_of(*std::prev(behind))) % 2 == 0;
    // The trace may begin in between.
    const size_t end = behind == messages.end() ? exchanges.size() : place_of(*behind);
    return (end - 1 - place) % 2 == 0;
  }
};

}  // namespace

EndsTogether pair_by_ends(std::vector<LooseEnd> sent, std::vector<LooseEnd> received) {
  std::ranges::stable_sort(sent, {}, &LooseEnd::end_ns);
  std::ranges::stable_sort(received, {}, &LooseEnd::end_ns);
  const auto any = [](const LooseEnd&, const LooseEnd&) { return true; };
  const std::set<Neighbours> chosen = chosen_neighbours(nearest_pairs(sent, received, any));
  EndsTogether pairs = nearest_pairs(sent, received, [&](const LooseEnd& from, const LooseEnd& to) {
    return chosen.contains(neighbours_of(from, to));
  });
  if (!are_most(pairs, sent.size() + received.size())) pairs.clear();
  std::ranges::stable_sort(pairs, {}, [](const auto& pair) { return pair.first.end_ns; });
  return pairs;
}

EndsTogether pair_exchanges(std::vector<LooseEnd> exchanges, const EndsTogether& messages) {
  const std::set<Hop> hops = hops_of(messages);
  std::map<uint32_t, StageTurns> stages;  // by trace
  for (const auto& [from, to] : hops) stages[from].has_next = stages[to].has_before = true;
  for (const auto& [sent, received] : messages) {
    stages[sent.trace].messages.push_back(sent.end_ns);
    stages[received.trace].messages.push_back(received.end_ns);
  }
  std::ranges::stable_sort(exchanges, {}, &LooseEnd::end_ns);
  for (const LooseEnd& end : exchanges) stages[end.trace].exchanges.push_back(end);
  std::vector<LooseEnd> with_next;
  std::vector<LooseEnd> with_before;
  for (auto& [trace, stage] : stages) {
    std::ranges::sort(stage.messages);
    for (size_t i = 0; i < stage.exchanges.size(); ++i) {
      (stage.is_with_next(i) ? with_next : with_before).push_back(stage.exchanges[i]);
    }
  }
  std::ranges::stable_sort(with_next, {}, &LooseEnd::end_ns);
  std::ranges::stable_sort(with_before, {}, &LooseEnd::end_ns);
  EndsTogether pairs =
      nearest_pairs(with_next, with_before, [&](const LooseEnd& from, const LooseEnd& to) {
        return hops.contains({from.trace, to.trace});
      });
  if (!are_most(pairs, exchanges.size())) pairs.clear();
  std::ranges::stable_sort(pairs, {}, [](const auto& pair) { return pair.first.end_ns; });
  return pairs;
}

}  // namespace moetune::profiler

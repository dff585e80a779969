#include "profiler/analysis/message_links.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <string>

#include "profiler/analysis/stats.h"

namespace moetune::profiler {
namespace {

bool is_numbered_message(const TraceRecord& record) {
  return record.kind == RecordKind::p2p && record.micro_batch < 0 && record.sequence >= 0;
}

bool is_received(const TraceRecord& record) {
  return record.name.text().find("recv") != std::string::npos;
}

/// All that one way between two ranks sent, and what it would have taken on the fastest other one.
struct WayTime {
  double own_ns = 0;
  double usual_ns = 0;
  double num_messages = 0;
};

}  // namespace

MessageLinks::MessageLinks(const ReplayedRun& run) {
  const std::vector<ReplayOp>& ops = run.ops();
  std::map<std::pair<int32_t, int64_t>, std::vector<size_t>> messages;
  for (const size_t i : run.communication()) {
    const TraceRecord& record = run.record_of(ops[i]);
    if (is_numbered_message(record)) messages[{run.instance_of(i), record.sequence}].push_back(i);
  }
  if (messages.empty()) return;
  has_.assign(ops.size(), false);
  usual_ns_.assign(ops.size(), -1);
  std::map<int64_t, Transfers> by_size;
  std::vector<std::pair<std::pair<int64_t, Way>, std::pair<size_t, size_t>>> sent;
  for (const auto& [number, ends] : messages) {
    if (ends.size() != 2 || ops[ends[0]].trace == ops[ends[1]].trace) continue;
    const bool is_first_received = is_received(run.record_of(ops[ends[0]]));
    if (is_first_received == is_received(run.record_of(ops[ends[1]]))) continue;
    const size_t from = ends[is_first_received ? 1 : 0];
    const size_t to = ends[is_first_received ? 0 : 1];
    const int64_t ns = std::max(ops[from].duration_ns, ops[to].duration_ns);
    if (ns <= 0) continue;
    has_[from] = has_[to] = true;
    const int64_t bytes = run.record_of(ops[from]).bytes;
    const Way way = {ops[from].trace, ops[to].trace};
    by_size[bytes][way].push_back(static_cast<double>(ns));
    sent.push_back({{bytes, way}, {from, to}});
  }
  compare(by_size);
  for (const auto& [key, ends] : sent) {
    const auto usual = usual_of_.find(key);
    if (usual == usual_of_.end()) continue;
    usual_ns_[ends.first] = usual_ns_[ends.second] = static_cast<int64_t>(usual->second);
  }
}

void MessageLinks::compare(const std::map<int64_t, Transfers>& by_size) {
  const auto pair_of = [](const Way& way) {
    return Way{std::min(way.first, way.second), std::max(way.first, way.second)};
  };
  std::map<Way, WayTime> times;
  std::map<std::pair<int64_t, Way>, double> usual_of;
  for (const auto& [bytes, transfers] : by_size) {
    std::map<Way, double> medians;
    for (const auto& [way, all] : transfers) medians[way] = median(all);
    for (const auto& [way, own_ns] : medians) {
      std::optional<double> least;
      for (const auto& [other, other_ns] : medians) {
        if (pair_of(other) == pair_of(way)) continue;
        least = std::min(least.value_or(other_ns), other_ns);
      }
      if (!least) continue;
      const auto count = static_cast<double>(transfers.at(way).size());
      usual_of[{bytes, way}] = *least;
      WayTime& time = times[way];
      time.own_ns += count * own_ns;
      time.usual_ns += count * std::min(own_ns, *least);
      time.num_messages += count;
    }
  }
  std::map<Way, bool> pairs;
  for (const auto& [way, time] : times) {
    const bool is_slow = time.own_ns >= kSlowLinkRatio * time.usual_ns;
    bool& is_pair_slow = pairs[pair_of(way)];
    is_pair_slow = is_pair_slow || is_slow;
    if (!is_slow) continue;
    slow_.push_back({way.first, way.second, time.own_ns / time.num_messages,
                     time.usual_ns / time.num_messages});
  }
  for (const auto& [pair, is_slow] : pairs) pairs_.push_back({pair.first, pair.second, is_slow});
  std::vector<Pair> slow_pairs;
  std::ranges::copy_if(pairs_, std::back_inserter(slow_pairs), &Pair::is_slow);
  const auto is_in_all = [&](uint32_t trace) {
    return std::ranges::all_of(slow_pairs, [&](const Pair& pair) { return pair.has(trace); });
  };
  if (!slow_pairs.empty() && !is_in_all(slow_pairs[0].first) && !is_in_all(slow_pairs[0].second)) {
    slow_.clear();
    pairs_.clear();
  }
  std::ranges::stable_sort(slow_, std::ranges::greater(), &SlowLink::message_ns);
  for (const SlowLink& link : slow_) {
    for (const auto& [key, usual_ns] : usual_of) {
      if (key.second == Way{link.from, link.to}) usual_of_[key] = usual_ns;
    }
  }
}

}  // namespace moetune::profiler

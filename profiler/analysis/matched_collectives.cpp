#include "profiler/analysis/matched_collectives.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "kernels/base/median.h"
#include "profiler/analysis/matched_messages.h"
#include "profiler/analysis/matched_series.h"

namespace moetune::profiler {
namespace {

/// From trace to trace, beginning with the first that has anything in common with others.
std::vector<std::optional<int64_t>> offsets_of(size_t num_traces, ClockShifts shifts) {
  std::map<size_t, std::vector<std::pair<size_t, int64_t>>> neighbours;
  for (auto& [pair, ahead] : shifts) {
    const int64_t shift_ns = base::upper_median(std::move(ahead));
    neighbours[pair.first].emplace_back(pair.second, -shift_ns);
    neighbours[pair.second].emplace_back(pair.first, shift_ns);
  }
  std::vector<std::optional<int64_t>> offsets(num_traces);
  if (neighbours.empty()) return offsets;
  std::deque<size_t> open = {neighbours.begin()->first};
  for (offsets[open.front()] = 0; !open.empty(); open.pop_front()) {
    for (const auto& [other, offset_ns] : neighbours[open.front()]) {
      int64_t sum_ns = 0;
      if (offsets[other] || __builtin_add_overflow(*offsets[open.front()], offset_ns, &sum_ns)) {
        continue;
      }
      offsets[other] = sum_ns;
      open.push_back(other);
    }
  }
  return offsets;
}

/// By trace, the same number for those between which there is a chain of common collectives.
std::vector<size_t> chains_of(size_t num_traces, const ClockShifts& shifts) {
  std::vector<size_t> chains(num_traces);
  std::iota(chains.begin(), chains.end(), size_t{0});
  for (const auto& [pair, ahead] : shifts) {
    const size_t joined = chains[pair.second];
    if (joined != chains[pair.first]) std::ranges::replace(chains, joined, chains[pair.first]);
  }
  return chains;
}

void find_last(std::span<const ImportedTrace> traces, MatchedCollective& one) {
  const auto duration = [&](const CollectivePart& part) {
    return traces[part.trace].ops[part.op].duration_ns();
  };
  for (size_t i = 1; i < one.parts.size(); ++i) {
    if (duration(one.parts[i]) < duration(one.parts[one.last])) one.last = i;
  }
  one.transfer_ns = duration(one.parts[one.last]);
}

/// A median over all ranks would hide one whose clock is off.
void set_residual(const MatchedSeries& series, CollectiveMatching& matching) {
  int64_t second_ns = 0;
  for (const auto& [trace, distances] : series.distances) {
    const int64_t middle_ns = base::upper_median(distances);
    if (middle_ns > matching.residual_ns) {
      second_ns = std::exchange(matching.residual_ns, middle_ns);
      matching.residual_trace = trace;
    } else {
      second_ns = std::max(second_ns, middle_ns);
    }
  }
  // Of two traces nothing tells which one is off.
  if (series.distances.size() < 2 || 2 * second_ns > matching.residual_ns) {
    matching.residual_trace.reset();
  }
}

/// By trace: rows of those messages that are two at once.
std::vector<OpRows> exchanges_in(std::span<const ImportedTrace> traces,
                                 const std::vector<MatchedCollective>& messages) {
  std::vector<OpRows> rows(traces.size());
  for (const MatchedCollective& one : messages) {
    for (const CollectivePart& part : one.parts) {
      const ImportedTrace& trace = traces[part.trace];
      const CommCall& comm = trace.comms[trace.ops[part.op].comm];
      if (sends_and_receives(trace, comm)) rows[part.trace].insert(part.op);
    }
  }
  return rows;
}

}  // namespace

bool may_be_message(const ImportedTrace& trace, uint32_t row) {
  const ImportedOp& op = trace.ops[row];
  if (op.comm != kNoRow) return says_no_partner(trace.comms[op.comm]);
  const std::string& name = trace.names[op.name];
  return name.find("SendRecv") != std::string::npos ||
         name.find("ncclDevKernel_Generic") != std::string::npos;
}

std::vector<std::vector<bool>> stage_messages_of(std::span<const ImportedTrace> traces,
                                                 const CollectiveMatching& matching) {
  std::vector<std::vector<bool>> is_message;  // by trace and row of its comms
  for (const ImportedTrace& trace : traces) is_message.push_back(stage_messages_of(trace));
  for (const MatchedCollective& one : matching.messages) {
    for (const CollectivePart& part : one.parts) {
      is_message[part.trace][traces[part.trace].ops[part.op].comm] = true;
    }
  }
  return is_message;
}

Lack CollectiveMatching::lack_of(size_t trace, uint32_t op) const {
  if (trace >= lacks.size()) return Lack::none;
  const auto lack = lacks[trace].find(op);
  return lack == lacks[trace].end() ? Lack::none : lack->second;
}

CollectiveMatching match_across_ranks(std::span<const ImportedTrace> traces) {
  CollectiveMatching matching;
  std::optional<SeriesMatcher> matcher(std::in_place, traces, std::vector<OpRows>(traces.size()));
  MatchedSeries series = matcher->match();
  ClockShifts all_shifts = std::move(series.shifts);
  MatchedMessages messages = match_messages(traces, offsets_of(traces.size(), all_shifts));
  const std::vector<OpRows> exchanges = exchanges_in(traces, messages.of_stages);
  // What was found to be of stages is no instance of a collective.
  const bool has_exchanges =
      std::ranges::any_of(exchanges, [](const OpRows& rows) { return !rows.empty(); });
  if (has_exchanges) series = matcher.emplace(traces, exchanges).match();
  matching.matched = std::move(series.matched);
  matching.num_ops = series.num_ops + messages.num_others;
  matching.num_loose_exchanges = messages.num_loose_exchanges;
  std::ranges::move(messages.others, std::back_inserter(matching.matched));
  matching.messages = std::move(messages.of_stages);
  for (const auto& [pair, ahead_ns] : messages.shifts) all_shifts.try_emplace(pair, ahead_ns);
  const std::vector<size_t> chains = chains_of(traces.size(), all_shifts);
  for (const std::pair<size_t, size_t>& pair : series.apart) {
    const bool is_joined = chains[pair.first] == chains[pair.second];
    if (!is_joined) matching.apart.emplace_back(pair.first, pair.second);
  }
  for (MatchedCollective& one : matching.messages) find_last(traces, one);
  int64_t num_matched = 0;
  for (MatchedCollective& one : matching.matched) {
    find_last(traces, one);
    num_matched += static_cast<int64_t>(one.parts.size());
  }
  matching.num_unmatched = matching.num_ops - num_matched;
  matching.lacks = matcher->lacks(matching.matched);
  matching.clock_offsets_ns = offsets_of(traces.size(), std::move(all_shifts));
  set_residual(series, matching);
  return matching;
}

}  // namespace moetune::profiler

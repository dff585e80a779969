#include "profiler/analysis/matched_collectives.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "kernels/base/median.h"
#include "profiler/analysis/matched_messages.h"
#include "profiler/analysis/trace_figures.h"

namespace moetune::profiler {
namespace {

/// Ends of one instance agree within some 10 us on a node; clocks of nodes drift.
constexpr int64_t kEndsAgreeNs = 500'000;
constexpr int64_t kFarApartNs = int64_t{1} << 60;
/// Share of a series' instances that must end together for the match to be believed.
constexpr double kAgreeRatio = 0.8;

/// Key of a series: collectives with the same group, members, kind and size.
using SeriesKey = std::tuple<std::string, std::string, std::string, int64_t>;

struct Instance {
  int64_t sequence = -1;
  uint32_t op = 0;
};

/// Instances of each series, in the order of the trace.
using Series = std::map<SeriesKey, std::vector<Instance>>;
/// OpRows of a trace's ops.
using OpRows = std::set<uint32_t>;

Series series_of(const ImportedTrace& trace, const OpRows& left_out) {
  const WorkClasses wide(trace);
  const auto text = [&](uint32_t name) {
    return name == kNoRow ? std::string() : trace.names[name];
  };
  Series series;
  for (size_t row = 0; row < trace.ops.size(); ++row) {
    const ImportedOp& op = trace.ops[row];
    if (wide.of(op) != WorkClass::communication || op.kind == ActivityKind::copy) continue;
    if (left_out.contains(static_cast<uint32_t>(row))) continue;
    const CommCall comm = op.comm == kNoRow ? CommCall() : trace.comms[op.comm];
    // The two ends of a message have different names (send, recv): see matched_messages.h.
    if (comm.peer >= 0 || text(comm.collective) == "send" || text(comm.collective) == "recv") {
      continue;
    }
    const bool is_named = comm.collective != kNoRow && !sends_and_receives(trace, comm);
    const std::string kind =
        is_named ? text(comm.collective) : name_before_arguments(trace.names[op.name], 80);
    // Sizes differ between the members of an exchange of unequal parts.
    const int64_t bytes = kind.find("all_to_all") != std::string::npos
                              ? 0
                              : std::max(comm.in_nelems, comm.out_nelems);
    series[{text(comm.group), text(comm.members), kind, bytes}].push_back(
        {comm.sequence, static_cast<uint32_t>(row)});
  }
  return series;
}

/// On the clock of its own trace.
int64_t end_of(const ImportedTrace& trace, const Instance& instance) {
  return trace.ops[instance.op].end_ns;
}

/// Distance of any two numbers, at most kFarApartNs: the difference itself could overflow.
int64_t distance_of(int64_t a, int64_t b) {
  const double distance = std::abs(static_cast<double>(a) - static_cast<double>(b));
  return distance < static_cast<double>(kFarApartNs) ? std::abs(a - b) : kFarApartNs;
}

/// Instances of two ranks that belong together.
std::vector<std::pair<Instance, Instance>> pair_up(const std::vector<Instance>& a,
                                                   const std::vector<Instance>& b) {
  std::vector<std::pair<Instance, Instance>> pairs;
  const auto knows = [](const Instance& instance) { return instance.sequence >= 0; };
  if (std::ranges::all_of(a, knows) && std::ranges::all_of(b, knows)) {
    std::map<int64_t, Instance> by_sequence;
    for (const Instance& instance : b) by_sequence.emplace(instance.sequence, instance);
    for (const Instance& instance : a) {
      const auto other = by_sequence.find(instance.sequence);
      if (other != by_sequence.end()) pairs.emplace_back(instance, other->second);
    }
  } else if (a.size() == b.size()) {
    for (size_t i = 0; i < a.size(); ++i) pairs.emplace_back(a[i], b[i]);
  }
  return pairs;
}

/// A series of two ranks whose instances end together.
struct PairedInstances {
  size_t trace = 0;  ///< of the second
  std::vector<std::pair<Instance, Instance>> pairs;
  std::vector<int64_t> shifts;  ///< by pair: how much later it ends on the second one's clock
  int64_t shift_ns = 0;         ///< in their middle
};

/// None where too few of them end together.
std::optional<PairedInstances> pair_up(const ImportedTrace& first, const std::vector<Instance>& a,
                                       const ImportedTrace& second,
                                       const std::vector<Instance>& b) {
  PairedInstances paired;
  paired.pairs = pair_up(a, b);
  for (const auto& [one, other] : paired.pairs) {
    paired.shifts.push_back(end_of(second, other) - end_of(first, one));
  }
  if (paired.shifts.empty()) return std::nullopt;
  paired.shift_ns = base::upper_median(paired.shifts);
  const auto num_agree = std::ranges::count_if(paired.shifts, [&](int64_t shift) {
    return distance_of(shift, paired.shift_ns) <= kEndsAgreeNs;
  });
  if (static_cast<double>(num_agree) < kAgreeRatio * static_cast<double>(paired.shifts.size())) {
    return std::nullopt;
  }
  return paired;
}

/// Whether nothing but its kernel's name says what an operation is, and it may be a message.
bool is_unnamed_message(const ImportedTrace& trace, uint32_t row) {
  const ImportedOp& op = trace.ops[row];
  const bool is_named = op.comm != kNoRow && trace.comms[op.comm].collective != kNoRow;
  return !is_named && may_be_message(trace, row);
}

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
      if (offsets[other]) continue;
      offsets[other] = *offsets[open.front()] + offset_ns;
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

struct MatchedSeries {
  std::vector<MatchedCollective> matched;
  ClockShifts shifts;
  /// Of ends from those of the first rank, after the clocks were aligned: by the other's trace.
  std::map<size_t, std::vector<int64_t>> distances;
  std::set<std::pair<size_t, size_t>> apart;  ///< traces with a series that does not end together
  int64_t num_ops = 0;
};

/// Whether a collective of that kind need not end together: it goes from one member to the others,
/// or the other way, where who sends does not wait for who receives; or each gets a part of its
/// own, and who gets the most ends last.
bool may_end_apart(std::string_view kind) {
  constexpr std::array<std::string_view, 4> kKinds = {"reduce", "_reduce_oop", "gather", "scatter"};
  constexpr std::array<std::string_view, 5> kParts = {"broadcast", "Broadcast", "Kernel_Reduce_",
                                                      "all_to_all", "alltoall"};
  const auto is_in_kind = [&](std::string_view part) { return kind.find(part) != kind.npos; };
  return std::ranges::find(kKinds, kind) != kKinds.end() || std::ranges::any_of(kParts, is_in_kind);
}

/// Whether two ranks that have as many instances of a series must have them in common, and end
/// together: enough to tell, and the file names all their members.
bool is_in_common(const SeriesKey& key, size_t num_instances) {
  constexpr size_t kFewest = 8;
  const std::string& members = std::get<1>(key);
  return num_instances >= kFewest && !members.empty() && !may_end_apart(std::get<2>(key)) &&
         members.find("...") == std::string::npos;  // cut short
}

/// `left_out` by trace.
MatchedSeries match_series(std::span<const ImportedTrace> traces,
                           const std::vector<OpRows>& left_out) {
  MatchedSeries found;
  std::vector<Series> series;  // by trace
  for (size_t i = 0; i < traces.size(); ++i) {
    series.push_back(series_of(traces[i], left_out[i]));
  }
  // Every rank is matched with the first one that has the series, too.
  std::map<SeriesKey, std::vector<size_t>> ranks_of;
  for (size_t rank = 0; rank < series.size(); ++rank) {
    for (const auto& [key, instances] : series[rank]) ranks_of[key].push_back(rank);
  }
  for (const auto& [key, ranks] : ranks_of) {
    if (ranks.size() < 2) continue;
    const std::vector<Instance>& first = series[ranks[0]][key];
    found.num_ops += static_cast<int64_t>(first.size());
    std::vector<PairedInstances> others;
    for (size_t other = 1; other < ranks.size(); ++other) {
      const std::vector<Instance>& second = series[ranks[other]][key];
      found.num_ops += static_cast<int64_t>(second.size());
      auto paired = pair_up(traces[ranks[0]], first, traces[ranks[other]], second);
      if (!paired) {
        const bool is_told = first.size() == second.size() && is_in_common(key, first.size());
        if (is_told) found.apart.emplace(ranks[0], ranks[other]);
        continue;
      }
      paired->trace = ranks[other];
      others.push_back(std::move(*paired));
    }
    // Stages at the ends of a pipeline have as many messages as each other, but not with each
    // other: an exchange of all has all ranks in it.
    const bool is_whole = others.size() + 1 == ranks.size();
    if (!is_whole && is_unnamed_message(traces[ranks[0]], first[0].op)) continue;
    std::map<uint32_t, MatchedCollective> by_op;  // of the first rank
    for (const PairedInstances& other : others) {
      std::vector<int64_t>& ahead = found.shifts[{ranks[0], other.trace}];
      ahead.insert(ahead.end(), other.shifts.begin(), other.shifts.end());
      for (size_t i = 0; i < other.pairs.size(); ++i) {
        const int64_t distance = distance_of(other.shifts[i], other.shift_ns);
        if (distance > kEndsAgreeNs) continue;
        found.distances[other.trace].push_back(distance);
        MatchedCollective& one = by_op[other.pairs[i].first.op];
        if (one.parts.empty()) {
          one.parts.push_back({static_cast<uint32_t>(ranks[0]), other.pairs[i].first.op});
        }
        one.parts.push_back({static_cast<uint32_t>(other.trace), other.pairs[i].second.op});
      }
    }
    for (auto& [op, one] : by_op) found.matched.push_back(std::move(one));
  }
  return found;
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

CollectiveMatching match_across_ranks(std::span<const ImportedTrace> traces) {
  CollectiveMatching matching;
  MatchedSeries series = match_series(traces, std::vector<OpRows>(traces.size()));
  ClockShifts all_shifts = std::move(series.shifts);
  MatchedMessages messages = match_messages(traces, offsets_of(traces.size(), all_shifts));
  const std::vector<OpRows> exchanges = exchanges_in(traces, messages.of_stages);
  // What was found to be of stages is no instance of a collective.
  const bool has_exchanges =
      std::ranges::any_of(exchanges, [](const OpRows& rows) { return !rows.empty(); });
  if (has_exchanges) series = match_series(traces, exchanges);
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
  matching.clock_offsets_ns = offsets_of(traces.size(), std::move(all_shifts));
  set_residual(series, matching);
  return matching;
}

}  // namespace moetune::profiler

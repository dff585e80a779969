#include "profiler/analysis/matched_messages.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string>
#include <string_view>
#include <tuple>

#include "profiler/analysis/group_words.h"
#include "profiler/analysis/kernel_classes.h"
#include "profiler/analysis/messages_by_ends.h"

namespace moetune::profiler {
namespace {

/// A receive may seem to end so much before its message does: clocks drift, and the last kernel to
/// end is not always the same.
constexpr double kSentBeforeNs = 500'000;
/// Share of the messages that must be found by their sequences, or whose delays must agree, for the
/// match to be believed.
constexpr double kMostRatio = 0.8;
/// Neighbours of a stage: the one before and the one behind, of an interleaved pipeline as well.
constexpr size_t kMostNeighbours = 2;

std::string_view text_in(const ImportedTrace& trace, uint32_t name) {
  return name == kNoRow ? std::string_view() : std::string_view(trace.names[name]);
}

bool is_send_or_receive(std::string_view collective) {
  return collective == "send" || collective == "recv";
}

bool is_named_collective(std::string_view collective) {
  constexpr std::array<std::string_view, 6> kWords = {"reduce",  "gather",     "broadcast",
                                                      "scatter", "all_to_all", "barrier"};
  return std::ranges::any_of(kWords, [&](std::string_view word) {
    return collective.find(word) != std::string_view::npos;
  });
}

/// The purpose that the words of a communication's group say, if they say one.
std::optional<std::string_view> purpose_in(const ImportedTrace& trace, const CommCall& comm) {
  for (const uint32_t name : {comm.description, comm.group}) {
    const auto group = group_of_words(text_in(trace, name));
    // What everything else is in says nothing about messages.
    if (group && *group != "world") return group;
  }
  return std::nullopt;
}

/// Ranks that one rank sends to and receives from.
struct Peers {
  std::set<int32_t> sent_to;
  std::set<int32_t> received_from;

  [[nodiscard]] bool can_be_stages() const {
    std::set<int32_t> all = sent_to;
    all.insert(received_from.begin(), received_from.end());
    if (all.size() > kMostNeighbours) return false;
    if (sent_to.empty() || received_from.empty()) return true;
    return std::ranges::any_of(sent_to, [&](int32_t rank) { return received_from.contains(rank); });
  }
};

/// Messages from one trace to another within a group, in the order of their trace.
struct MessageEnd {
  uint32_t op = 0;
  int64_t sequence = -1;
};
struct MessageLane {
  std::vector<MessageEnd> sent;
  std::vector<MessageEnd> received;
};
using EndPair = std::pair<MessageEnd, MessageEnd>;

/// None where the numbers of the two ranks are not of one count, as where each counts all that it
/// sends and receives in a group of more than two.
std::vector<EndPair> ends_by_sequence(const MessageLane& lane) {
  std::map<int64_t, MessageEnd> received;
  for (const MessageEnd& end : lane.received) received.emplace(end.sequence, end);
  received.erase(-1);
  std::vector<EndPair> pairs;
  for (const MessageEnd& end : lane.sent) {
    const auto other = received.find(end.sequence);
    if (other != received.end()) pairs.emplace_back(end, other->second);
  }
  const auto fewer = static_cast<double>(std::min(lane.sent.size(), lane.received.size()));
  if (static_cast<double>(pairs.size()) < kMostRatio * fewer) pairs.clear();
  return pairs;
}

std::vector<EndPair> ends_by_order(const MessageLane& lane) {
  std::vector<EndPair> pairs;
  if (lane.sent.size() != lane.received.size()) return pairs;
  for (size_t i = 0; i < lane.sent.size(); ++i) pairs.emplace_back(lane.sent[i], lane.received[i]);
  return pairs;
}

/// Group, members, and the two traces: that with the smaller index first.
using MessageLinkKey = std::tuple<std::string, std::string, size_t, size_t>;
/// There, and back.
using MessageLink = std::array<MessageLane, 2>;

class MessageMatcher {
 public:
  MessageMatcher(std::span<const ImportedTrace> traces,
                 std::span<const std::optional<int64_t>> clock_offsets_ns)
      : traces_(traces), clock_offsets_ns_(clock_offsets_ns) {
    for (size_t i = 0; i < traces.size(); ++i) {
      if (traces[i].facts.rank) trace_of_rank_.emplace(*traces[i].facts.rank, i);
    }
  }

  MatchedMessages match() {
    find_members();
    for (size_t i = 0; i < traces_.size(); ++i) add_ends(i);
    for (const auto& [key, link] : links_) match_link(key, link);
    for (const auto& [group, ends] : loose_ends_) match_loose_ends(ends);
    return std::move(matched_);
  }

 private:
  /// Calls `visit(op's row, its communication)` for each send and receive of a trace, and for each
  /// kernel that does both.
  template <typename Visit>
  void for_each_end(size_t index, const Visit& visit) const {
    const ImportedTrace& trace = traces_[index];
    for (size_t row = 0; row < trace.ops.size(); ++row) {
      const ImportedOp& op = trace.ops[row];
      if (op.comm == kNoRow || op.kind != ActivityKind::kernel) continue;
      const CommCall& comm = trace.comms[op.comm];
      if (is_send_or_receive(text_in(trace, comm.collective)) || sends_and_receives(trace, comm)) {
        visit(static_cast<uint32_t>(row), comm);
      }
    }
  }

  using GroupKey = std::pair<std::string, std::string>;
  [[nodiscard]] GroupKey group_of(size_t index, const CommCall& comm) const {
    return {std::string(text_in(traces_[index], comm.group)),
            std::string(text_in(traces_[index], comm.members))};
  }

  void find_members() {
    for (size_t i = 0; i < traces_.size(); ++i) {
      for_each_end(i,
                   [&](uint32_t, const CommCall& comm) { members_[group_of(i, comm)].insert(i); });
    }
  }

  /// The trace of the other rank. Where the file does not say which rank that is, the only other
  /// one of the group.
  [[nodiscard]] std::optional<size_t> peer_of(size_t index, const CommCall& comm) const {
    if (comm.peer >= 0) {
      const auto found = trace_of_rank_.find(comm.peer);
      if (found == trace_of_rank_.end() || found->second == index) return std::nullopt;
      return found->second;
    }
    const std::set<size_t>& members = members_.at(group_of(index, comm));
    if (members.size() != 2 || comm.group_size > 2) return std::nullopt;
    return *members.begin() == index ? *members.rbegin() : *members.begin();
  }

  void add_ends(size_t index) {
    const ImportedTrace& trace = traces_[index];
    for_each_end(index, [&](uint32_t row, const CommCall& comm) {
      if (sends_and_receives(trace, comm)) {
        exchanges_.push_back({static_cast<uint32_t>(index), row, trace.ops[row].end_ns});
        ++matched_.num_loose_exchanges;
        return;
      }
      const bool is_send = text_in(trace, comm.collective) == "send";
      const auto peer = says_no_partner(comm) ? std::nullopt : peer_of(index, comm);
      if (!peer) {
        if (comm.peer >= 0 || !(says_no_partner(comm) || is_stage_message(index, row))) return;
        auto& [sent, received] = loose_ends_[group_of(index, comm)];
        (is_send ? sent : received)
            .push_back({static_cast<uint32_t>(index), row, trace.ops[row].end_ns});
        return;
      }
      const auto [group, members] = group_of(index, comm);
      MessageLink& link = links_[{group, members, std::min(index, *peer), std::max(index, *peer)}];
      MessageLane& lane = link[(is_send ? index : *peer) < (is_send ? *peer : index) ? 0 : 1];
      (is_send ? lane.sent : lane.received).push_back({row, comm.sequence});
    });
  }

  /// What was sent, and what was received.
  using LooseEnds = std::array<std::vector<LooseEnd>, 2>;

  /// Ends tell who sent to whom only where all clocks agree: where collectives have shown how far
  /// they are apart, or where one file holds all these ranks.
  void match_loose_ends(LooseEnds ends) {
    std::set<uint32_t> traces;
    for (const std::vector<LooseEnd>& of_one_kind : ends) {
      for (const LooseEnd& end : of_one_kind) {
        traces.insert(end.trace);
        matched_.num_others += is_stage_message(end.trace, end.op) ? 0 : 1;
      }
    }
    const bool has_offsets = std::ranges::all_of(
        traces, [&](uint32_t trace) { return clock_offsets_ns_[trace].has_value(); });
    const bool is_one_file = std::ranges::all_of(traces, [&](uint32_t trace) {
      return traces_[trace].facts.file == traces_[*traces.begin()].facts.file;
    });
    if (!has_offsets && !is_one_file) return;
    if (has_offsets) {
      for (std::vector<LooseEnd>& of_one_kind : ends) {
        std::erase_if(of_one_kind, [&](LooseEnd& end) {
          return __builtin_add_overflow(end.end_ns, *clock_offsets_ns_[end.trace], &end.end_ns);
        });
      }
    }
    const auto pairs = pair_by_ends(std::move(ends[0]), std::move(ends[1]));
    std::map<uint32_t, Peers> peers;  // by trace: other traces
    for (const auto& [sent, received] : pairs) {
      peers[sent.trace].sent_to.insert(static_cast<int32_t>(received.trace));
      peers[received.trace].received_from.insert(static_cast<int32_t>(sent.trace));
    }
    const bool is_pipeline = std::ranges::all_of(
        peers, [](const auto& of_trace) { return of_trace.second.can_be_stages(); });
    if (is_pipeline) match_exchanges(pairs, has_offsets);
    for (const auto& [sent, received] : pairs) {
      MatchedCollective one;
      one.parts = {{sent.trace, sent.op}, {received.trace, received.op}};
      const bool is_known = is_stage_message(sent.trace, sent.op);
      if (!is_known && is_pipeline) matched_.num_others -= 2;
      (is_known || is_pipeline ? matched_.of_stages : matched_.others).push_back(std::move(one));
      if (has_offsets) continue;
      const std::pair<size_t, size_t> both = std::minmax(sent.trace, received.trace);
      matched_.shifts.try_emplace(both, std::vector<int64_t>{0});
    }
  }

  /// A communicator has one stream on a device: exchanges of stages are where `messages` of them
  /// are.
  void match_exchanges(const EndsTogether& messages, bool has_offsets) {
    std::set<std::pair<uint32_t, uint16_t>> streams;  // with their traces
    const auto stream_of = [&](const LooseEnd& end) {
      return std::pair(end.trace, traces_[end.trace].ops[end.op].stream);
    };
    for (const auto& [sent, received] : messages) {
      if (!says_no_partner_of(sent) || !says_no_partner_of(received)) return;
      streams.insert(stream_of(sent));
      streams.insert(stream_of(received));
    }
    std::vector<LooseEnd> exchanges;
    for (LooseEnd end : exchanges_) {
      if (!streams.contains(stream_of(end))) continue;
      if (has_offsets &&
          __builtin_add_overflow(end.end_ns, *clock_offsets_ns_[end.trace], &end.end_ns)) {
        continue;
      }
      exchanges.push_back(end);
    }
    for (const auto& [one, other] : pair_exchanges(std::move(exchanges), messages)) {
      MatchedCollective both;
      both.parts = {{one.trace, one.op}, {other.trace, other.op}};
      matched_.of_stages.push_back(std::move(both));
      matched_.num_loose_exchanges -= 2;
    }
  }

  [[nodiscard]] bool says_no_partner_of(const LooseEnd& end) const {
    const ImportedTrace& trace = traces_[end.trace];
    return says_no_partner(trace.comms[trace.ops[end.op].comm]);
  }

  void match_link(const MessageLinkKey& key, const MessageLink& link) {
    const auto& [group, members, first, second] = key;
    const std::array<size_t, 2> from = {first, second};
    const std::array<size_t, 2> to = {second, first};
    for (const auto& ends_of : {ends_by_sequence, ends_by_order}) {
      const std::array<std::vector<EndPair>, 2> pairs = {ends_of(link[0]), ends_of(link[1])};
      if (pairs[0].empty() && pairs[1].empty()) continue;
      const auto ahead_ns = clock_ahead_ns(first, second, pairs);
      if (!ahead_ns) continue;
      const bool is_known = clock_offsets_ns_[first] && clock_offsets_ns_[second];
      if (!is_known) matched_.shifts.try_emplace({first, second}, std::vector{*ahead_ns});
      for (size_t way = 0; way < 2; ++way) {
        for (const auto& [sent, received] : pairs[way]) {
          MatchedCollective one;
          one.parts = {{static_cast<uint32_t>(from[way]), sent.op},
                       {static_cast<uint32_t>(to[way]), received.op}};
          const bool is_of_stages = is_stage_message(from[way], sent.op);
          (is_of_stages ? matched_.of_stages : matched_.others).push_back(std::move(one));
        }
      }
      break;
    }
    // Those that were not matched count as well.
    for (size_t way = 0; way < 2; ++way) {
      for (const MessageEnd& end : link[way].sent) {
        matched_.num_others += is_stage_message(from[way], end.op) ? 0 : 1;
      }
      for (const MessageEnd& end : link[way].received) {
        matched_.num_others += is_stage_message(to[way], end.op) ? 0 : 1;
      }
    }
  }

  bool is_stage_message(size_t index, uint32_t op) {
    auto [rows, is_new] = stage_messages_.try_emplace(index);
    if (is_new) rows->second = stage_messages_of(traces_[index]);
    return rows->second[traces_[index].ops[op].comm];
  }

  /// How far the second clock is ahead so that no message ends at its receiver before it does at
  /// its sender (Cristian 1989): nothing where there is no such clock. Times may be absurd, so they
  /// are compared as doubles.
  [[nodiscard]] std::optional<int64_t> clock_ahead_ns(
      size_t first, size_t second, const std::array<std::vector<EndPair>, 2>& pairs) const {
    const std::vector<double> there_ns = delays_ns(first, second, pairs[0]);
    const std::vector<double> back_ns = delays_ns(second, first, pairs[1]);
    const double most_ns = there_ns.empty() ? kFarNs : std::ranges::min(there_ns);
    const double least_ns = back_ns.empty() ? -kFarNs : -std::ranges::min(back_ns);
    if (clock_offsets_ns_[first] && clock_offsets_ns_[second]) {
      const double known_ns = static_cast<double>(*clock_offsets_ns_[first]) -
                              static_cast<double>(*clock_offsets_ns_[second]);
      if (known_ns > most_ns + kSentBeforeNs || known_ns < least_ns - kSentBeforeNs) {
        return std::nullopt;
      }
      return static_cast<int64_t>(known_ns);
    }
    if (least_ns > most_ns + kSentBeforeNs) return std::nullopt;
    const double ahead_ns =
        least_ns > most_ns ? (least_ns + most_ns) / 2 : std::clamp(0.0, least_ns, most_ns);
    if (!(std::abs(ahead_ns) < kFarNs)) return std::nullopt;
    // One way alone, any match could be shifted to fit: then the delays have to agree.
    if (std::abs(ahead_ns) > kSentBeforeNs && (there_ns.empty() || back_ns.empty())) {
      const std::vector<double>& delays = there_ns.empty() ? back_ns : there_ns;
      const double least = std::ranges::min(delays);
      const auto num_alike = std::ranges::count_if(
          delays, [&](double delay_ns) { return delay_ns <= least + kSentBeforeNs; });
      if (static_cast<double>(num_alike) < kMostRatio * static_cast<double>(delays.size())) {
        return std::nullopt;
      }
    }
    return static_cast<int64_t>(ahead_ns);
  }

  /// From the end of each at its sender to that at its receiver, on the clocks of the files.
  [[nodiscard]] std::vector<double> delays_ns(size_t from, size_t to,
                                              const std::vector<EndPair>& ends) const {
    std::vector<double> delays;
    for (const auto& [sent, received] : ends) {
      delays.push_back(static_cast<double>(traces_[to].ops[received.op].end_ns) -
                       static_cast<double>(traces_[from].ops[sent.op].end_ns));
    }
    return delays;
  }

  static constexpr double kFarNs = 1e18;

  std::span<const ImportedTrace> traces_;
  std::span<const std::optional<int64_t>> clock_offsets_ns_;
  std::map<int64_t, size_t> trace_of_rank_;
  std::map<GroupKey, std::set<size_t>> members_;  ///< traces with messages in the group
  std::map<MessageLinkKey, MessageLink> links_;
  std::map<GroupKey, LooseEnds> loose_ends_;            ///< of messages between stages
  std::vector<LooseEnd> exchanges_;                     ///< kernels that send and receive
  std::map<size_t, std::vector<bool>> stage_messages_;  ///< by trace
  MatchedMessages matched_;
};

}  // namespace

std::vector<bool> stage_messages_of(const ImportedTrace& trace) {
  std::map<std::pair<uint32_t, uint32_t>, Peers> peers;  // by name of the group and of its members
  for (const CommCall& comm : trace.comms) {
    if (comm.peer < 0) continue;
    const std::string_view collective = text_in(trace, comm.collective);
    Peers& own = peers[{comm.group, comm.members}];
    if (collective == "send") own.sent_to.insert(comm.peer);
    if (collective == "recv") own.received_from.insert(comm.peer);
  }
  std::map<std::pair<uint32_t, uint32_t>, std::optional<std::string_view>> purposes;  // by words
  std::vector<bool> is_message;
  is_message.reserve(trace.comms.size());
  for (const CommCall& comm : trace.comms) {
    if (says_no_partner(comm)) {
      is_message.push_back(false);
      continue;
    }
    const std::string_view collective = text_in(trace, comm.collective);
    const auto [known, is_new] = purposes.try_emplace({comm.description, comm.group});
    if (is_new) known->second = purpose_in(trace, comm);
    const auto& purpose = known->second;
    if (purpose) {
      is_message.push_back(*purpose == "pp" && !is_named_collective(collective));
    } else {
      const auto own = peers.find({comm.group, comm.members});
      is_message.push_back(is_send_or_receive(collective) &&
                           (own == peers.end() || own->second.can_be_stages()));
    }
  }
  return is_message;
}

MatchedMessages match_messages(std::span<const ImportedTrace> traces,
                               std::span<const std::optional<int64_t>> clock_offsets_ns) {
  return MessageMatcher(traces, clock_offsets_ns).match();
}

}  // namespace moetune::profiler

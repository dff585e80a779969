#include "engine/plan/player.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "engine/spec/planned_links.h"
#include "kernels/base/error.h"
#include "kernels/base/step_parts.h"

namespace moetune::plan {
namespace {

using profiler::RecordKind;
using profiler::Timeline;

/// Rows that a routed collective sends to each peer: the chunk's rows on their way to the experts,
/// or back from them.
const std::vector<int64_t>& send_rows(const Segment& segment, const Instr& instr,
                                      const Route& route) {
  const ChunkRoute& chunk = route.chunk(segment.is_backward, std::max<int64_t>(instr.chunk, 0));
  return is_to_experts(instr) ? chunk.send_rows : chunk.recv_rows;
}

/// One played rank: its clocks and where it stands.
struct Cursor {
  PlayedRank played;
  std::unique_ptr<Timeline> timeline;
  std::array<std::vector<profiler::Event>, kNumLanes> events;  ///< of the current items
  size_t item = 0;
  size_t instr = 0;
  // A collective or a message that it has launched and that has not ended.
  bool is_waiting = false;
  bool is_released = false;
  int64_t ready_ns = 0;
  int64_t end_ns = 0;
  int64_t transfer_ns = 0;
  int64_t sequence = 0;
  profiler::Partners partners;
  const Route* route = nullptr;

  [[nodiscard]] int rank() const { return played.program->rank; }
  [[nodiscard]] bool is_done() const { return item >= played.program->items.size(); }
  [[nodiscard]] const Item& current() const { return played.program->items[item]; }
  [[nodiscard]] const Segment& segment() const {
    return *played.program->segments[static_cast<size_t>(current().segment)];
  }
};

/// The members of one communicator that are played.
struct Meeting {
  std::vector<int> ranks;       ///< all members
  std::vector<size_t> cursors;  ///< of each member: the one that stands for it
  size_t num_expected = 0;      ///< different ones among them
  std::vector<size_t> arrived;
  int64_t num_calls = 0;
};

struct Message {
  int64_t start_ns = 0;
  int64_t transfer_ns = 0;
  int64_t sequence = 0;
};

/// Messages of one rank to another in one direction.
struct Channel {
  int64_t num_sent = 0;
  int64_t num_read = 0;
  std::vector<int64_t> read_ns;  ///< when each slot was read last
};

class Player {
 public:
  Player(const spec::HardwareSpec& hardware, const std::vector<PlayedRank>& ranks,
         const DurationOf& duration_of, const PlayOptions& options)
      : hardware_(hardware),
        duration_of_(duration_of),
        transfer_of_(options.transfer_of),
        sees_collective_(options.sees_collective),
        layout_(ranks.front().program->layout) {
    for (const PlayedRank& rank : ranks) {
      Cursor& cursor = cursors_.emplace_back();
      cursor.played = rank;
      cursor.timeline = std::make_unique<Timeline>(
          profiler::ClockMode::virtual_modelled, rank.program->rank,
          static_cast<int>(Stream::count),
          profiler::HostCosts{hardware.launch_ns, hardware.graph_launch_ns, hardware.sync_ns,
                              options.launch_queue},
          static_cast<int>(hardware.local_device_of(rank.program->rank)));
      if (options.keeps_record) {
        cursor.timeline->filter_records(
            [&keeps = options.keeps_record, place = cursors_.size() - 1](
                const profiler::TraceRecord& record) { return keeps(place, record); });
      }
      cursor.timeline->begin_step(options.step, options.level);
      by_stage_.try_emplace(layout_.pp_rank(rank.program->rank), cursors_.size() - 1);
      by_rank_[rank.program->rank] = cursors_.size() - 1;
    }
  }

  PlayResult run() {
    bool has_moved = true;
    while (has_moved) {
      has_moved = false;
      for (size_t i = 0; i < cursors_.size(); ++i) {
        while (!cursors_[i].is_done() && advance(i)) has_moved = true;
      }
    }
    PlayResult result;
    for (const Cursor& cursor : cursors_) {
      if (!cursor.is_done()) throw base::Error(deadlock_text());
      result.step_ns = std::max(result.step_ns, cursor.timeline->latest_ns());
    }
    for (Cursor& cursor : cursors_) {
      result.traces.push_back(cursor.timeline->end_step(result.step_ns));
    }
    return result;
  }

 private:
  [[nodiscard]] profiler::OpTag tag_of(const Cursor& c, const Instr& instr,
                                       const OpCost& cost) const {
    return {op_label(instr.op, instr.pass),
            c.current().layer,
            c.current().micro_batch,
            cost.flops,
            cost.bytes,
            instr.pass == Pass::recompute};
  }

  [[nodiscard]] const Route* route_of(const Cursor& c) const {
    MOETUNE_CHECK(c.played.bindings != nullptr, "a routed size needs bindings");
    return &c.played.bindings->at(c.current().layer, c.current().micro_batch);
  }

  [[nodiscard]] OpCost cost_of(const Cursor& c, const Instr& instr) const {
    if (!instr.is_routed) return instr.cost;
    return cost_at(instr, route_of(c)->received(c.segment().is_backward, instr.chunk));
  }

  [[nodiscard]] static Sharing sharing_of(const Cursor& c) {
    return plan::sharing_of(*c.played.program, c.current(), c.instr);
  }

  static profiler::Event& event(Cursor& c, const Instr& instr) {
    return c.events[lane_of(c.segment())][static_cast<size_t>(instr.event)];
  }

  /// Runs one instruction; false when it has to wait for other ranks.
  bool advance(size_t index) {
    Cursor& c = cursors_[index];
    const Segment& segment = c.segment();
    if (c.instr == 0 && !c.is_waiting && segment.begins()) {
      c.events[lane_of(segment)].assign(static_cast<size_t>(segment.num_events), {});
    }
    if (c.instr < segment.code.size()) {
      if (!run(index, segment.code[c.instr])) return false;
      ++c.instr;
    }
    if (c.instr >= segment.code.size()) {
      ++c.item;
      c.instr = 0;
    }
    return true;
  }

  bool run(size_t index, const Instr& instr) {
    Cursor& c = cursors_[index];
    Timeline& timeline = *c.timeline;
    const auto stream = static_cast<int>(instr.stream);
    if (cuts_graph(instr.verb)) timeline.cut_graph();
    switch (instr.verb) {
      case Verb::op: {
        const OpCost cost = cost_of(c, instr);
        const int64_t start = timeline.launch(stream);
        const Position position = {c.rank(), c.item, c.instr, sharing_of(c).num_collectives, start};
        timeline.finish(stream, RecordKind::kernel, tag_of(c, instr, cost), start,
                        duration_of_(position, instr, cost));
        return true;
      }
      case Verb::comm:
        return communicate(index, instr, [&] { meet(index, instr); });
      case Verb::send:
      case Verb::recv:
        return communicate(index, instr, [&] { exchange(index, instr); });
      case Verb::record:
        if (!instr.device_only) {
          event(c, instr) =
              instr.is_for_slot ? timeline.record_slot(stream) : timeline.record_event(stream);
        }
        return true;
      case Verb::wait:
        if (!instr.device_only) {
          timeline.wait_event(stream, event(c, instr));
        }
        return true;
      case Verb::fetch:
        timeline.synchronize(timeline.record_event(stream), tag_of(c, instr, {}));
        return true;
      case Verb::copy: {
        // By the device's own engines, beside its multiprocessors.
        const OpCost cost = cost_of(c, instr);
        const int64_t start = timeline.launch(stream, false);
        const int64_t ns = duration_of_({c.rank(), c.item, c.instr, 0, start}, instr, cost);
        timeline.finish_communication(stream, RecordKind::memcpy, tag_of(c, instr, cost),
                                      base::kMemcpyGroup, -1, start, start + ns, ns);
        return true;
      }
      case Verb::host: {
        const OpCost cost = cost_of(c, instr);
        timeline.finish_host_work(tag_of(c, instr, cost), timeline.begin_host_work(),
                                  duration_of_({c.rank(), c.item, c.instr}, instr, cost));
        return true;
      }
      case Verb::mark:
        if (static_cast<Mark>(instr.what) == Mark::graph_open) timeline.begin_graph();
        if (static_cast<Mark>(instr.what) == Mark::graph_close) timeline.end_graph();
        return true;
      default:
        return true;
    }
  }

  /// Launches once, then waits until `arrive` or another rank has released it.
  template <typename Arrive>
  bool communicate(size_t index, const Instr& instr, Arrive&& arrive) {
    Cursor& c = cursors_[index];
    const auto stream = static_cast<int>(instr.stream);
    if (!c.is_waiting) {
      c.is_waiting = true;
      c.is_released = false;
      c.ready_ns = c.timeline->launch(stream, false);
      c.route = instr.is_routed ? route_of(c) : nullptr;
      arrive();
    } else if (!c.is_released && instr.verb != Verb::comm) {
      arrive();
    }
    if (!c.is_released) return false;
    c.is_waiting = false;
    if (instr.verb == Verb::comm && sees_collective_) {
      sees_collective_(c.rank(), c.ready_ns, c.end_ns);
    }
    const auto kind = instr.verb == Verb::comm ? RecordKind::collective : RecordKind::p2p;
    profiler::OpTag tag = tag_of(c, instr, {});
    tag.bytes = sent_bytes(*c.played.program, c.segment(), instr, c.route);
    c.timeline->finish_communication(stream, kind, tag, name_of(instr.group), c.sequence,
                                     c.ready_ns, c.end_ns, c.transfer_ns, c.partners);
    return true;
  }

  Meeting& meeting_of(const Cursor& c, Group group) {
    const std::vector<int> ranks = layout_.group_ranks(group, c.rank());
    Meeting& meeting = meetings_[{group, ranks.front()}];
    if (!meeting.ranks.empty()) return meeting;
    meeting.ranks = ranks;
    for (const int rank : ranks) {
      const auto played = by_rank_.find(rank);
      meeting.cursors.push_back(played != by_rank_.end() ? played->second
                                                         : by_stage_.at(layout_.pp_rank(rank)));
    }
    const std::set<size_t> different(meeting.cursors.begin(), meeting.cursors.end());
    meeting.num_expected = different.size();
    return meeting;
  }

  /// The last member to arrive ends the collective for all.
  void meet(size_t index, const Instr& instr) {
    Meeting& meeting = meeting_of(cursors_[index], instr.group);
    meeting.arrived.push_back(index);
    if (meeting.arrived.size() < meeting.num_expected) return;
    int64_t latest = 0;
    for (const size_t member : meeting.arrived) {
      latest = std::max(latest, cursors_[member].ready_ns);
    }
    const int64_t transfer = as_told(instr, meeting.ranks, transfer_ns(meeting, instr));
    int64_t packing = 0;
    for (const size_t member : meeting.arrived) {
      packing = std::max(packing, packing_ns(cursors_[member], instr));
    }
    for (const size_t member : meeting.arrived) {
      Cursor& c = cursors_[member];
      c.transfer_ns = transfer;
      c.end_ns = latest + transfer + packing;
      c.sequence = meeting.num_calls;
      c.partners = {meeting.ranks.front(), -1};
      c.is_released = true;
    }
    ++meeting.num_calls;
    meeting.arrived.clear();
  }

  /// What its kernel does beside the transfer.
  [[nodiscard]] int64_t packing_ns(const Cursor& c, const Instr& instr) const {
    OpCost cost{0, instr.packing.bytes};
    if (instr.packing.bytes_per_row > 0) {
      cost.bytes +=
          instr.packing.bytes_per_row * route_of(c)->received(c.segment().is_backward, instr.chunk);
    }
    return cost.bytes == 0 ? 0 : duration_of_({c.rank(), c.item, c.instr}, instr, cost);
  }

  [[nodiscard]] int64_t as_told(const Instr& instr, const std::vector<int>& ranks,
                                int64_t transfer_ns) const {
    return transfer_of_ ? transfer_of_(instr, ranks, transfer_ns) : transfer_ns;
  }

  [[nodiscard]] int64_t transfer_ns(const Meeting& meeting, const Instr& instr) const {
    spec::LinkShare share;
    for (const size_t member : meeting.arrived) {
      share = spec::wider(share, sharing_of(cursors_[member]).links);
    }
    if (instr.is_by_node) {
      return spec::links_ns(
          hardware_,
          {static_cast<double>(instr.cost.bytes), static_cast<double>(instr.across_bytes)}, share);
    }
    if (!instr.is_routed) {
      return spec::collective_ns(hardware_, instr.kind, meeting.ranks, instr.cost.bytes, share);
    }
    const size_t n = meeting.ranks.size();
    std::vector<int64_t> bytes(n * n);
    for (size_t i = 0; i < n; ++i) {
      const Cursor& member = cursors_[meeting.cursors[i]];
      const Instr& own = member.segment().code[member.instr];
      const std::vector<int64_t>& rows = send_rows(member.segment(), own, *member.route);
      for (size_t j = 0; j < n; ++j) bytes[i * n + j] = rows[j] * instr.cost_per_row.bytes;
    }
    return spec::all_to_all_ns(hardware_, meeting.ranks, bytes, share);
  }

  void exchange(size_t index, const Instr& instr) {
    Cursor& c = cursors_[index];
    const std::vector<int> stages = layout_.group_ranks(instr.group, c.rank());
    const int peer = stages[static_cast<size_t>(instr.peer)];
    c.partners = {stages.front(), peer};
    const bool is_send = instr.verb == Verb::send;
    const auto key = is_send ? std::pair(c.rank(), peer) : std::pair(peer, c.rank());
    const std::tuple place(key.first, key.second, message_tag(instr, c.current()));
    Channel& channel = channels_[{key.first, key.second, instr.pass == Pass::backward}];
    const int num_slots = c.played.program->num_message_slots;
    channel.read_ns.resize(static_cast<size_t>(num_slots));
    if (is_send) {
      if (channel.num_sent - channel.num_read >= num_slots) return;
      const auto slot = static_cast<size_t>(channel.num_sent++ % num_slots);
      const int64_t start = std::max(c.ready_ns, channel.read_ns[slot]);
      const int64_t transfer = as_told(
          instr, {key.first, key.second},
          spec::p2p_ns(hardware_, key.first, key.second, instr.cost.bytes, sharing_of(c).links));
      c.sequence = message_counts_[key]++;
      c.transfer_ns = transfer;
      c.end_ns = start + transfer;
      mailboxes_[place].push_back({start, transfer, c.sequence});
      c.is_released = true;
      return;
    }
    std::deque<Message>& inbox = mailboxes_[place];
    if (inbox.empty()) return;
    const Message message = inbox.front();
    inbox.pop_front();
    c.sequence = message.sequence;
    c.end_ns = std::max(c.ready_ns, message.start_ns + message.transfer_ns);
    c.transfer_ns = std::min(message.transfer_ns, c.end_ns - c.ready_ns);
    channel.read_ns[static_cast<size_t>(channel.num_read++ % num_slots)] = c.end_ns;
    c.is_released = true;
  }

  [[nodiscard]] std::string deadlock_text() const {
    std::string text = "the ranks of this program wait for each other forever:";
    for (const Cursor& c : cursors_) {
      if (c.is_done()) continue;
      const Instr& instr = c.segment().code[c.instr];
      text += fmt::format(" rank {} in item {}, instruction {}: {} {};", c.rank(), c.item, c.instr,
                          name_of(instr.verb), op_label(instr.op, instr.pass));
    }
    return text;
  }

  const spec::HardwareSpec& hardware_;
  const DurationOf& duration_of_;
  const TransferOf& transfer_of_;
  const std::function<void(int, int64_t, int64_t)>& sees_collective_;
  Layout layout_;
  std::vector<Cursor> cursors_;
  std::map<int, size_t> by_stage_;
  std::map<int, size_t> by_rank_;
  std::map<std::pair<Group, int>, Meeting> meetings_;
  std::map<std::tuple<int, int, int64_t>, std::deque<Message>> mailboxes_;
  std::map<std::pair<int, int>, int64_t> message_counts_;
  std::map<std::tuple<int, int, bool>, Channel> channels_;  ///< from, to, backward
};

}  // namespace

PlayResult play(const spec::HardwareSpec& hardware, const std::vector<PlayedRank>& ranks,
                const DurationOf& duration_of, const PlayOptions& options) {
  return Player(hardware, ranks, duration_of, options).run();
}

int64_t sent_bytes(spec::CollectiveKind kind, int64_t payload_bytes, int64_t num_ranks) {
  if (kind == spec::CollectiveKind::ring_shift) return num_ranks > 1 ? payload_bytes : 0;
  const int64_t share = payload_bytes * (num_ranks - 1) / num_ranks;
  return kind == spec::CollectiveKind::all_reduce ? 2 * payload_bytes * (num_ranks - 1) / num_ranks
                                                  : share;
}

int64_t sent_bytes(const StepProgram& program, const Segment& segment, const Instr& instr,
                   const Route* route) {
  if (instr.verb == Verb::send) return instr.cost.bytes;
  if (instr.verb == Verb::recv) return 0;
  if (instr.is_by_node) return instr.cost.bytes + instr.across_bytes;
  if (!instr.is_routed) {
    return sent_bytes(instr.kind, instr.cost.bytes, program.layout.group_size(instr.group));
  }
  MOETUNE_CHECK(route != nullptr, "a routed size needs bindings");
  const std::vector<int64_t>& rows = send_rows(segment, instr, *route);
  const auto own = static_cast<size_t>(program.layout.rank_in(instr.group, program.rank));
  int64_t sent = 0;
  for (size_t peer = 0; peer < rows.size(); ++peer) {
    if (peer != own) sent += rows[peer] * instr.cost_per_row.bytes;
  }
  return sent;
}

BalancedBindings::BalancedBindings(const spec::TrialSpec& trial, int rank) {
  for (int64_t layer = 0; layer < num_layers_with_mtp(trial.model); ++layer) {
    const LayerDims dims = layer_dims(trial.model, trial.knobs, trial.training.seq_length, layer);
    if (!dims.is_moe) continue;
    const Layout layout = layout_of(trial.knobs);
    route_ = dims.expert_ranks > 1
                 ? make_route(dims, layout.rank_in(Group::ep, rank), balanced_counts(dims))
                 : local_route(dims);
    return;
  }
}

}  // namespace moetune::plan

#include "profiler/import/own_steps.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "kernels/base/error.h"
#include "kernels/base/median.h"
#include "profiler/import/rank_traces.h"
#include "profiler/import/step_traces.h"
#include "profiler/record.h"

namespace moetune::profiler {
namespace {

/// On devices, ends of one collective differ by about this; on virtual clocks not at all.
constexpr int64_t kOwnEndsAgreeNs = 100'000;
/// So many messages tell who the other rank is.
constexpr size_t kMostComparedEnds = 64;
/// What recording an event takes of a launch, or waiting for one.
constexpr int64_t kOwnEventCallNs = 100;

struct OwnCollectiveRow {
  std::string_view word;  ///< in the op's name
  std::string_view collective;
};
/// The first that fits; the last one fits all.
constexpr OwnCollectiveRow kOwnCollectives[] = {
    {"dispatch", "all_to_allv"},
    {"combine", "all_to_allv"},
    {"exchange", "all_to_allv"},
    {"kv_shift", "all_to_allv"},
    {"Gather", "_allgather_base"},
    {"gather", "_allgather_base"},
    {"Scatter", "_reduce_scatter_base"},
    {"scatter", "_reduce_scatter_base"},
    {"", "allreduce"},
};

bool says(const TraceRecord& record, std::string_view word) {
  return record.name.text().find(word) != std::string::npos;
}

LaunchShape shape_of(const TraceRecord& record) {
  LaunchShape shape;
  for (size_t i = 0; i < shape.grid.size(); ++i) {
    shape.grid[i] = static_cast<uint32_t>(std::max(0, record.grid[i]));
    shape.block[i] = static_cast<uint32_t>(std::max(0, record.block[i]));
  }
  return shape;
}

/// Sums and differences of what passes fit into 64 bits.
void check_times(const std::string& path, const std::vector<StepTrace>& steps) {
  const auto check = [&](int32_t rank, std::initializer_list<int64_t> times_ns) {
    for (const int64_t ns : times_ns) {
      if (ns <= kMostImportedNs && ns >= -kMostImportedNs) continue;
      throw base::UsageError(
          fmt::format("{}: rank {} has a time of {} ns, which no trace's is", path, rank, ns));
    }
  };
  for (const StepTrace& step : steps) {
    check(step.rank, {step.start_ns, step.end_ns});
    for (const TraceRecord& one : step.records) {
      check(step.rank, {one.start_ns, one.end_ns, one.launch_start_ns, one.launch_end_ns});
    }
  }
}

/// Of a step's communication: which one of its group.
using OwnInstance = std::pair<int32_t, int64_t>;  // step, sequence
using OwnEnds = std::map<OwnInstance, int64_t>;
/// Steps of each rank.
using OwnRanks = std::map<int32_t, std::vector<const StepTrace*>>;

/// Middle distance of the ends that both have; none where they have none in common.
std::optional<int64_t> distance_between(const OwnEnds& a, const OwnEnds& b) {
  std::vector<int64_t> distances;
  for (const auto& [instance, end_ns] : a) {
    const auto other = b.find(instance);
    if (other == b.end()) continue;
    distances.push_back(std::abs(end_ns - other->second));
    if (distances.size() == kMostComparedEnds) break;
  }
  if (distances.empty()) return std::nullopt;
  return base::upper_median(std::move(distances));
}

/// Ranks that end together may be several communicators only if they can be cut into alike ones.
bool can_be_several(size_t num_ranks) {
  for (size_t size = 2; size * size <= num_ranks; ++size) {
    if (num_ranks % size == 0) return true;
  }
  return false;
}

/// Who communicates with whom: as the file says, or by that they end together.
class OwnGroups {
 public:
  explicit OwnGroups(const OwnRanks& ranks) {
    add_known(ranks);
    std::map<std::string, std::map<int32_t, OwnEnds>> collectives;  // by group
    std::map<std::string, std::map<int32_t, OwnEnds>> messages;     // by op
    std::map<int32_t, std::string> group_of_messages;
    for (const auto& [rank, steps] : ranks) {
      for (const StepTrace* step : steps) {
        for (const TraceRecord& one : step->records) {
          if (one.group.empty() || one.sequence < 0) continue;
          const OwnInstance instance = {step->step, one.sequence};
          if (members_.contains({rank, one.group.text()})) continue;
          if (one.kind == RecordKind::p2p) {
            messages[one.name.text()][rank].emplace(instance, one.end_ns);
            group_of_messages.emplace(rank, one.group.text());
          } else {
            collectives[one.group.text()][rank].emplace(instance, one.end_ns);
            if (one.transfer_ns >= one.end_ns - one.start_ns) {
              last_[one.group.text()][instance].insert(rank);
            }
          }
        }
      }
    }
    const int64_t most_ns = have_equal_ends(collectives) ? 0 : kOwnEndsAgreeNs;
    for (const auto& [group, ends] : collectives) split(group, ends, most_ns);
    for (const auto& [op, ends] : messages) find_peers(op, ends, messages);
    for (const auto& [rank, group] : group_of_messages) add_pipeline(rank, group);
  }

  /// Ascending; the rank alone where it has no other one. Empty: not known.
  [[nodiscard]] std::vector<int32_t> members(int32_t rank, const std::string& group) const {
    const auto found = members_.find({rank, group});
    return found == members_.end() ? std::vector{rank} : found->second;
  }
  /// Of a message; -1: not known.
  [[nodiscard]] int32_t peer(const TraceRecord& record) const {
    if (record.peer >= 0) return record.peer;
    const std::string& op = record.name.text();
    const std::pair<int32_t, std::string> place(record.rank, record.group.text());
    if (known_.contains(place)) return next_stage(record.rank, op, members_.at(place));
    const auto found = peers_.find({record.rank, op});
    return found == peers_.end() ? -1 : found->second;
  }

 private:
  void add_known(const OwnRanks& ranks) {
    std::map<std::pair<std::string, int64_t>, std::vector<int32_t>> known;  // by group and key
    for (const auto& [place, key] : communicators_of(ranks)) {
      known[{place.second, key}].push_back(place.first);
    }
    for (const auto& [communicator, own] : known) {
      for (const int32_t rank : own) {
        members_[{rank, communicator.first}] = own;
        known_.emplace(rank, communicator.first);
      }
    }
  }

  /// As the records say, one of each group.
  static CommunicatorKeys communicators_of(const OwnRanks& ranks) {
    CommunicatorKeys communicators;
    for (const auto& [rank, steps] : ranks) {
      for (const StepTrace* step : steps) {
        for (const TraceRecord& one : step->records) {
          if (one.group.empty() || one.communicator < 0) continue;
          // Of messages without a direction, as of other engines, the next stage is not known.
          const bool has_direction = says(one, "forward") || says(one, "backward");
          if (one.kind == RecordKind::p2p && !has_direction) continue;
          communicators[{rank, one.group.text()}] = one.communicator;
        }
      }
    }
    return communicators;
  }

  /// The engine's stages are in the order of their ranks, and virtual ones go round.
  static int32_t next_stage(int32_t rank, const std::string& op,
                            const std::vector<int32_t>& stages) {
    const bool is_receive = op.find("recv") != std::string::npos;
    if ((!is_receive && op.find("send") == std::string::npos) || stages.size() < 2) return -1;
    const bool is_behind = is_receive == (op.find("backward") != std::string::npos);
    const auto own = static_cast<size_t>(std::ranges::find(stages, rank) - stages.begin());
    return stages[(own + (is_behind ? 1 : stages.size() - 1)) % stages.size()];
  }

  /// As on virtual clocks: at least half of the ends, of all or of one group, are another rank's,
  /// too. On devices some are, by chance. Of a group whose other ranks were not traced none are.
  static bool have_equal_ends(
      const std::map<std::string, std::map<int32_t, OwnEnds>>& collectives) {
    constexpr size_t kFewestEnds = 8;  // of one group: of fewer half are soon equal
    size_t num_ends = 0;
    size_t num_equal = 0;
    for (const auto& [group, ranks] : collectives) {
      std::map<std::pair<OwnInstance, int64_t>, size_t> counts;
      size_t num_own = 0;
      size_t num_own_equal = 0;
      for (const auto& [rank, ends] : ranks) {
        for (const auto& [instance, end_ns] : ends) ++counts[{instance, end_ns}];
        num_own += ends.size();
      }
      for (const auto& [end, count] : counts) num_own_equal += count > 1 ? count : 0;
      if (num_own >= kFewestEnds && 2 * num_own_equal >= num_own) return true;
      num_ends += num_own;
      num_equal += num_own_equal;
    }
    return 2 * num_equal >= num_ends;
  }

  /// Which of the parts are one communicator. Each has a rank that comes last: ranks of which once
  /// only one did are no two.
  [[nodiscard]] std::vector<bool> are_one(const std::string& group,
                                          const std::vector<std::vector<int32_t>>& parts) const {
    std::vector<bool> are;
    std::map<int32_t, size_t> part_of;
    for (const std::vector<int32_t>& ranks : parts) {
      for (const int32_t rank : ranks) part_of[rank] = are.size();
      are.push_back(!can_be_several(ranks.size()));
    }
    const auto last = last_.find(group);
    if (last == last_.end()) return are;
    for (const auto& [instance, ranks] : last->second) {
      std::map<size_t, size_t> counts;
      for (const int32_t rank : ranks) ++counts[part_of.at(rank)];
      for (const auto& [part, count] : counts) are[part] = are[part] || count == 1;
    }
    return are;
  }

  /// Ranks whose ends are no further apart are one communicator, or several of which nobody knows
  /// which.
  void split(const std::string& group, const std::map<int32_t, OwnEnds>& ends, int64_t most_ns) {
    std::vector<std::vector<int32_t>> parts;
    for (const auto& one : ends) {
      const auto part = std::ranges::find_if(parts, [&](const std::vector<int32_t>& ranks) {
        const auto distance_ns = distance_between(ends.at(ranks.front()), one.second);
        return distance_ns && *distance_ns <= most_ns;
      });
      if (part == parts.end()) {
        parts.push_back({one.first});
      } else {
        part->push_back(one.first);
      }
    }
    const std::vector<bool> are_known = are_one(group, parts);
    for (size_t i = 0; i < parts.size(); ++i) {
      for (const int32_t rank : parts[i]) {
        members_[{rank, group}] = are_known[i] ? parts[i] : std::vector<int32_t>();
      }
    }
  }

  /// "pp_recv.forward" of "pp_send.forward", and the other way round.
  static std::string other_end_of(std::string op) {
    for (const auto& [from, to] : {std::pair("send", "recv"), std::pair("recv", "send")}) {
      if (const size_t at = op.find(from); at != std::string::npos) return op.replace(at, 4, to);
    }
    return {};
  }

  void find_peers(const std::string& op, const std::map<int32_t, OwnEnds>& ends,
                  const std::map<std::string, std::map<int32_t, OwnEnds>>& messages) {
    const auto others = messages.find(other_end_of(op));
    if (others == messages.end()) return;
    for (const auto& [rank, own] : ends) {
      int64_t least_ns = kOwnEndsAgreeNs;
      bool is_found = false;
      for (const auto& [other, theirs] : others->second) {
        if (other == rank) continue;
        const auto distance_ns = distance_between(own, theirs);
        if (!distance_ns || *distance_ns > least_ns) continue;
        // Of two that are equally near nobody knows which it is.
        const bool is_nearest = !is_found || *distance_ns < least_ns;
        is_found = true;
        least_ns = *distance_ns;
        peers_[{rank, op}] = is_nearest ? other : -1;
      }
    }
  }

  /// All that messages lead to from there.
  void add_pipeline(int32_t rank, const std::string& group) {
    if (members_.contains({rank, group})) return;
    std::vector<int32_t> ranks = {rank};
    for (size_t i = 0; i < ranks.size(); ++i) {
      const auto from = peers_.lower_bound({ranks[i], std::string()});
      for (auto at = from; at != peers_.end() && at->first.first == ranks[i]; ++at) {
        if (at->second < 0) {
          members_[{rank, group}] = {};
          return;
        }
        if (std::ranges::find(ranks, at->second) == ranks.end()) ranks.push_back(at->second);
      }
    }
    std::ranges::sort(ranks);
    for (const int32_t one : ranks) members_[{one, group}] = ranks;
  }

  std::map<std::pair<int32_t, std::string>, std::vector<int32_t>> members_;  // by rank and group
  std::set<std::pair<int32_t, std::string>> known_;           // of these what the file says
  std::map<std::pair<int32_t, std::string>, int32_t> peers_;  // by rank and op
  /// Who came last, by group.
  std::map<std::string, std::map<OwnInstance, std::set<int32_t>>> last_;
};

/// Makes one rank's steps into a trace.
class OwnRankTrace {
 public:
  OwnRankTrace(const std::string& path, int32_t rank, const OwnGroups& groups)
      : rank_(rank), groups_(groups) {
    trace_.facts.file = path;
    trace_.facts.format = "moetune";
    trace_.facts.version = "1";
    if (rank >= 0) trace_.facts.rank = rank;
  }

  void add(const StepTrace& step) {
    producers_.clear();
    graph_launch_ns_.reset();
    for (const auto& [id, stream] : awaited_streams(step)) producers_[id] = {stream, 0};
    received_ = received_bytes(step);
    host_ns_ = step.start_ns;
    for (const TraceRecord& one : step.records) {
      thread_ = thread_of(one);
      ++trace_.facts.num_events;
      ++trace_.facts.num_of[name_of(one.kind)];
      if (one.end_ns < one.start_ns) ++trace_.facts.num_clipped;
      if (one.stream == kHostStream) {
        add_host(one);
      } else {
        add_device(step, one);
      }
    }
    const int64_t end_ns = host_ns_ > step.start_ns ? host_ns_ : step.end_ns;
    trace_.steps.push_back({step.step, step.start_ns, std::max(step.start_ns, end_ns)});
  }

  ImportedTrace finish(std::optional<int64_t> world_size) {
    trace_.facts.world_size = world_size;
    trace_.finish();
    return std::move(trace_);
  }

 private:
  uint32_t name(std::string_view text) { return trace_.names.intern(text); }
  uint16_t stream_of(int32_t stream) { return trace_.stream_row({0, stream}); }
  uint16_t thread_of(const TraceRecord& record) {
    return trace_.thread_row({rank_, std::max(0, record.thread)});
  }

  /// Returns the call's correlation.
  uint32_t add_call(const char* function, int64_t start_ns, int64_t end_ns) {
    const uint32_t correlation = ++num_calls_;
    end_ns = std::max(start_ns, end_ns);
    trace_.calls.add(
        {start_ns, end_ns, name(function), correlation, thread_, call_kind_of(function)});
    host_ns_ = std::max(host_ns_, end_ns);
    return correlation;
  }

  /// Other work of the host is between the calls.
  void add_host(const TraceRecord& record) {
    host_ns_ = std::max(host_ns_, record.end_ns);
    if (record.kind == RecordKind::host_sync) {
      add_call("cudaStreamSynchronize", record.start_ns, record.end_ns);
    } else if (says(record, "Malloc")) {
      add_call("cudaMalloc", record.start_ns, record.end_ns);
    } else if (says(record, "load")) {
      trace_.ranges.add(
          {record.start_ns, std::max(record.start_ns, record.end_ns), name("load_batch"), thread_});
    }
  }

  void add_device(const StepTrace& step, const TraceRecord& record) {
    const bool is_graph = record.graph_id != 0;
    const bool is_same_launch = is_graph && graph_launch_ns_ == record.launch_start_ns;
    if (!is_same_launch) launch_ = add_launch(step, record);
    graph_launch_ns_.reset();
    if (is_graph) graph_launch_ns_ = record.launch_start_ns;
    add_op(record);
  }

  /// With what is waited for before it, and recorded behind it. 0 where no launch was recorded.
  uint32_t add_launch(const StepTrace& step, const TraceRecord& record) {
    if (record.launch_start_ns == 0 && record.launch_end_ns == 0) return 0;
    int64_t start_ns = record.launch_start_ns;
    int64_t end_ns = std::max(start_ns, record.launch_end_ns);
    const std::vector<Producer> awaited = awaited_by(step, record);
    // Half of it is left for the launch itself, and for recording an event behind it.
    const auto num_parts = 2 * static_cast<int64_t>(std::max<size_t>(awaited.size(), 1) + 1);
    const int64_t part_ns = std::min(kOwnEventCallNs, (end_ns - start_ns) / num_parts);
    for (const Producer& producer : awaited) {
      add_wait(record, producer, start_ns, start_ns + part_ns);
      start_ns += part_ns;
    }
    const auto own = producers_.find(record.id);
    if (own != producers_.end()) end_ns -= part_ns;
    const uint32_t launch = add_call(record.graph_id != 0                ? "cudaGraphLaunch"
                                     : record.kind == RecordKind::memcpy ? "cudaMemcpyAsync"
                                                                         : "cudaLaunchKernel",
                                     start_ns, end_ns);
    if (own != producers_.end()) {
      own->second.correlation = add_call("cudaEventRecord", end_ns, end_ns + part_ns);
    }
    return launch;
  }

  struct Producer {
    int32_t stream = 0;
    uint32_t correlation = 0;  ///< of the call that recorded its event; 0: none yet
  };
  /// What a record waits for on other streams.
  [[nodiscard]] std::vector<Producer> awaited_by(const StepTrace& step,
                                                 const TraceRecord& record) const {
    std::vector<Producer> awaited;
    const auto add = [&](int64_t id) {
      const auto found = producers_.find(id);
      if (found == producers_.end() || found->second.correlation == 0) return;
      if (found->second.stream != record.stream) awaited.push_back(found->second);
    };
    add(record.producer_id);
    for (const FurtherWait& wait : further_waits_of(step, record.id)) add(wait.producer_id);
    return awaited;
  }
  void add_wait(const TraceRecord& record, const Producer& producer, int64_t start_ns,
                int64_t end_ns) {
    ImportedSync sync;
    sync.start_ns = start_ns;
    sync.end_ns = end_ns;
    sync.kind = SyncKind::stream_wait;
    sync.stream = stream_of(record.stream);
    sync.producer_stream = stream_of(producer.stream);
    sync.correlation = add_call("cudaStreamWaitEvent", start_ns, end_ns);
    sync.record_correlation = producer.correlation;
    sync.event = producer.correlation;
    trace_.syncs.push_back(sync);
  }

  void add_op(const TraceRecord& record) {
    ImportedOp op;
    op.start_ns = record.start_ns;
    op.end_ns = std::max(record.start_ns, record.end_ns);
    op.correlation = launch_;
    op.stream = stream_of(record.stream);
    op.name = name(record.name.text());
    op.bytes = std::max<int64_t>(0, record.bytes);
    if (record.kind == RecordKind::memcpy) {
      const bool is_to_host = says(record, "offload") || says(record, "DtoH");
      op.kind = ActivityKind::copy;
      op.path = is_to_host ? CopyPath::to_host : CopyPath::to_device;
      op.detail = name(is_to_host ? "DtoH" : "HtoD");
    } else if (record.grid[0] > 0) {
      op.detail = trace_.shapes.row_of(shape_of(record));
    }
    if (record.kind != RecordKind::memcpy && record.is_recompute) {
      trace_.recomputed.push_back(static_cast<uint32_t>(trace_.ops.size()));
    }
    if (record.kind != RecordKind::memcpy && !record.group.empty()) add_comm(record, op);
    trace_.ops.add(op);
  }

  /// What all communication of a rank in a group has: its ranks may be many, and its records more.
  const CommCall& communicator_of(const std::string& group) {
    const auto [at, is_new] = communicators_.try_emplace(group);
    CommCall& comm = at->second;
    if (!is_new) return comm;
    const std::vector<int32_t> ranks = groups_.members(rank_, group);
    comm.group = name(ranks.empty() ? group : fmt::format("{} {}", group, ranks.front()));
    comm.description = name(group);
    if (!ranks.empty()) comm.members = name(fmt::format("[{}]", fmt::join(ranks, ", ")));
    comm.dtype = name("Byte");
    if (ranks.size() > 1) comm.group_size = static_cast<int32_t>(ranks.size());
    return comm;
  }

  void add_comm(const TraceRecord& record, ImportedOp& op) {
    CommCall comm = communicator_of(record.group.text());
    comm.in_nelems = comm.out_nelems = std::max<int64_t>(1, record.bytes);
    comm.sequence = record.sequence;
    if (const auto received = received_.find(record.id); received != received_.end()) {
      comm.out_nelems = std::max<int64_t>(1, received->second);
    }
    op.bytes = std::max(comm.in_nelems, comm.out_nelems);
    if (record.kind == RecordKind::p2p) {
      comm.collective = name(says(record, "recv") ? "recv" : "send");
      comm.peer = groups_.peer(record);
    } else {
      const auto* row = std::ranges::find_if(
          kOwnCollectives, [&](const OwnCollectiveRow& one) { return says(record, one.word); });
      comm.collective = name(row->collective);
    }
    op.comm = static_cast<uint32_t>(trace_.comms.size());
    trace_.comms.push_back(comm);
  }

  int32_t rank_;
  const OwnGroups& groups_;
  ImportedTrace trace_;
  uint16_t thread_ = 0;  ///< of what is added next
  uint32_t num_calls_ = 0;
  uint32_t launch_ = 0;  ///< of what is added next
  std::optional<int64_t> graph_launch_ns_;
  int64_t host_ns_ = 0;                    ///< when the host is done with the step
  std::map<int64_t, Producer> producers_;  ///< by id of the record
  std::map<int64_t, int64_t> received_;    ///< bytes, by id of the exchange
  std::map<std::string, CommCall, std::less<>> communicators_;  ///< by group
};

}  // namespace

std::map<int64_t, int32_t> awaited_streams(const StepTrace& step) {
  std::map<int64_t, int32_t> awaited;
  std::map<int64_t, int32_t> streams;  // by id
  for (const TraceRecord& one : step.records) {
    if (one.stream == kHostStream) continue;
    const auto add = [&](int64_t id) {
      const auto producer = streams.find(id);
      if (producer != streams.end() && producer->second != one.stream) awaited.insert(*producer);
    };
    add(one.producer_id);
    for (const FurtherWait& wait : further_waits_of(step, one.id)) add(wait.producer_id);
    streams.emplace(one.id, one.stream);
  }
  return awaited;
}

std::map<int64_t, int64_t> received_bytes(const StepTrace& step) {
  using Layer = std::tuple<int32_t, int32_t, bool>;  // layer, micro-batch, forward
  std::map<Layer, std::array<std::vector<const TraceRecord*>, 2>> exchanges;
  for (const TraceRecord& one : step.records) {
    if (one.group != "ep" || !(says(one, "dispatch") || says(one, "combine"))) continue;
    exchanges[{one.layer, one.micro_batch, says(one, "forward")}][says(one, "combine") ? 1 : 0]
        .push_back(&one);
  }
  std::map<int64_t, int64_t> received;
  for (const auto& [layer, both] : exchanges) {
    for (size_t chunk = 0; chunk < std::min(both[0].size(), both[1].size()); ++chunk) {
      received[both[0][chunk]->id] = both[1][chunk]->bytes;
      received[both[1][chunk]->id] = both[0][chunk]->bytes;
    }
  }
  return received;
}

std::vector<ImportedTrace> read_own_steps(const std::string& path) {
  const std::vector<StepTrace> steps = read_step_traces(path);
  check_times(path, steps);
  OwnRanks ranks;
  for (const StepTrace& step : steps) ranks[step.rank].push_back(&step);
  if (ranks.size() > RankTraces::kMaxRanks) {
    throw base::UsageError(fmt::format("{}: has {} ranks, expected at most {}", path, ranks.size(),
                                       RankTraces::kMaxRanks));
  }
  const OwnGroups groups(ranks);
  // One rank alone may be what somebody kept of a run.
  std::optional<int64_t> world_size;
  if (ranks.size() > 1) world_size = static_cast<int64_t>(ranks.size());
  std::vector<ImportedTrace> traces;
  for (const auto& [rank, of_rank] : ranks) {
    OwnRankTrace trace(path, rank, groups);
    for (const StepTrace* step : of_rank) trace.add(*step);
    traces.push_back(trace.finish(world_size));
  }
  return traces;
}

}  // namespace moetune::profiler

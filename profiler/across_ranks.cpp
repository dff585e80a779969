#include "profiler/across_ranks.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "kernels/base/median.h"

namespace moetune::profiler {
namespace {

/// A collective of one communicator: group, communicator, sequence.
using Instance = std::tuple<std::string, int64_t, int64_t>;
/// Communication of the same kind and size: group, op, bytes.
using Alike = std::tuple<std::string, std::string, int64_t>;

struct Shortest {
  int64_t count = 0;
  int64_t ns = 0;

  void add(int64_t duration_ns) {
    ns = count == 0 ? duration_ns : std::min(ns, duration_ns);
    ++count;
  }
};

bool is_communication(const TraceRecord& record) {
  return record.kind == RecordKind::collective || record.kind == RecordKind::p2p;
}
bool is_matched(const TraceRecord& record) {
  return record.kind == RecordKind::collective && record.sequence >= 0;
}
Alike alike_of(const TraceRecord& record) { return {record.group, record.name, record.bytes}; }

Instance instance_of(const TraceRecord& record, const CommunicatorKeys& communicators) {
  const auto found = communicators.find({record.rank, record.group});
  return {record.group, found == communicators.end() ? 0 : found->second, record.sequence};
}

/// When each collective ended, by the clock of whoever took part.
using Ends = std::map<Instance, std::vector<int64_t>>;

void add_ends(const StepTrace& trace, const CommunicatorKeys& communicators, Ends& ends) {
  for (const TraceRecord& record : trace.records) {
    if (is_matched(record)) ends[instance_of(record, communicators)].push_back(record.end_ns);
  }
}

/// What has to be added to times of `theirs`; nullopt where no collective was common.
std::optional<int64_t> offset_between(const Ends& ours, const Ends& theirs) {
  std::vector<int64_t> differences;
  for (const auto& [instance, ends] : theirs) {
    const auto same = ours.find(instance);
    if (same == ours.end()) continue;
    differences.push_back(std::ranges::max(same->second) - std::ranges::max(ends));
  }
  if (differences.empty()) return std::nullopt;
  return base::upper_median(std::move(differences));  // a double does not hold clocks of years
}

}  // namespace

void align_clocks(const std::vector<StepTrace*>& traces, const std::vector<std::string>& clocks,
                  const CommunicatorKeys& communicators) {
  if (traces.empty()) return;
  std::map<std::string, std::vector<StepTrace*>> others;
  Ends aligned;
  for (size_t i = 0; i < traces.size(); ++i) {
    if (clocks.at(i) == clocks.front()) {
      add_ends(*traces[i], communicators, aligned);
    } else {
      others[clocks[i]].push_back(traces[i]);
    }
  }
  while (!others.empty()) {
    auto next = others.begin();
    std::optional<int64_t> offset_ns;
    for (auto at = others.begin(); at != others.end() && !offset_ns; ++at) {
      Ends ends;
      for (const StepTrace* trace : at->second) add_ends(*trace, communicators, ends);
      offset_ns = offset_between(aligned, ends);
      if (offset_ns) next = at;
    }
    if (!offset_ns) offset_ns = traces.front()->start_ns - next->second.front()->start_ns;
    for (StepTrace* trace : next->second) {
      shift(*trace, *offset_ns);
      add_ends(*trace, communicators, aligned);
    }
    others.erase(next);
  }
}

void resolve_transfers(const std::vector<StepTrace*>& traces,
                       const CommunicatorKeys& communicators) {
  std::map<Instance, Shortest> instances;
  std::map<Alike, Shortest> alikes;
  for (const StepTrace* trace : traces) {
    for (const TraceRecord& record : trace->records) {
      if (!is_communication(record)) continue;
      const int64_t duration_ns = record.end_ns - record.start_ns;
      alikes[alike_of(record)].add(duration_ns);
      if (is_matched(record)) instances[instance_of(record, communicators)].add(duration_ns);
    }
  }
  for (StepTrace* trace : traces) {
    for (TraceRecord& record : trace->records) {
      if (!is_communication(record)) continue;
      record.transfer_ns = alikes[alike_of(record)].ns;
      if (!is_matched(record)) continue;
      const Shortest& instance = instances[instance_of(record, communicators)];
      if (instance.count > 1) record.transfer_ns = instance.ns;
    }
  }
}

}  // namespace moetune::profiler

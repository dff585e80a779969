// How long communication really moved data, seen over ranks; see resolve_transfers in
// device_trace.h.
#include <algorithm>
#include <tuple>

#include "profiler/device_trace.h"

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

}  // namespace

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

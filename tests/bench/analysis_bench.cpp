// How fast one step's records are indexed, accounted for and followed back: index, budget and
// critical path, in records a second of one core. On made-up steps in which streams wait for one
// another and the host for the device, so that the path changes sides.
//   analysis_bench [RECORDS]    records of each of 8 ranks (default 125,000)
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "profiler/analysis/budget.h"
#include "profiler/analysis/critical_path.h"
#include "profiler/analysis/trace_index.h"
#include "tests/bench/stopwatch.h"

namespace moetune {
namespace {

using profiler::RecordKind;
using profiler::StepTrace;
using profiler::TraceRecord;

constexpr int32_t kNumRanks = 8;
constexpr int kRuns = 5;

/// Of 25 operations one is a collective and one a copy, each on a stream of its own. An operation
/// waits for the collective; the copy is hidden. After every hundredth the host waits for the
/// device.
StepTrace made_up(int32_t rank, int64_t num_records) {
  constexpr int64_t kOps = 25;
  std::vector<base::InternedString> names;
  for (int64_t op = 0; op < kOps; ++op) names.emplace_back(fmt::format("op{}.forward", op));
  StepTrace trace{rank, 0, 0, 0, {}};
  int64_t host_ns = 0;
  int64_t compute_ns = 0;
  int64_t comm_ns = 0;
  int64_t copy_ns = 0;
  int64_t exchange = profiler::kNoRecord;
  int64_t last_kernel = profiler::kNoRecord;
  while (static_cast<int64_t>(trace.records.size()) < num_records) {
    TraceRecord record;
    record.id = static_cast<int64_t>(trace.records.size());
    record.rank = rank;
    const int64_t op = record.id % kOps;
    record.name = names[static_cast<size_t>(op)];
    record.layer = static_cast<int32_t>(record.id / kOps);
    record.launch_start_ns = host_ns + 500;
    record.launch_end_ns = host_ns + 4500;
    record.flops = 1'000'000 * op;
    record.bytes = 4096 * op;
    if (record.id % 100 == 99) {
      record.kind = RecordKind::host_sync;
      record.stream = profiler::kHostStream;
      record.producer_id = last_kernel;
      record.start_ns = record.launch_start_ns = record.launch_end_ns = host_ns;
      record.end_ns = std::max(host_ns, compute_ns) + 2000;
      host_ns = record.end_ns;
    } else if (op == 7 || op == 15) {
      record.kind = op == 7 ? RecordKind::collective : RecordKind::memcpy;
      record.group = op == 7 ? "ep" : "";
      record.stream = op == 7 ? 1 : 2;
      record.producer_id = last_kernel;
      int64_t& stream_ns = op == 7 ? comm_ns : copy_ns;
      record.start_ns = std::max({record.launch_end_ns, stream_ns, compute_ns});
      record.end_ns = stream_ns = record.start_ns + 30'000 + 1000 * (record.id % 11);
      record.transfer_ns = 20'000;
      record.sequence = record.id;
      if (op == 7) exchange = record.id;
    } else {
      const bool is_waiting = op == 9 && exchange != profiler::kNoRecord;
      if (is_waiting) record.producer_id = exchange;
      record.start_ns = std::max(record.launch_end_ns, is_waiting ? comm_ns : compute_ns);
      record.start_ns = std::max(record.start_ns, compute_ns);
      record.end_ns = compute_ns = record.start_ns + 2000 + 300 * op;
      last_kernel = record.id;
    }
    host_ns = std::max(host_ns, record.launch_end_ns);
    trace.end_ns = std::max({trace.end_ns, record.end_ns, host_ns});
    trace.records.push_back(record);
  }
  return trace;
}

template <typename Body>
double median_seconds(const Body& body) {
  return bench::median_cpu_seconds(body, kRuns);
}

void run(int64_t num_records) {
  std::vector<StepTrace> traces;
  for (int32_t rank = 0; rank < kNumRanks; ++rank) traces.push_back(made_up(rank, num_records));
  const profiler::ClassificationRules rules;
  const auto print = [&](const char* name, const auto& body) {
    const double seconds = median_seconds([&] {
      for (const StepTrace& trace : traces) body(trace);
    });
    fmt::print("{:<32} {:>6.2f} M records/s\n", name,
               static_cast<double>(kNumRanks * num_records) / 1e6 / seconds);
  };
  const profiler::StepBudget budget = profiler::compute_budget(traces[0], rules);
  fmt::print("{} ranks of {} records, {} gaps, {} segments of the critical path\n", kNumRanks,
             num_records, budget.num_gaps,
             profiler::critical_path(traces[0], rules).segments.size());
  print("index", [&](const StepTrace& trace) {
    if (profiler::TraceIndex(trace, rules).size() == 0) std::abort();
  });
  print("index, budget", [&](const StepTrace& trace) { compute_budget(trace, rules); });
  print("index, critical path", [&](const StepTrace& trace) { critical_path(trace, rules); });
  print("index, budget, critical path", [&](const StepTrace& trace) {
    const profiler::TraceIndex index(trace, rules);
    compute_budget(index, rules);
    critical_path(index);
  });
}

}  // namespace
}  // namespace moetune

int main(int argc, char** argv) {
  moetune::run(argc > 1 ? std::max(1, std::atoi(argv[1])) : 125'000);
}

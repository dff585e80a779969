#include "sweeps/merge_shards.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "engine/plan/layout.h"
#include "kernels/base/error.h"
#include "profiler/across_ranks.h"
#include "profiler/store/shard.h"

namespace moetune::sweeps {
namespace {

using profiler::StepTrace;
using store::ShardContents;

/// What each process has to say of its own rank or device; of other texts the first is kept.
constexpr const char* kDeviceMemoryText = "device_memory";
constexpr const char* kTraceNoteText = "trace_note";
constexpr int kWholeRun = -1;

template <class T>
void append(std::vector<T>& to, std::vector<T>& from) {
  std::ranges::move(from, std::back_inserter(to));
}

/// The texts of `from` that are not said already.
void append_texts(ShardContents& to, const ShardContents& from) {
  for (const store::NamedText& text : from.texts) {
    const bool is_known = std::ranges::any_of(to.texts, [&](const store::NamedText& other) {
      const bool is_own = text.name == kDeviceMemoryText || text.name == kTraceNoteText;
      return other.name == text.name && (!is_own || other.value == text.value);
    });
    if (!is_known) to.texts.push_back(text);
  }
}

// Nothing in a file is trusted: sums and differences of what is read must not overflow. A step is
// shorter than three days, and so is the time between the steps of ranks with one clock.
void check_times(const ShardContents& shard, const StepTrace& trace, int64_t near_ns) {
  constexpr int64_t kLatest = int64_t{1} << 60;
  constexpr int64_t kLongest = int64_t{1} << 48;
  const auto check = [&](int64_t time_ns) {
    MOETUNE_CHECK(time_ns > -kLatest && time_ns < kLatest && time_ns - near_ns > -kLongest &&
                      time_ns - near_ns < kLongest,
                  "{}: the shard is damaged: a time of {} ns", shard.path, time_ns);
  };
  check(trace.start_ns);
  check(trace.end_ns);
  for (const profiler::TraceRecord& record : trace.records) {
    for (const int64_t time_ns :
         {record.launch_start_ns, record.launch_end_ns, record.start_ns, record.end_ns}) {
      check(time_ns);
    }
  }
}

/// The clock of each rank.
std::map<int32_t, std::string> clocks_of(const std::vector<ShardContents>& shards) {
  std::map<int32_t, std::string> clocks;
  std::map<std::string, int64_t> first_ns;  // by clock
  for (const ShardContents& shard : shards) {
    const std::string clock = shard.text("clock_id");
    for (const StepTrace& trace : shard.traces) {
      // A start out of range is found by the check.
      check_times(shard, trace, first_ns.emplace(clock, trace.start_ns).first->second);
      clocks.emplace(trace.rank, clock);
    }
  }
  return clocks;
}

void join_traces(const spec::TrialSpec& trial, const std::map<int32_t, std::string>& clocks,
                 std::vector<StepTrace>& traces) {
  std::ranges::sort(traces, {}, [](const StepTrace& t) { return std::pair(t.step, t.rank); });
  const profiler::CommunicatorKeys communicators =
      plan::group_instances(plan::layout_of(trial.knobs));
  for (auto begin = traces.begin(); begin != traces.end();) {
    const auto end =
        std::find_if(begin, traces.end(), [&](const auto& t) { return t.step != begin->step; });
    std::vector<StepTrace*> step;
    std::vector<std::string> step_clocks;
    for (; begin != end; ++begin) {
      step.push_back(&*begin);
      step_clocks.push_back(clocks.at(begin->rank));
    }
    profiler::align_clocks(step, step_clocks, communicators);
    profiler::resolve_transfers(step, communicators);
  }
}

}  // namespace

void check_rank(const ShardContents& shard, int rank) {
  const auto check = [&](int found, const char* what) {
    MOETUNE_CHECK(found == rank, "{}: the shard is damaged: {} of rank {} in that of rank {}",
                  shard.path, what, found, rank);
  };
  for (const StepTrace& trace : shard.traces) check(trace.rank, "a trace");
  for (const store::ShardMemory& memory : shard.memory) check(memory.rank, "memory");
  for (const store::ShardOp& op : shard.ops) check(op.rank, "an operation");
  for (const store::MetricRow& metric : shard.metrics) {
    if (metric.rank != kWholeRun) check(metric.rank, "a metric");
  }
}

ShardContents merge_shards(const spec::TrialSpec& trial, std::vector<ShardContents> shards) {
  MOETUNE_CHECK(!shards.empty(), "nothing to merge");
  const std::map<int32_t, std::string> clocks = clocks_of(shards);
  ShardContents merged = std::move(shards.front());
  for (auto shard = shards.begin() + 1; shard != shards.end(); ++shard) {
    append(merged.traces, shard->traces);
    append(merged.memory, shard->memory);
    append(merged.ops, shard->ops);
    std::ranges::copy_if(shard->metrics, std::back_inserter(merged.metrics),
                         [](const store::MetricRow& metric) { return metric.rank >= 0; });
    append_texts(merged, *shard);
  }
  join_traces(trial, clocks, merged.traces);
  return merged;
}

void check_all_there(const std::vector<ShardContents>& shards) {
  const ShardContents& first = shards.front();
  for (const ShardContents& shard : shards) {
    MOETUNE_CHECK(shard.memory.size() == 1, "{}: the shard has {} rows of memory, not one",
                  shard.path, shard.memory.size());
    const bool has_steps = std::ranges::equal(shard.steps, first.steps, {}, &store::ShardStep::step,
                                              &store::ShardStep::step);
    MOETUNE_CHECK(has_steps, "{}: its steps are not those of {}", shard.path, first.path);
  }
}

}  // namespace moetune::sweeps

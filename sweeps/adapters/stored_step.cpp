#include "sweeps/adapters/stored_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <set>
#include <string_view>
#include <utility>

#include "kernels/base/error.h"
#include "profiler/analysis/imported_steps.h"
#include "profiler/analysis/matched_collectives.h"
#include "sweeps/analyse.h"

namespace moetune::sweeps {
namespace {

using profiler::StepTrace;
using profiler::TraceRecord;

constexpr size_t kMostStoredRecords = 400'000;

/// What frameworks call their process groups, and what we do, empty where that is nothing; the
/// first that is found counts.
struct GroupWord {
  std::string_view word;
  const char* group;
};
constexpr auto kGroupWords = std::to_array<GroupWord>({
    {"tensor_and_data", ""},
    {"expert_data", "edp"},
    {"expert_tensor", ""},
    {"expert", "ep"},
    {"tensor_and_context", "tp_cp"},
    {"tensor", "tp"},
    {"pipeline", "pp"},
    {"embedding", "embedding"},
    {"data_parallel", "dp_cp"},
    {"context", "cp"},
    {"mod_ep", "edp"},
    {"efsdp", "edp"},
    {"mesh_tp", "tp"},
    {"mesh_cp", "cp"},
    {"mesh_pp", "pp"},
    {"mesh_ep", "ep"},
    {"mesh_dp", "dp_cp"},
    {"fsdp", "dp_cp"},
    {"default_pg", "world"},
});

/// Ours where the words say which it is, else theirs; with the number that tells groups of one
/// purpose apart.
std::string stored_group(const std::string& purpose) {
  const size_t number = std::min(purpose.find('#'), purpose.size());
  std::string words = purpose.substr(0, number);
  for (char& c : words) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const GroupWord& row : kGroupWords) {
    if (words.find(row.word) == std::string::npos) continue;
    return row.group[0] == '\0' ? purpose : row.group + purpose.substr(number);
  }
  return purpose;
}

/// Each trace's own rank, or where they do not tell them apart its place.
std::vector<int32_t> ranks_of(const Diagnosis& diagnosis) {
  std::vector<int32_t> ranks;
  std::set<int64_t> known;
  for (const profiler::ImportedTrace& trace : diagnosis.traces) {
    const int64_t rank = trace.facts.rank.value_or(-1);
    const bool is_good = rank >= 0 && rank <= std::numeric_limits<int32_t>::max();
    if (is_good && known.insert(rank).second) ranks.push_back(static_cast<int32_t>(rank));
  }
  if (ranks.size() == diagnosis.traces.size()) return ranks;
  ranks.clear();
  for (size_t i = 0; i < diagnosis.traces.size(); ++i) ranks.push_back(static_cast<int32_t>(i));
  return ranks;
}

/// Of all traces together.
bool has_absurd_extent(const std::vector<profiler::ImportedTrace>& traces) {
  double first = std::numeric_limits<double>::max();
  double last = std::numeric_limits<double>::lowest();
  for (const profiler::ImportedTrace& trace : traces) {
    for (const profiler::ImportedOp& op : trace.ops) {
      first = std::min(first, static_cast<double>(op.start_ns));
      last = std::max(last, static_cast<double>(op.end_ns));
    }
    for (const profiler::HostCall& call : trace.calls) {
      first = std::min(first, static_cast<double>(call.start_ns));
      last = std::max(last, static_cast<double>(call.end_ns));
    }
    for (const profiler::ImportedStep& step : trace.steps) {
      first = std::min(first, static_cast<double>(step.start_ns));
      last = std::max(last, static_cast<double>(step.end_ns));
    }
  }
  return last - first > profiler::kMostExtentNs;
}

}  // namespace

void add_stored_step(const Diagnosis& diagnosis, store::ShardContents& shard,
                     std::vector<std::string>& notes) {
  if (has_absurd_extent(diagnosis.traces)) {
    notes.push_back("the traces lie too far apart to be stored");
    return;
  }
  const profiler::ImportedSteps steps(diagnosis.traces,
                                      profiler::match_across_ranks(diagnosis.traces),
                                      profiler::RecordNames::texts);
  if (steps.num_steps() == 0) return;
  const size_t middle = steps.num_steps() / 2;
  if (steps.num_ops(middle) > 4 * kMostStoredRecords) {
    notes.push_back("the trace has too much work in a step to be stored");
    return;
  }
  std::vector<StepTrace> made = steps.make(middle);
  const std::vector<int32_t> ranks = ranks_of(diagnosis);
  int64_t origin_ns = std::numeric_limits<int64_t>::max();
  for (const StepTrace& trace : made) origin_ns = std::min(origin_ns, trace.start_ns);
  size_t num_records = 0;
  size_t num_left_out = 0;
  for (StepTrace& trace : made) {
    if (num_records + trace.records.size() > kMostStoredRecords) {
      ++num_left_out;
      continue;
    }
    num_records += trace.records.size();
    profiler::shift(trace, -origin_ns);
    trace.rank = ranks[static_cast<size_t>(trace.rank)];
    for (TraceRecord& record : trace.records) {
      record.rank = trace.rank;
      record.step = trace.step;
      record.group = stored_group(record.group);
    }
    shard.traces.push_back(std::move(trace));
  }
  std::ranges::sort(shard.traces, {}, &StepTrace::rank);
  if (num_left_out > 0) {
    notes.push_back(
        fmt::format("the traces of {} ranks are not stored: they are too large", num_left_out));
  }
  try {
    add_step_budgets(shard.traces, shard.metrics);
  } catch (const base::Error&) {
    notes.push_back("the traced step contradicts itself: it has no budget");
  }
}

}  // namespace moetune::sweeps

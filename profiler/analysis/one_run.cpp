#include "profiler/analysis/one_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/error.h"
#include "kernels/base/fnv.h"
#include "kernels/base/units.h"

namespace moetune::profiler {
namespace {

std::set<int64_t> step_numbers_of(const ImportedTrace& trace) {
  std::set<int64_t> numbers;
  for (const ImportedStep& step : trace.steps) numbers.insert(step.number);
  return numbers;
}

/// Steps that two traces have marked, and none of them in both: they are of other parts of the run.
bool has_other_steps(const ImportedTrace& a, const ImportedTrace& b) {
  const std::set<int64_t> of_a = step_numbers_of(a);
  return !a.steps.empty() && !b.steps.empty() &&
         std::ranges::none_of(b.steps,
                              [&](const ImportedStep& step) { return of_a.contains(step.number); });
}

/// When the steps of a trace were, by Unix time in ns; none: it has no steps, or another clock.
std::optional<std::pair<double, double>> time_of_steps(const ImportedTrace& trace) {
  constexpr double kFirstUnixNs = 1e18;  // 2001: less is the time since a machine or a run started
  if (trace.steps.empty()) return std::nullopt;
  const auto base_ns = static_cast<double>(trace.facts.base_time_ns);
  const double first_ns = base_ns + static_cast<double>(trace.steps.front().start_ns);
  if (first_ns < kFirstUnixNs) return std::nullopt;
  return std::pair(first_ns, base_ns + static_cast<double>(trace.steps.back().end_ns));
}

/// How long one of two traces ended before the other began, in ns; 0 where that is not known.
double apart_ns(const ImportedTrace& a, const ImportedTrace& b) {
  const auto time_of_a = time_of_steps(a);
  const auto time_of_b = time_of_steps(b);
  if (!time_of_a || !time_of_b) return 0;
  return std::max(
      {0.0, time_of_b->first - time_of_a->second, time_of_a->first - time_of_b->second});
}

/// Clocks of the nodes of one run do not differ by so much.
constexpr double kMostApartNs = 600e9;
constexpr double kMostToldNs = 1e18;

/// Whether the file itself says the rank: names of files and counting may give one rank two.
bool says_rank(const TraceFacts& facts) { return facts.rank && !facts.is_rank_guessed; }

/// Of all device work: when, on which stream, and what.
uint64_t hash_of_ops(const ImportedTrace& trace) {
  std::vector<uint64_t> names(trace.names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    names[i] = base::fnv_of(trace.names[static_cast<uint32_t>(i)]);
  }
  uint64_t hash = base::kFnvStart;
  for (const ImportedOp& op : trace.ops) {
    for (const uint64_t value :
         {static_cast<uint64_t>(op.start_ns), static_cast<uint64_t>(op.end_ns), uint64_t{op.stream},
          names[op.name]}) {
      hash = base::fnv_with(hash ^ (hash >> 29U), value);
    }
  }
  return hash;
}

/// Numbers of ranks that cannot be of one run.
void check_world(std::span<const ImportedTrace> traces, const TraceFacts& sized) {
  int64_t num_given = 0;
  for (const ImportedTrace& trace : traces) {
    const TraceFacts& facts = trace.facts;
    if (facts.rank && !facts.is_rank_counted && *facts.rank >= *sized.world_size) {
      throw base::UsageError(
          fmt::format("{} is of a run of {} ranks, {} of rank {}: expected traces of one run",
                      sized.file, *sized.world_size, facts.file, *facts.rank));
    }
    num_given += trace.ops.empty() ? 0 : 1;
    if (num_given > *sized.world_size) {
      throw base::UsageError(
          fmt::format("{} is of a run of {} ranks, which have a trace each without {}: expected "
                      "traces of one run",
                      sized.file, *sized.world_size, facts.file));
    }
  }
}

}  // namespace

bool is_copy_of(const ImportedTrace& a, const ImportedTrace& b) {
  if (a.facts.file == b.facts.file || (says_rank(a.facts) && says_rank(b.facts))) return false;
  const size_t num_ops = a.ops.size();
  if (num_ops == 0 || b.ops.size() != num_ops) return false;
  const auto has_same_times = [&](size_t row) {
    return a.ops[row].start_ns == b.ops[row].start_ns && a.ops[row].end_ns == b.ops[row].end_ns;
  };
  return has_same_times(0) && has_same_times(num_ops - 1) && hash_of_ops(a) == hash_of_ops(b);
}

void check_one_run(std::span<const ImportedTrace> traces) {
  std::map<int64_t, const TraceFacts*> by_rank;
  // The first that says its world, and the first that says its device.
  const TraceFacts* sized = nullptr;
  const ImportedTrace* named = nullptr;
  for (const ImportedTrace& trace : traces) {
    const TraceFacts& facts = trace.facts;
    if (facts.format != traces[0].facts.format) {
      throw base::UsageError(
          fmt::format("{} is of {}, {} of {}: expected traces of one run by one recorder",
                      traces[0].facts.file, traces[0].facts.format, facts.file, facts.format));
    }
    for (const ImportedTrace& other : traces.first(static_cast<size_t>(&trace - traces.data()))) {
      if (!is_copy_of(trace, other)) continue;
      throw base::UsageError(
          fmt::format("{} has the same kernels at the same times as {}: expected one trace of each "
                      "rank of one run",
                      facts.file, other.facts.file));
    }
    if (facts.world_size) {
      if (sized == nullptr) sized = &facts;
      if (*facts.world_size != *sized->world_size) {
        throw base::UsageError(
            fmt::format("{} is of a run of {} ranks, {} of one of {}: expected traces of one run",
                        facts.file, *facts.world_size, sized->file, *sized->world_size));
      }
    }
    const bool has_own_rank = facts.rank && !facts.is_rank_counted;
    if (has_own_rank && !by_rank.emplace(*facts.rank, &facts).second) {
      throw base::UsageError(
          fmt::format("{} and {} are both of rank {}: expected one trace of each rank of one run",
                      by_rank[*facts.rank]->file, facts.file, *facts.rank));
    }
    if (has_other_steps(traces[0], trace)) {
      throw base::UsageError(
          fmt::format("{} has steps from {} on, {} from {} on, and none is in both: expected "
                      "traces of the same steps",
                      traces[0].facts.file, traces[0].steps.front().number, facts.file,
                      trace.steps.front().number));
    }
    if (const double ns = apart_ns(traces[0], trace); ns > kMostApartNs) {
      throw base::UsageError(fmt::format(
          "{} and {} have the same steps, recorded {} apart: expected traces of one run",
          traces[0].facts.file, facts.file,
          base::format_ns(static_cast<int64_t>(std::min(ns, kMostToldNs)))));
    }
    const std::string device = trace.device_name();
    if (device.empty()) continue;
    if (named == nullptr) named = &trace;
    if (device != named->device_name()) {
      throw base::UsageError(
          fmt::format("{} is of an {}, {} of an {}: expected traces of one run on like devices",
                      named->facts.file, named->device_name(), facts.file, device));
    }
  }
  if (sized != nullptr) check_world(traces, *sized);
}

}  // namespace moetune::profiler

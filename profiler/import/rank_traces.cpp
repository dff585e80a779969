#include "profiler/import/rank_traces.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/base/error.h"
#include "profiler/import/range_steps.h"
#include "profiler/import/trace_files.h"

namespace moetune::profiler {

uint32_t NameRefs::place_of(int64_t id) {
  Recent& recent = recent_[static_cast<uint64_t>(id) % recent_.size()];
  if (recent.place != kNoRow && recent.id == id) return recent.place;
  const auto [at, is_new] = places_.try_emplace(id, size());
  if (is_new) {
    ids_.push_back(id);
    names_.push_back(kNoRow);
  }
  recent = {id, at->second};
  return at->second;
}

RankTraces::Process& RankTraces::process(int64_t id) {
  if (last_process_ != nullptr && last_process_id_ == id) return *last_process_;
  Process& process = processes_[id];
  process.host.facts.file = path_;
  last_process_ = &process;
  last_process_id_ = id;
  return process;
}

RankTraces::Process* RankTraces::find_process(int64_t id) {
  if (last_process_ != nullptr && last_process_id_ == id) return last_process_;
  const auto at = processes_.find(id);
  if (at == processes_.end()) return nullptr;
  last_process_ = &at->second;
  last_process_id_ = id;
  return last_process_;
}

RankTraces::Rank& RankTraces::rank(int64_t process_id, int64_t device) {
  if (last_ < ranks_.size() && ranks_[last_]->process == process_id &&
      ranks_[last_]->device == device) {
    return *ranks_[last_];
  }
  const auto [at, is_new] = rows_.try_emplace({process_id, device}, ranks_.size());
  if (is_new) {
    std::vector<size_t>& devices = process(process_id).ranks;
    if (ranks_.size() == kMaxRanks || devices.size() == kMaxDevicesEach) {
      throw base::UsageError(
          fmt::format("{}: has more than {} devices in a process, or {} in all, which no trace has",
                      path_, kMaxDevicesEach, kMaxRanks));
    }
    devices.push_back(ranks_.size());
    auto rank = std::make_unique<Rank>();
    rank->process = process_id;
    rank->device = device;
    rank->trace.facts.file = path_;
    ranks_.push_back(std::move(rank));
    std::ranges::sort(devices, {}, [&](size_t row) { return ranks_[row]->device; });
  }
  last_ = at->second;
  return *ranks_[last_];
}

std::vector<uint32_t> RankTraces::names_of(const NameRefs& asked) {
  std::vector<uint32_t> found(asked.size());
  for (uint32_t place = 0; place < asked.size(); ++place) {
    const uint32_t name = asked.name_at(place);
    found[place] =
        name == kNoRow ? names.intern(fmt::format("{} {})", kUnnamed, asked.id_at(place))) : name;
  }
  return found;
}

void RankTraces::resolve_names() {
  const std::vector<uint32_t> plain = names_of(refs);
  const std::vector<uint32_t> of_calls = names_of(call_refs);
  const auto resolve = [](uint32_t& name, const std::vector<uint32_t>& found) {
    if (name != kNoRow && (name & kIsRef) != 0) name = found[name & ~kIsRef];
  };
  std::vector<CallKind> kinds(names.size());
  std::vector<bool> is_known(names.size());
  for (auto& [id, process] : processes_) {
    for (HostCall& call : process.host.calls) {
      resolve(call.name, of_calls);
      if (!is_known[call.name]) {
        is_known[call.name] = true;
        kinds[call.name] = call_kind_of(names[call.name]);
      }
      call.kind = kinds[call.name];
    }
    for (HostRange& range : process.host.ranges) resolve(range.name, plain);
    process.host.steps = steps_in_ranges(process.host.ranges, names);
  }
  for (const auto& rank : ranks_) {
    for (ImportedOp& op : rank->trace.ops) resolve(op.name, plain);
  }
}

void RankTraces::hand_out(Process& process) {
  if (process.ranks.size() == 1) {
    ImportedTrace& trace = rank_row(process.ranks.front()).trace;
    trace.threads = std::move(process.host.threads);
    trace.calls = std::move(process.host.calls);
    trace.ranges = std::move(process.host.ranges);
    trace.steps = std::move(process.host.steps);
    return;
  }
  // Which of the process's devices a call had work for: one bit each.
  std::unordered_map<uint32_t, uint32_t> devices_of;
  for (size_t i = 0; i < process.ranks.size(); ++i) {
    for (const ImportedOp& op : rank_row(process.ranks[i]).trace.ops) {
      if (op.correlation != 0) devices_of[op.correlation] |= 1U << i;
    }
  }
  static_assert(kMaxDevicesEach <= 32);
  for (const HostCall& call : process.host.calls) {
    const auto at = devices_of.find(call.correlation);
    for (size_t i = 0; i < process.ranks.size(); ++i) {
      if (at == devices_of.end() || ((at->second >> i) & 1U) != 0) {
        rank_row(process.ranks[i]).trace.calls.add(call);
      }
    }
  }
  for (const size_t row : process.ranks) {
    ImportedTrace& trace = rank_row(row).trace;
    trace.threads = process.host.threads;
    trace.ranges = process.host.ranges;
    trace.steps = process.host.steps;
  }
  process.host = ImportedTrace();
}

void RankTraces::take_own_names(ImportedTrace& trace) {
  std::vector<uint32_t> numbers(names.size(), kNoRow);
  const auto take = [&](uint32_t& name) {
    if (name == kNoRow) return;
    uint32_t& number = numbers[name];
    if (number == kNoRow) number = trace.names.intern(names[name]);
    name = number;
  };
  for (ImportedOp& op : trace.ops) {
    take(op.name);
    if (op.kind == ActivityKind::copy) take(op.detail);
  }
  for (HostCall& call : trace.calls) take(call.name);
  for (HostRange& range : trace.ranges) take(range.name);
}

std::vector<ImportedTrace> RankTraces::finish(const TraceFacts& facts) {
  std::vector<ImportedTrace> traces;
  for (const auto& [key, row] : rows_) {
    Process& process = processes_.at(key.first);
    if (process.ranks.front() == row) hand_out(process);
    ImportedTrace& trace = rank_row(row).trace;
    TraceFacts all = facts;
    const TraceFacts& own = trace.facts;
    const TraceFacts& host = process.host.facts;
    all.num_clipped += own.num_clipped + host.num_clipped;
    all.num_incomplete += own.num_incomplete + host.num_incomplete;
    for (const TraceFacts* part : {&own, &host}) {
      for (const auto& [category, number] : part->num_of) {
        all.num_of[category] += number;
        all.num_events += number;
      }
    }
    trace.facts = std::move(all);
    take_own_names(trace);
    trace.finish();
    process.passes.give_to(trace);
    traces.push_back(std::move(trace));
    ranks_[row].reset();
  }
  return traces;
}

void count_ranks(std::vector<ImportedTrace>& traces) {
  for (size_t i = 0; i < traces.size(); ++i) {
    TraceFacts& facts = traces[i].facts;
    if (facts.rank) continue;
    const int64_t named = traces.size() == 1 ? rank_in_name(facts.file) : -1;
    facts.rank = named >= 0 ? named : static_cast<int64_t>(i);
    facts.is_rank_guessed = true;
    facts.is_rank_counted = named < 0;
  }
}

}  // namespace moetune::profiler

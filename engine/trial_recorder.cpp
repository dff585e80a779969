#include "engine/trial_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "kernels/base/median.h"
#include "kernels/base/units.h"
#include "profiler/across_ranks.h"
#include "profiler/store/judged_steps.h"

namespace moetune::engine {
namespace {

/// 0 where no step was taken.
double usual(const std::vector<int64_t>& values) {
  return values.empty() ? 0.0 : base::median(values);
}

}  // namespace

TrialRecorder::TrialRecorder(const spec::TrialSpec& trial, const std::string& out_dir,
                             const std::vector<int>& ranks, store::ShardWriter::File file)
    : trial_(trial),
      is_leader_(spec::ranks_of(trial) != spec::RanksAre::processes || ranks.front() == 0),
      shard_(fmt::format("{}/shard-{}.db", out_dir, is_leader_ ? 0 : ranks.front()), file),
      progress_path_(out_dir + "/progress") {
  for (const int rank : ranks) traces_[rank];
}

void TrialRecorder::add_trace(int rank, profiler::StepTrace trace) {
  traces_.at(rank).push_back(std::move(trace));
}

void TrialRecorder::add_step(int64_t step, const StepResult& result, int64_t wall_step_ns,
                             int64_t launches) {
  store::ShardStep row;
  row.step = step;
  row.is_warmup = step < trial_.num_warmup_steps;
  row.is_traced = step >= trial_.num_warmup_steps + trial_.num_steps;
  row.step_ns = result.step_ns;
  row.loss = result.loss;
  row.aux_loss = result.aux_loss;
  row.z_loss = result.z_loss;
  row.grad_norm = result.grad_norm;
  row.lr = result.lr;
  shard_.add_step(row);
  if (!row.is_warmup) (row.is_traced ? traced_wall_ns_ : wall_ns_).push_back(wall_step_ns);
  if (row.is_traced) traced_step_ns_.push_back(result.step_ns);
  if (!row.is_warmup && !row.is_traced) step_ns_.push_back(result.step_ns);
  if (row.is_traced && step + 1 == spec::total_steps(trial_)) add_traces();
  if (!is_leader_) return shard_.commit();
  if (step == 0) shard_.add_metric(0, "num_launches", static_cast<double>(launches));
  shard_.commit();
  std::ofstream(progress_path_) << fmt::format("step {} of {}\n", step + 1,
                                               spec::total_steps(trial_));
}

void TrialRecorder::add_memory(int rank, const profiler::MemoryLedger& ledger) {
  shard_.add_memory({rank, ledger.peak_bytes(), ledger.capacity_bytes(), ledger.peak_by_group(),
                     ledger.peak_allocation()});
  shard_.add_metric(rank, "num_allocations", static_cast<double>(ledger.num_allocations()));
}

void TrialRecorder::add_device_memory(int rank, const kernels::DeviceMemoryAccount& account,
                                      int64_t ledger_bytes, int64_t arena_bytes) {
  if (account.driver_used_bytes == 0) return;
  nlohmann::json lines = nlohmann::json::array();
  lines.push_back({{"name", "peak of the ledger"}, {"bytes", ledger_bytes}});
  lines.push_back({{"name", "arenas beyond it"}, {"bytes", arena_bytes - ledger_bytes}});
  for (const auto& line : account.lines) {
    lines.push_back({{"name", line.name}, {"bytes", line.bytes}});
  }
  device_memory_.push_back({{"rank", rank}, {"lines", std::move(lines)}});
  driver_used_bytes_ = std::max(driver_used_bytes_, account.driver_used_bytes);
}

void TrialRecorder::add_skipped(int64_t num_steps) {
  shard_.add_metric(-1, "num_skipped_steps", static_cast<double>(num_steps));
}

void TrialRecorder::add_workspaces(int rank, int64_t bytes) {
  shard_.add_metric(rank, "kernel_workspace_bytes", static_cast<double>(bytes));
}

void TrialRecorder::add_graphs(int rank, const Graphs& graphs) {
  shard_.add_metric(rank, "num_graphs", static_cast<double>(graphs.num_graphs()));
  shard_.add_metric(rank, "num_graph_replays", static_cast<double>(graphs.num_replays()));
  shard_.add_metric(rank, "num_graphs_given_up", static_cast<double>(graphs.num_given_up()));
}

void TrialRecorder::finish(const RoutingRecorder* routing) {
  if (!device_memory_.empty()) {
    shard_.add_text("device_memory", nlohmann::json{{"ranks", device_memory_},
                                                    {"driver_used_bytes", driver_used_bytes_}}
                                         .dump());
  }
  shard_.add_metric(-1, "wall_step_ns", usual(wall_ns_));
  if (!traced_wall_ns_.empty()) {
    const double traced_ns = base::median(traced_wall_ns_);
    shard_.add_metric(-1, "wall_traced_step_ns", traced_ns);
    if (!wall_ns_.empty()) {
      shard_.add_metric(-1, "tracing_wall_overhead_ratio", traced_ns / usual(wall_ns_) - 1.0);
    }
  }
  if (!tracing_overhead_ns_.empty()) {
    shard_.add_metric(-1, "tracing_interface_ns", base::median(tracing_overhead_ns_));
  }
  if (routing != nullptr) {
    shard_.add_text("routing_profile", spec::to_json(routing->profile()).dump());
  }
  shard_.commit();
}

std::string TrialRecorder::summary() const {
  if (step_ns_.empty() || !is_leader_) return "";
  const double step_ns = base::median(step_ns_);
  std::string line = fmt::format("{} per step, median of {} steps",
                                 base::format_ns(static_cast<int64_t>(step_ns)), step_ns_.size());
  const auto add_overhead = [&](const char* clock, const std::vector<int64_t>& traced,
                                double untraced_ns) {
    if (traced.empty() || untraced_ns <= 0) return;
    line += fmt::format("; tracing {:+.1f} % of {}",
                        100.0 * (base::median(traced) / untraced_ns - 1), clock);
  };
  const bool is_virtual = trial_.clock != spec::ClockMode::wall;
  add_overhead(is_virtual ? "virtual time" : "the step", traced_step_ns_, step_ns);
  if (is_virtual) add_overhead("real time", traced_wall_ns_, usual(wall_ns_));
  return line;
}

void TrialRecorder::fail(const std::string& reason) {
  shard_.add_text("reason", reason);
  shard_.commit();
}

std::vector<size_t> TrialRecorder::kept_steps() const {
  size_t largest = 0;
  for (const auto& [rank, steps] : traces_) {
    for (const profiler::StepTrace& trace : steps) {
      largest = std::max(largest, trace.records.size());
    }
  }
  // Processes, which do not know how large the steps of others are, have equal shares of the room.
  const bool are_all_here = spec::ranks_of(trial_) != spec::RanksAre::processes;
  const size_t num_ranks = are_all_here
                               ? std::max<size_t>(traces_.size(), 1)
                               : static_cast<size_t>(plan::layout_of(trial_.knobs).world_size());
  return store::choose_steps(traced_step_ns_,
                             store::num_that_fit(largest, store::kMostJudgedRecords / num_ranks));
}

void TrialRecorder::add_traces() {
  // A build without CUPTI has no traces of a device.
  std::erase_if(traces_, [&](const auto& of_rank) {
    return of_rank.second.size() != traced_step_ns_.size();
  });
  const std::vector<size_t> kept = kept_steps();
  const profiler::CommunicatorKeys instances = plan::group_instances(plan::layout_of(trial_.knobs));
  for (const size_t step : kept) {
    if (spec::is_on_device(trial_)) {
      std::vector<profiler::StepTrace*> ranks;
      for (auto& [rank, steps] : traces_) ranks.push_back(&steps.at(step));
      profiler::resolve_transfers(ranks, instances);
    }
    for (const auto& [rank, steps] : traces_) shard_.add_trace(steps.at(step));
  }
  // Only of the step that is told (store::steps_to_judge): the first that has records at all.
  const auto told = std::ranges::find_if(kept, [&](size_t step) {
    return std::ranges::any_of(
        traces_, [&](const auto& of_rank) { return !of_rank.second.at(step).records.empty(); });
  });
  if (told == kept.end()) return;
  if (*told < counters_.size()) write_counters(counters_[*told]);
  for (const auto& [rank, steps] : traces_) {
    for (const store::ShardOp& op : store::ops_of(steps.at(*told))) shard_.add_op(op);
  }
}

void TrialRecorder::write_counters(const profiler::CounterSums& counters) {
  const auto add = [&](const char* name, const auto& value) {
    if (value) shard_.add_metric(-1, name, static_cast<double>(*value));
  };
  add("sm_active_ratio", counters.sm_active_ratio);
  add("tensor_active_ratio", counters.tensor_active_ratio);
  add("dram_read_bytes", counters.dram_read_bytes);
  add("dram_write_bytes", counters.dram_write_bytes);
}

}  // namespace moetune::engine

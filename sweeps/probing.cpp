#include "sweeps/probing.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/plan/layout.h"
#include "engine/plan/ops.h"
#include "engine/spec/trial_status.h"
#include "kernels/base/environment_failure.h"
#include "kernels/base/error.h"
#include "sweeps/host_room.h"
#include "sweeps/processes/interrupt.h"
#include "sweeps/table.h"
#include "tuner/compiled_step.h"

namespace moetune::sweeps {

namespace {

using nlohmann::json;
using spec::TrialSpec;
using spec::TrialStatus;

std::string_view status_text(const ProbedTrial& trial) {
  return trial.status ? spec::name_of(*trial.status) : "";
}

std::string title_of(const TrialSpec& trial) {
  return fmt::format("{} x {} tokens a micro-batch", trial.knobs.micro_batch_size,
                     trial.training.seq_length);
}

void add_ops(const store::ShardContents& shard, const TrialSpec& trial, int64_t index,
             tuner::ProbedSums& sums) {
  const std::map<std::string, double> row_flops = tuner::CompiledStep(trial).row_flops();
  for (const store::OpRow& op : shard.ops) {
    if (op.flops + op.bytes == 0 || op.duration_ns == 0) continue;
    tuner::ProbedSum& sum = sums[{op.name, index}];
    const auto found = row_flops.find(op.name);
    const auto count = static_cast<double>(op.count);
    sum.count += count;
    sum.flops += static_cast<double>(op.flops);
    sum.bytes += static_cast<double>(op.bytes);
    sum.row_flops += found == row_flops.end() ? 0 : count * found->second;
    sum.ns += static_cast<double>(op.duration_ns);
  }
}

/// Puts what was measured into the machine's figures, and lists the rest.
void apply(const TrialSpec& base, Probe& probe) {
  spec::HardwareSpec& hardware = probe.hardware;
  const bool is_device = spec::is_on_device(base);
  const bool keeps_peaks = is_device && base.hardware.peak_flops_per_s > 0;
  hardware = tuner::with_rates(base.hardware, probe.rates, keeps_peaks);
  const auto tell_measured = [&](const char* key) { hardware.sources[key] = spec::kProbedHere; };
  const auto take = [&](const char* key, auto& figure, const auto& measured) {
    if (measured) {
      figure = *measured;
      tell_measured(key);
    } else {
      probe.kept.emplace_back(key);
    }
  };
  const auto link_of = [](const std::optional<tuner::ProbedLink>& probed) {
    return probed ? std::optional(probed->link) : std::nullopt;
  };
  take("intra_node", hardware.intra_node, link_of(probe.links.intra_node));
  take("inter_node", hardware.inter_node, link_of(probe.links.inter_node));
  take("launch_ns", hardware.launch_ns, probe.host.launch_ns);
  take("sync_ns", hardware.sync_ns, probe.host.sync_ns);
  take("kernel_floor_ns", hardware.kernel_floor_ns, probe.host.kernel_floor_ns);
  for (const char* key : {"efficiency", "half_rows"}) tell_measured(key);
  for (const char* key : {"memory_bytes_per_s", "peak_flops_per_s"}) {
    if (keeps_peaks) {
      probe.kept.insert(probe.kept.begin(), key);
    } else {
      tell_measured(key);
    }
  }
  for (const char* key : {"memory_bytes", "graph_launch_ns", "comm_sm_ratio", "workspace_bytes"}) {
    probe.kept.emplace_back(key);
  }
}

}  // namespace

std::vector<TrialSpec> probe_trials(const TrialSpec& base) {
  TrialSpec trial = base;
  const bool is_device = spec::is_on_device(base);
  if (!is_device) trial.hardware = spec::with_devices(trial.hardware, 1);
  // Nothing has to fit, and nothing slows an operation down.
  if (!is_device) trial.hardware.memory_bytes = 0;
  trial.hardware.comm_sm_ratio = 0;
  trial.knobs = {};
  trial.knobs.data_parallel_size = trial.hardware.num_devices();
  trial.knobs.use_distributed_optimizer = trial.hardware.num_devices() > 1;
  trial.knobs.linear_ce_chunk_tokens = base.knobs.linear_ce_chunk_tokens;
  if (trial.hardware.num_devices() == 1) trial.communicator = spec::CommunicatorKind::threads;
  trial.trace = spec::TraceLevel::all;
  trial.num_warmup_steps = std::max<int64_t>(1, base.num_warmup_steps);
  trial.num_steps = 2;
  trial.num_traced_steps = 2;
  trial.reference_loss.clear();
  trial.fault = {};
  struct Size {
    int64_t micro_batch;
    int64_t sequences;  ///< lengths of the base's
  };
  constexpr Size kSizes[] = {{1, 1}, {2, 1}, {4, 1}, {1, 2}};
  std::vector<TrialSpec> trials;
  for (const Size& size : kSizes) {
    trial.knobs.micro_batch_size = size.micro_batch;
    trial.training.seq_length = size.sequences * base.training.seq_length;
    // Two micro-batches: the second adds to gradients.
    trial.training.global_batch_size = 2 * size.micro_batch * trial.knobs.data_parallel_size;
    trials.push_back(trial);
  }
  return trials;
}

Probe probe_machine(const TrialSpec& base, int64_t rounds, ProcessRunner& processes,
                    const RunnerOptions& options,
                    const std::function<void(const std::string&)>& say) {
  const std::vector<TrialSpec> trials = probe_trials(base);
  Probe probe;
  for (const TrialSpec& trial : trials) probe.trials.push_back({title_of(trial), std::nullopt, ""});
  tuner::ProbedSums sums;
  std::vector<profiler::StepTrace> traces;
  for (int64_t round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < trials.size() && num_interrupts() == 0; ++i) {
      ProbedTrial& told = probe.trials[i];
      if (told.status && told.status != TrialStatus::ok) continue;
      say(fmt::format("round {} of {}: {}", round + 1, rounds, told.title));
      try {
        if (options.launcher.empty()) {
          check_host_memory(trials[i], host_bytes_of(trials[i], {}), read_host());
        }
      } catch (const base::EnvironmentFailure& failure) {
        if (i == 0) throw;  // the others are larger
        told = {told.title, TrialStatus::failed, failure.what()};
        continue;
      }
      const TrialRun run = run_trial(processes, trials[i], options);
      told.status = spec::status_from_name(run.result.status);
      told.reason = run.result.reason;
      if (told.status != TrialStatus::ok) continue;
      add_ops(run.shard(), trials[i], static_cast<int64_t>(i), sums);
      if (spec::is_on_device(base)) {
        traces.insert(traces.end(), run.shard().traces.begin(), run.shard().traces.end());
      }
    }
  }
  if (num_interrupts() > 0) return probe;
  probe.rates = tuner::rates_of(sums);
  if (probe.rates.empty()) {
    throw base::Error(fmt::format("no trial of the probe ended well: {}: {}",
                                  status_text(probe.trials.front()), probe.trials.front().reason));
  }
  const plan::Layout layout = plan::layout_of(trials.front().knobs);
  probe.links = tuner::links_of(traces, layout, base.hardware);
  probe.host = tuner::host_of(traces);
  apply(base, probe);
  return probe;
}

json to_json(const Probe& probe) {
  json document = {{"hardware", spec::to_json(probe.hardware)},
                   {"rates", json::array()},
                   {"links", json::array()},
                   {"kept", probe.kept},
                   {"trials", json::array()}};
  for (const auto& [work, rate] : probe.rates) {
    const bool is_flops = tuner::is_bound_by_flops(work);
    document["rates"].push_back({{"work", spec::name_of(work)},
                                 {"unit", is_flops ? "FLOP/s" : "bytes/s"},
                                 {"per_s", rate.per_ns * 1e9},
                                 {"per_s_low", rate.low * 1e9},
                                 {"per_s_high", rate.high * 1e9},
                                 {"half_rows", rate.half_rows},
                                 {"num_ops", rate.num_ops}});
  }
  const auto add_link = [&](const char* name, const std::optional<tuner::ProbedLink>& probed) {
    if (!probed) return;
    document["links"].push_back({{"link", name},
                                 {"latency_ns", probed->link.latency_ns},
                                 {"bytes_per_s", probed->link.bytes_per_s},
                                 {"median_error_ratio", probed->error},
                                 {"num_records", probed->num_records}});
  };
  add_link("intra_node", probe.links.intra_node);
  add_link("inter_node", probe.links.inter_node);
  for (const ProbedTrial& trial : probe.trials) {
    document["trials"].push_back(
        {{"title", trial.title}, {"status", status_text(trial)}, {"reason", trial.reason}});
  }
  return document;
}

std::string probe_text(const Probe& probe) {
  TextTable table({{"work"},
                   {"rate", TextTable::Align::right},
                   {"slowest", TextTable::Align::right},
                   {"fastest", TextTable::Align::right},
                   {"unit"},
                   {"of the peak", TextTable::Align::right},
                   {"half at rows", TextTable::Align::right},
                   {"operations", TextTable::Align::right}});
  for (const auto& [work, rate] : probe.rates) {
    const auto text = [](double per_ns) { return fmt::format("{:.3g}", per_ns * 1e9); };
    const bool has_rows = work == spec::Work::product || work == spec::Work::grouped;
    table.add({std::string(spec::name_of(work)), text(rate.per_ns), text(rate.low), text(rate.high),
               tuner::is_bound_by_flops(work) ? "FLOP/s" : "bytes/s",
               fmt::format("{:.0f} %", 100 * probe.hardware.efficiency[static_cast<size_t>(work)]),
               has_rows ? fmt::format("{:.0f}", rate.half_rows) : std::string{},
               fmt::format("{}", rate.num_ops)});
  }
  std::string text = table.text(std::nullopt);
  const auto add_link = [&](const char* name, const std::optional<tuner::ProbedLink>& probed) {
    if (!probed) return;
    text += fmt::format("{}: {} ns, {:.3g} bytes/s ({} transfers, median error {:.0f} %)\n", name,
                        probed->link.latency_ns, probed->link.bytes_per_s, probed->num_records,
                        100 * probed->error);
  };
  add_link("intra_node", probe.links.intra_node);
  add_link("inter_node", probe.links.inter_node);
  for (const ProbedTrial& trial : probe.trials) {
    if (trial.status != TrialStatus::ok) {
      text += fmt::format("left out: {}: {}: {}\n", trial.title, status_text(trial), trial.reason);
    }
  }
  return text +
         fmt::format("not measured, kept as the file has them: {}\n", fmt::join(probe.kept, ", "));
}

}  // namespace moetune::sweeps

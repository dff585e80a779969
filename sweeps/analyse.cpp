// Calls the analysis on a shard's records, and names each of its figures as a metric.
#include "sweeps/analyse.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "engine/plan/layout.h"
#include "engine/plan/ops.h"
#include "engine/spec/trial_status.h"
#include "kernels/base/error.h"
#include "kernels/base/step_parts.h"
#include "kernels/base/units.h"
#include "profiler/analysis/budget_terms.h"
#include "profiler/analysis/critical_path.h"
#include "profiler/analysis/overlap.h"
#include "profiler/analysis/stats.h"
#include "profiler/analysis/trial_wall.h"
#include "profiler/store/judged_steps.h"
#include "profiler/store/metrics.h"
#include "tuner/played_steps.h"

namespace moetune::sweeps {
namespace {

using nlohmann::json;
using profiler::GroupBudget;
using profiler::StepBudget;
using store::MetricRow;

constexpr int kWholeRun = -1;

/// Collects metric rows; a group that the metric table does not know is left to the totals.
class Metrics {
 public:
  explicit Metrics(std::vector<MetricRow>& rows) : rows_(rows) {}

  void add(int rank, std::string name, double value) {
    rows_.push_back({rank, std::move(name), value});
  }
  void add(int rank, std::string name, int64_t value) {
    add(rank, std::move(name), static_cast<double>(value));
  }
  void add_group(int rank, const char* name, const std::string& group, double value) {
    std::string full_name = fmt::format("{}.{}", name, group);
    try {
      store::metric_info(full_name);
    } catch (const base::Error&) {
      return;
    }
    rows_.push_back({rank, std::move(full_name), value});
  }

  [[nodiscard]] std::vector<MetricRow>& rows() { return rows_; }

 private:
  std::vector<MetricRow>& rows_;
};

double ratio_of(double part, double whole) { return whole == 0 ? 0.0 : part / whole; }

profiler::ClassificationRules rules_for(const spec::TrialSpec& spec) {
  profiler::ClassificationRules rules;
  for (const plan::OpRow& row : plan::op_table()) {
    if (row.kind == plan::OpKind::dispatcher) rules.dispatcher_ops.emplace_back(row.name);
  }
  rules.pipeline_groups = {plan::name_of(plan::Group::pp)};
  if (spec.knobs.pipeline_model_parallel_size > 1) {
    for (const char* group : {plan::name_of(plan::Group::embedding),
                              plan::name_of(plan::Group::world), profiler::kStepEndGroup}) {
      rules.pipeline_groups.emplace_back(group);
    }
  }
  return rules;
}

profiler::MemoryFacts memory_facts(const store::ShardContents& shard, bool is_oom,
                                   const std::string& reason) {
  profiler::MemoryFacts facts;
  for (const store::ShardMemory& memory : shard.memory) {
    if (memory.peak_bytes < facts.peak_bytes) continue;
    facts.peak_bytes = memory.peak_bytes;
    facts.capacity_bytes = memory.capacity_bytes;
  }
  facts.is_oom = is_oom;
  facts.oom_reason = is_oom ? reason : "";
  return facts;
}

void add_memory(const store::ShardContents& shard, Metrics& metrics) {
  int64_t peak = 0;
  int64_t capacity = 0;
  for (const store::ShardMemory& memory : shard.memory) {
    metrics.add(memory.rank, "peak_bytes", memory.peak_bytes);
    metrics.add(memory.rank, "capacity_bytes", memory.capacity_bytes);
    peak = std::max(peak, memory.peak_bytes);
    capacity = std::max(capacity, memory.capacity_bytes);
  }
  if (shard.memory.empty()) return;
  metrics.add(kWholeRun, "peak_bytes", peak);
  metrics.add(kWholeRun, "capacity_bytes", capacity);
}

std::vector<double> step_times(const store::ShardContents& shard, bool is_traced) {
  std::vector<double> times;
  for (const store::ShardStep& step : shard.steps) {
    if (!step.is_warmup && step.is_traced == is_traced) {
      times.push_back(static_cast<double>(step.step_ns));
    }
  }
  return times;
}

void add_training(const spec::TrialSpec& spec, const store::ShardContents& shard,
                  Metrics& metrics) {
  if (shard.steps.empty()) return;
  const store::ShardStep& last = shard.steps.back();
  metrics.add(kWholeRun, "loss_first", shard.steps.front().loss);
  metrics.add(kWholeRun, "loss_final", last.loss);
  metrics.add(kWholeRun, "aux_loss_final", last.aux_loss);
  metrics.add(kWholeRun, "z_loss_final", last.z_loss);
  metrics.add(kWholeRun, "grad_norm_final", last.grad_norm);
  double difference = 0;
  const size_t num_compared = std::min(spec.reference_loss.size(), shard.steps.size());
  for (size_t i = 0; i < num_compared; ++i) {
    difference = std::max(difference, std::abs(shard.steps[i].loss - spec.reference_loss[i]));
  }
  if (num_compared > 0) metrics.add(kWholeRun, "loss_difference_max", difference);
}

/// In measured virtual time: what is compared are the steps as they are played with robust
/// durations.
void play_steps(const spec::TrialSpec& spec, const store::ShardContents& shard,
                double usual_probe_ns, store::TrialResult& result, Metrics& metrics) {
  std::vector<tuner::MeasuredStep> steps;
  for (const store::ShardWork& work : shard.work) {
    steps.push_back({work.step, work.rank, work.durations_ns, work.routed_rows, work.probe_ns});
  }
  if (steps.empty()) return;
  const tuner::PlayedTrial played = tuner::play_trial(spec, steps, usual_probe_ns);
  MOETUNE_CHECK(played.measured_ns == result.samples_ns,
                "{}: its steps, played with their own durations, do not take what they took",
                shard.path);
  result.played_ns = played.played_ns;
  result.step_ns = played.step_ns;
  result.step_ns_low = played.low_ns;
  result.step_ns_high = played.high_ns;
  metrics.add(kWholeRun, "machine_slowness_ratio", played.slowness);
  if (played.probe_ns <= 0) return;
  result.probe_ns = played.probe_ns;
  metrics.add(kWholeRun, "probe_ns", played.probe_ns);
}

void add_speed(const spec::TrialSpec& spec, const store::ShardContents& shard,
               double usual_probe_ns, store::TrialResult& result, Metrics& metrics) {
  const auto num_tokens =
      static_cast<double>(spec.training.global_batch_size * spec.training.seq_length);
  metrics.add(kWholeRun, "tokens_per_step", num_tokens);
  const std::vector<double> timed = step_times(shard, false);
  if (timed.empty()) return;
  for (const double ns : timed) result.samples_ns.push_back(static_cast<int64_t>(ns));
  profiler::MedianInterval step = profiler::median_interval(timed);
  if (step.median <= 0) return;
  const double raw_step_ns = step.median;
  metrics.add(kWholeRun, "raw_step_ns", raw_step_ns);
  result.step_ns = static_cast<int64_t>(step.median);
  result.step_ns_low = static_cast<int64_t>(step.low);
  result.step_ns_high = static_cast<int64_t>(step.high);
  play_steps(spec, shard, usual_probe_ns, result, metrics);
  step.median = static_cast<double>(*result.step_ns);
  step.low = static_cast<double>(*result.step_ns_low);
  step.high = static_cast<double>(*result.step_ns_high);
  result.tokens_per_s = num_tokens * 1e9 / step.median;
  metrics.add(kWholeRun, "step_ns", step.median);
  metrics.add(kWholeRun, "step_ns_low", step.low);
  metrics.add(kWholeRun, "step_ns_high", step.high);
  metrics.add(kWholeRun, "step_ns_min", *std::ranges::min_element(timed));
  metrics.add(kWholeRun, "step_ns_max", *std::ranges::max_element(timed));
  metrics.add(kWholeRun, "num_timed_steps", static_cast<int64_t>(timed.size()));
  metrics.add(kWholeRun, "noise_ratio", step.noise_ratio());
  metrics.add(kWholeRun, "tokens_per_s", *result.tokens_per_s);
  const std::vector<double> traced = step_times(shard, true);
  if (!traced.empty()) {
    metrics.add(kWholeRun, "tracing_overhead_ratio", profiler::median(traced) / raw_step_ns - 1);
  }
  const double flops = num_tokens * spec.model.training_flops_per_token(spec.training.seq_length);
  const double flops_per_s = flops * 1e9 / step.median;
  metrics.add(kWholeRun, "model_flops_per_step", flops);
  metrics.add(kWholeRun, "model_flops_per_s", flops_per_s);
  const double peak = spec.hardware.peak_flops_per_s * plan::layout_of(spec.knobs).world_size();
  if (peak > 0) metrics.add(kWholeRun, "mfu_ratio", flops_per_s / peak);
}

void add_budgets(const std::vector<StepBudget>& budgets, Metrics& metrics) {
  const auto num_ranks = static_cast<double>(budgets.size());
  for (const profiler::BudgetTerm& term : profiler::budget_terms()) {
    double sum = 0;
    for (const StepBudget& budget : budgets) {
      metrics.add(budget.rank, std::string(term.name), term.value(budget));
      sum += static_cast<double>(term.value(budget));
    }
    metrics.add(kWholeRun, std::string(term.name), sum / num_ranks);
  }
  double executed_flops = 0;
  for (const StepBudget& budget : budgets) {
    executed_flops += static_cast<double>(budget.flops);
    metrics.add(budget.rank, "overlap_ratio", budget.communication.overlap_ratio());
    for (const GroupBudget& group : budget.groups) {
      const auto add = [&](const char* name, int64_t value) {
        metrics.add_group(budget.rank, name, group.group, static_cast<double>(value));
      };
      add("comm_count", group.count);
      if (profiler::is_network(group.group)) add("comm_bytes", group.bytes);
      add("comm_volume_ns", group.volume_ns);
      add("comm_busy_ns", group.busy_ns);
      add("comm_exposed_ns", group.exposed_ns);
      add("blocking_ns", group.blocking_ns());
      add("blocking_transfer_ns", group.blocking_transfer_ns);
      add("blocking_wait_ns", group.blocking_wait_ns);
    }
  }
  metrics.add(kWholeRun, "executed_flops_per_step", executed_flops);
}

void add_overlaps(const std::vector<profiler::GroupOverlap>& overlaps, int64_t num_ranks,
                  Metrics& metrics) {
  for (const profiler::GroupOverlap& overlap : overlaps) {
    const auto add_mean = [&](const char* name, int64_t value) {
      metrics.add_group(kWholeRun, name, overlap.group,
                        ratio_of(static_cast<double>(value), static_cast<double>(num_ranks)));
    };
    if (profiler::is_network(overlap.group)) add_mean("comm_bytes", overlap.bytes);
    add_mean("comm_volume_ns", overlap.volume_ns);
    add_mean("comm_exposed_ns", overlap.exposed_ns);
    add_mean("blocking_transfer_ns", overlap.blocking_transfer_ns);
    add_mean("blocking_wait_ns", overlap.blocking_wait_ns);
    add_mean("jitter_ns", overlap.jitter_ns);
    add_mean("transfer_proxy_ns", overlap.transfer_proxy_ns);
    metrics.add_group(kWholeRun, "overlap_ratio", overlap.group, overlap.overlap_ratio);
    metrics.add_group(kWholeRun, "num_matched", overlap.group,
                      static_cast<double>(overlap.num_matched));
    metrics.add_group(kWholeRun, "num_unmatched", overlap.group,
                      static_cast<double>(overlap.num_unmatched));
  }
}

/// Of each wall the share of the step that is gained without its causes; of the one that binds,
/// what that is in time and in throughput.
void add_ceilings(const profiler::TrialWall& verdict, int64_t step_ns, Metrics& metrics) {
  const profiler::StepVerdict& step = verdict.steps->verdict;
  add_wall_ratios(step.ceilings, metrics.rows());
  const double ratio = step.ceiling_ratio();
  if (!base::is_recoverable(verdict.wall) || ratio >= 1) return;
  metrics.add(kWholeRun, "recoverable_ns", ratio * static_cast<double>(step_ns));
  metrics.add(kWholeRun, "gain_ceiling_ratio", ratio / (1 - ratio));
}

/// Virtual ranks are threads of one process: on a device they share it and its clock. Of ranks that
/// do not, nothing.
std::vector<profiler::DeviceWork> shared_work(const spec::TrialSpec& spec,
                                              std::span<const profiler::StepTrace> traces) {
  const bool is_shared =
      spec::is_on_device(spec) && spec::ranks_of(spec) == spec::RanksAre::threads;
  return is_shared ? profiler::work_of_others(traces) : std::vector<profiler::DeviceWork>();
}

profiler::StepFacts step_facts(const spec::TrialSpec& spec, const store::ShardContents& shard,
                               const profiler::MemoryFacts& memory) {
  const auto reached = [&](double peak, spec::Work work) {
    return peak * spec.hardware.efficiency[static_cast<size_t>(work)];
  };
  profiler::StepFacts facts;
  facts.peak_flops_per_s = reached(spec.hardware.peak_flops_per_s, spec::Work::product);
  facts.memory_bytes_per_s = reached(spec.hardware.memory_bytes_per_s, spec::Work::light);
  facts.memory = memory;
  for (const MetricRow& metric : shard.metrics) {
    // Nothing in a file is trusted.
    constexpr double kMost = 1e12;
    if (metric.name == "lost_records" && metric.value > 0) {
      facts.num_lost += std::llround(std::min(metric.value, kMost));
    }
  }
  return facts;
}

/// Each step judged alone; of the first one, which is told, the critical path goes to the metrics.
std::vector<profiler::StepVerdict> judge_steps(
    const spec::TrialSpec& spec, const std::vector<std::span<const profiler::StepTrace>>& steps,
    const profiler::StepFacts& facts, const profiler::ClassificationRules& rules,
    std::vector<MetricRow>& metrics) {
  const profiler::GroupInstances instances = plan::group_instances(plan::layout_of(spec.knobs));
  std::vector<profiler::StepVerdict> verdicts;
  for (const std::span<const profiler::StepTrace> ranks : steps) {
    const profiler::ReplayedRun run(ranks, instances, {}, shared_work(spec, ranks));
    verdicts.push_back(profiler::judge_step(run, facts));
    if (verdicts.size() == 1) add_critical_path(profiler::critical_path(run, rules), metrics);
  }
  return verdicts;
}

/// What a next run should record where a verdict is unknown.
const char* what_to_record(const spec::TrialSpec& spec) {
  return spec::is_on_device(spec) && spec.trace != spec::TraceLevel::all
             ? "all that the device traces (\"trace\": \"all\")"
             : "a step of which nothing is lost: the log says whether something was";
}

/// The verdict with its evidence, ceilings and the shares of the step.
json wall_json(const profiler::TrialWall& verdict,
               const std::optional<profiler::StepAccount>& account) {
  json document = {{"label", base::name_of(verdict.wall)},
                   {"sub_cause", verdict.sub_cause},
                   {"summary", verdict.summary},
                   {"evidence", evidence_json(verdict.evidence)}};
  if (verdict.steps) {
    const profiler::StepVerdict& step = verdict.steps->verdict;
    document["rank"] = step.rank ? json(*step.rank) : json();
    document["share_ratio"] = step.ceiling_ratio();
    document["most_ratio"] = step.most_ratio;
    document["joint_ratio"] = step.is_hidden() ? json(step.joint_ratio) : json();
    document["low_ratio"] = verdict.steps->low_ratio;
    document["high_ratio"] = verdict.steps->high_ratio;
    document["num_replayed_steps"] = verdict.steps->num_steps;
    document["num_agreeing_steps"] = verdict.steps->num_agreeing;
    document["unknown_ratio"] = step.unknown_ratio();
    document["label_ceilings"] = profiler::by_name(step.ceilings);
    document["low_label_ceilings"] = profiler::by_name(verdict.steps->low_ceilings);
    document["high_label_ceilings"] = profiler::by_name(verdict.steps->high_ceilings);
    document["ceilings"] = profiler::by_name(step.sub_ceilings);
  }
  if (account) {
    json shares = json::object();
    for (const profiler::StepShare& share : account->shares) shares[share.name] = share.ratio;
    document["shares"] = shares;
    document["dominant_group"] = account->dominant_group;
    document["dominant_ratio"] = account->dominant_ratio;
    document["slowest_rank"] = account->slowest_rank;
  }
  return document;
}

}  // namespace

void add_step_budgets(const std::vector<StepBudget>& budgets, std::vector<MetricRow>& metrics) {
  if (budgets.empty()) return;
  Metrics added(metrics);
  add_budgets(budgets, added);
  std::map<std::string, GroupBudget> sums;
  for (const StepBudget& budget : budgets) {
    for (const GroupBudget& group : budget.groups) {
      GroupBudget& sum = sums[group.group];
      sum.bytes += group.bytes;
      sum.volume_ns += group.volume_ns;
      sum.exposed_ns += group.exposed_ns;
      sum.blocking_transfer_ns += group.blocking_transfer_ns;
      sum.blocking_wait_ns += group.blocking_wait_ns;
    }
  }
  for (const auto& entry : sums) {
    const std::string& name = entry.first;
    const GroupBudget& sum = entry.second;
    const auto add_mean = [&](const char* metric, int64_t value) {
      added.add_group(kWholeRun, metric, name,
                      static_cast<double>(value) / static_cast<double>(budgets.size()));
    };
    if (profiler::is_network(name)) add_mean("comm_bytes", sum.bytes);
    add_mean("comm_volume_ns", sum.volume_ns);
    add_mean("comm_exposed_ns", sum.exposed_ns);
    add_mean("blocking_transfer_ns", sum.blocking_transfer_ns);
    add_mean("blocking_wait_ns", sum.blocking_wait_ns);
  }
}

json evidence_json(const std::vector<profiler::Evidence>& evidence) {
  json facts = json::array();
  for (const profiler::Evidence& fact : evidence) {
    facts.push_back(
        {{"name", fact.name}, {"value", fact.value}, {"unit", fact.unit}, {"text", fact.text}});
  }
  return facts;
}

void add_wall_ratios(const std::array<double, base::kNumWalls>& ceilings,
                     std::vector<MetricRow>& metrics) {
  for (size_t i = 0; i < ceilings.size(); ++i) {
    metrics.push_back({kWholeRun,
                       fmt::format("{}_wall_ratio", base::name_of(static_cast<base::Wall>(i))),
                       ceilings[i]});
  }
}

void add_critical_path(const profiler::CriticalPath& path, std::vector<MetricRow>& metrics) {
  Metrics added(metrics);
  for (const auto& [path_class, ns] : path.ns_by_class) {
    added.add(kWholeRun, fmt::format("critical_{}_ns", profiler::name_of(path_class)), ns);
  }
  for (const auto& [rank, ns] : path.ns_by_rank) added.add(rank, "critical_path_ns", ns);
}

void analyse_shard(const spec::TrialSpec& spec, const store::ShardContents& shard,
                   double usual_probe_ns, store::TrialResult& result) {
  Metrics metrics(result.metrics);
  const std::optional<spec::TrialStatus> status = spec::find_status(result.status);
  const bool is_oom = status == spec::TrialStatus::oom;
  add_memory(shard, metrics);
  add_training(spec, shard, metrics);
  if (status == spec::TrialStatus::ok) {
    add_speed(spec, shard, usual_probe_ns, result, metrics);
  }

  const profiler::MemoryFacts memory = memory_facts(shard, is_oom, result.reason);
  std::vector<profiler::StepVerdict> verdicts;
  std::optional<profiler::StepAccount> account;
  const auto steps = store::steps_to_judge(shard);
  if (!steps.empty()) {
    const profiler::ClassificationRules rules = rules_for(spec);
    verdicts = judge_steps(spec, steps, step_facts(spec, shard, memory), rules, result.metrics);
    const std::vector<profiler::StepTrace> traces(steps.front().begin(), steps.front().end());
    const std::vector<profiler::DeviceWork> others = shared_work(spec, traces);
    const profiler::DeviceWork none;
    std::vector<StepBudget> budgets;
    for (size_t i = 0; i < traces.size(); ++i) {
      budgets.push_back(
          profiler::compute_budget(traces[i], rules, others.empty() ? none : others[i]));
    }
    add_budgets(budgets, metrics);
    add_overlaps(profiler::group_overlaps(traces, budgets,
                                          plan::group_instances(plan::layout_of(spec.knobs))),
                 static_cast<int64_t>(traces.size()), metrics);
    account = profiler::account_of(budgets);
    metrics.add(kWholeRun, "dominant_ratio", account->dominant_ratio);
  }
  if (verdicts.empty() && !is_oom) return;
  const profiler::TrialWall verdict =
      profiler::judge_trial(std::move(verdicts), account, memory, what_to_record(spec));
  result.wall = base::name_of(verdict.wall);
  if (verdict.steps && account) add_ceilings(verdict, account->step_ns, metrics);
  result.texts.push_back(
      {kWallEvidenceText,
       wall_json(verdict, account).dump(-1, ' ', false, json::error_handler_t::replace)});
}

}  // namespace moetune::sweeps

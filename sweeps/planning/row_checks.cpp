// Contradictions within a row, and the planner's rules of what can run.
#include "sweeps/planning/row_checks.h"

#include <fmt/format.h>

#include <optional>

#include "kernels/base/error.h"
#include "tuner/planner/rules.h"

namespace moetune::sweeps {

namespace {

namespace planner = tuner::planner;

void check_ratio(const char* key, const std::optional<double>& value, double low, double high,
                 const char* why) {
  if (!value || (*value >= low && *value <= high)) return;
  throw base::UsageError(
      fmt::format("{} {} is not from {} to {}: {}", key, *value, low, high, why));
}

void check_ratios(const RowReader& row, const PublishedRow& result) {
  check_ratio("optimizer.offload_fraction", row.object("optimizer").number("offload_fraction"), 0,
              1, "it is the share of the optimizer's state that is on the host");
  if (result.model->num_experts == 0) return;
  check_ratio("imbalance", row.number("imbalance"), 1, 1e4,
              "the busiest rank's experts receive at least their share of the rows");
}

void check_virtual_stages(const RowReader& row, const planner::PlanRun& run) {
  if (run.stages.empty() || !row.has("vpp")) return;
  const int64_t written = planner::num_virtual_stages(run);
  if (written == run.knobs.vpp) return;
  throw base::UsageError(
      fmt::format("vpp {} contradicts pipeline_layout, whose {} stages are {} for each of pp {}",
                  run.knobs.vpp, run.stages.size(), written, run.knobs.pp));
}

void check_micro_batches(const RowReader& row, const planner::PlanRun& run) {
  if (!row.has("global_batch_size") || !row.has("num_microbatches")) return;
  const int64_t stated = row.integer("num_microbatches", 1);
  const int64_t counted = planner::num_micro_batches(run);
  if (stated == counted) return;
  throw base::UsageError(fmt::format(
      "num_microbatches {} contradicts global_batch_size {}, which is {} micro-batches of {} "
      "sequences on dp {}",
      stated, run.global_batch_size, counted, run.knobs.micro_batch_size, run.knobs.dp));
}

void check_rules(PublishedRow& result) {
  const planner::PlanRun& run = result.run;
  const std::vector<const planner::PlanRule*> broken = planner::broken_rules(run);
  for (const planner::PlanRule* rule : broken) {
    if (rule->binds == planner::RuleOf::any_engine) throw base::UsageError(rule->message(run));
  }
  if (result.is_of_other_engine) return;
  for (const planner::PlanRule* rule : broken) {
    result.assumed.push_back(fmt::format("breaks rule {}: {}", rule->name, rule->message(run)));
  }
}

}  // namespace

void check_run_of_row(const RowReader& row, PublishedRow& result) {
  check_ratios(row, result);
  check_virtual_stages(row, result.run);
  check_rules(result);
  check_micro_batches(row, result.run);
}

}  // namespace moetune::sweeps

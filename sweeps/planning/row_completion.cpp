// Dates and throughput of rows; the leanest of what is left open.
#include "sweeps/planning/row_completion.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "kernels/base/utf8.h"
#include "sweeps/planning/flops_accounting.h"
#include "sweeps/planning/row_flags.h"
#include "tuner/planner/rates.h"
#include "tuner/planner/rules.h"

namespace moetune::sweeps {

namespace {

using spec::PlanKnobs;
using spec::PlanRecompute;
using tuner::planner::PlanRun;
namespace planner = tuner::planner;

/// Of months after 2026-06: "2026-08".
std::string month_text(double months) {
  const int64_t since_year_0 = int64_t{12} * 2026 + 5 + std::llround(months);
  return fmt::format("{}-{:02}", since_year_0 / 12, since_year_0 % 12 + 1);
}

/// GFLOP that the source counts for a token; 0: not known.
double counted_gflop(const RowReader& row, const PublishedRow& result) {
  const int64_t length = result.run.seq_length;
  if (result.accounting.empty()) return result.model->training_flops_per_token(length) / 1e9;
  const RowReader derived = row.object("derived");
  const bool is_known = counted_flops(*result.model, length, result.accounting).is_known ||
                        derived.has("gflop_per_token_published_accounting") ||
                        derived.has("gflop_per_token_published");
  return is_known ? result.gflop_per_token : 0;
}

void lean_optimizer(const RowReader& row, bool is_assumed, PlanKnobs& knobs) {
  const RowReader optimizer = row.object("optimizer");
  const auto is_open = [&](const char* key) { return is_assumed || !optimizer.has(key); };
  if (is_open("distributed")) knobs.distributed_optimizer = true;
  if (is_open("precision_aware")) knobs.precision_aware_optimizer = true;
  // Without it the update copies gradients in 16 bits to 32, moments have 32, and no state is on
  // the host.
  if (!knobs.precision_aware_optimizer) return;
  if (is_open("main_grads_dtype")) knobs.main_grads = spec::StateType::bf16;
  if (is_open("exp_avg_dtype")) knobs.exp_avg = spec::StateType::bf16;
  if (is_open("exp_avg_sq_dtype")) knobs.exp_avg_sq = spec::StateType::bf16;
  if (is_open("offload_fraction")) knobs.optimizer_offload_ratio = 1;
}

/// Whether the row says how its loss is computed, in whatever spelling.
bool states_loss(const RowReader& row) {
  for (const auto& [key, value] : row.object("other_knobs").document().items()) {
    if (key.find("entropy") != std::string::npos) return true;
  }
  return false;
}

/// As many of a knob's values as go together with the rest of the run, but for `without`. Rules
/// that `known` breaks do not count.
template <class E>
void add_all(PlanRun& run, const PlanRun& known, spec::NamedSet<E> PlanKnobs::*member,
             spec::NamedSet<E> without = {}) {
  for (const auto& row : spec::NameTable<E>::kRows) {
    if (without.has(row.value)) continue;
    PlanRun with = run;
    (with.knobs.*member).add(row.value);
    if (!planner::breaks_more(with, known)) run = with;
  }
}

}  // namespace

void tell_date(const RowReader& row, bool is_known, PublishedRow& result) {
  if (row.object("software").text("date").empty()) {
    result.assumed.push_back(
        fmt::format("software.date {}: the row does not say", month_text(result.months)));
  }
  if (!is_known) {
    result.assumed.push_back(fmt::format("software.date {} as {}: it is no date",
                                         base::shortened(row.object("software").text("date"), 20),
                                         month_text(result.months)));
  }
  const double month = tuner::planner::fitted_month(result.months);
  if (month == result.months) return;
  result.assumed.push_back(fmt::format("software.date {} as {}: no run behind the rates is {}",
                                       base::shortened(row.object("software").text("date"), 20),
                                       month_text(month),
                                       month < result.months ? "later" : "earlier"));
}

void complete_throughput(const RowReader& row, PublishedRow& result) {
  if (result.tokens_per_s) return;
  const PlanRun& run = result.run;
  const bool states_batch = row.has("global_batch_size") || row.has("num_microbatches");
  if (states_batch && result.step_seconds && *result.step_seconds > 0) {
    const double tokens =
        static_cast<double>(run.global_batch_size) * static_cast<double>(run.seq_length);
    result.tokens_per_s =
        tokens / static_cast<double>(run.knobs.world_size()) / *result.step_seconds;
    return;
  }
  const double gflop = counted_gflop(row, result);
  if (gflop > 0 && result.tflops && *result.tflops > 0) {
    result.tokens_per_s = *result.tflops * 1e3 / gflop;
  }
}

std::vector<PlanRun> leaner_runs(const RowReader& row, const PublishedRow& result,
                                 bool is_optimizer_assumed) {
  const PlanRun& own = result.run;
  const RowFlags flags(row);
  const auto is_open = [&](const char* flag) { return !flags.reader().has(flag); };
  const auto is_key_open = [&](const char* key) {
    return !row.has(key) || result.not_understood.contains(key);
  };
  PlanRun lean = own;
  if (!row.has("imbalance")) lean.load = 1;
  lean_optimizer(row, is_optimizer_assumed, lean.knobs);
  if (!states_loss(row)) lean.knobs.cross_entropy = spec::CrossEntropy::chunked;
  if (is_key_open("cuda_graphs")) lean.knobs.cuda_graphs = {};
  // Releases exclude the overlap beside full recomputation, and published runs have both.
  PlanRun known = own;
  if (is_key_open("recompute") && own.knobs.overlap_moe_expert_parallel_comm) {
    if (is_open("overlap_moe_expert_parallel_comm")) {
      lean.knobs.overlap_moe_expert_parallel_comm = lean.knobs.delay_wgrad_compute = false;
    } else {
      known.knobs.recompute = {PlanRecompute::full};
    }
  }
  std::vector<PlanRun> runs = {lean};
  // Beside each run that is there already one with another choice, which may be leaner or not.
  const auto or_with = [&](bool may_be, const auto& change) {
    if (!may_be) return;
    const std::vector<PlanRun> before = runs;
    for (const PlanRun& other : before) change(runs.emplace_back(other));
  };
  // Most recipes exclude weights in 8 bits alone beside an optimizer on the host.
  or_with(own.knobs.fp8_param_gather && is_open("fp8_param_gather"),
          [](PlanRun& run) { run.knobs.fp8_param_gather = false; });
  or_with(own.knobs.fp8_param_gather, [&](PlanRun& run) {
    run.knobs.optimizer_offload_ratio = own.knobs.optimizer_offload_ratio;
  });
  or_with(!row.has("fsdp"), [](PlanRun& run) { run.knobs.fsdp = spec::Fsdp::megatron; });
  // Full recomputation has a whole layer at once; all modules without it have less of one.
  const std::vector<PlanRun> before = runs;
  for (const PlanRun& other : before) {
    if (!is_key_open("recompute")) break;
    runs.emplace_back(other).knobs.recompute = {PlanRecompute::full};
    PlanRun& modules = runs.emplace_back(other);
    modules.knobs.recompute = {};
    add_all(modules, known, &PlanKnobs::recompute, {PlanRecompute::full});
  }
  or_with(is_key_open("activation_offload"),
          [&](PlanRun& run) { add_all(run, known, &PlanKnobs::offload); });
  // Last: other choices are more likely. With weights in 8 bits alone no optimizer is on the host.
  if (!row.has("precision") && own.hardware->fp8_flops_per_s > 0) {
    const std::vector<PlanRun> wide = runs;
    for (const PlanRun& other : wide) {
      PlanRun narrow = other;
      narrow.knobs.precision = spec::PrecisionRecipe::fp8_current;
      runs.push_back(narrow);
      if (!is_open("fp8_param_gather")) continue;
      narrow.knobs.fp8_param_gather = true;
      narrow.knobs.optimizer_offload_ratio = own.knobs.optimizer_offload_ratio;
      runs.push_back(narrow);
    }
  }
  // What excludes each other nobody ran. Of other engines the rules say nothing.
  if (!result.is_of_other_engine) {
    std::erase_if(runs, [&](const PlanRun& run) { return planner::breaks_more(run, known); });
  }
  return runs;
}

}  // namespace moetune::sweeps

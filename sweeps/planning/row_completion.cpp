// Dates and throughput of rows; the leanest of what is left open.
#include "sweeps/planning/row_completion.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "kernels/base/utf8.h"
#include "sweeps/planning/flops_accounting.h"
#include "tuner/planner/rates.h"

namespace moetune::sweeps {

namespace {

using spec::PlanKnobs;
using spec::PlanRecompute;
using tuner::planner::PlanRun;

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
  // Without the precision-aware optimizer, the update copies gradients in 16 bits to 32.
  if (is_open("main_grads_dtype") && knobs.precision_aware_optimizer) {
    knobs.main_grads = spec::StateType::bf16;
  }
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

template <class E>
spec::NamedSet<E> all_but(std::initializer_list<E> left_out) {
  spec::NamedSet<E> all;
  const spec::NamedSet<E> without(left_out);
  for (const auto& member : spec::NameTable<E>::kRows) {
    if (!without.has(member.value)) all.add(member.value);
  }
  return all;
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

std::vector<PlanRun> leaner_runs(const RowReader& row, const PlanRun& run,
                                 bool is_optimizer_assumed) {
  PlanRun lean = run;
  if (!row.has("imbalance")) lean.load = 1;
  lean_optimizer(row, is_optimizer_assumed, lean.knobs);
  if (!states_loss(row)) lean.knobs.cross_entropy = spec::CrossEntropy::chunked;
  if (!row.has("cuda_graphs")) lean.knobs.cuda_graphs = {};
  std::vector<PlanRun> runs = {lean};
  // Beside each run that is there already one with each of these, which may be leaner or not.
  const auto or_with = [&]<class T>(const char* key, T PlanKnobs::*member,
                                    std::initializer_list<T> values) {
    if (row.has(key)) return;
    const std::vector<PlanRun> before = runs;
    for (const PlanRun& other : before) {
      for (const T& value : values) runs.emplace_back(other).knobs.*member = value;
    }
  };
  // Full recomputation has a whole layer at once; all modules without it have less of one.
  or_with("recompute", &PlanKnobs::recompute,
          {{PlanRecompute::full}, all_but<PlanRecompute>({PlanRecompute::full})});
  or_with("activation_offload", &PlanKnobs::offload, {all_but<spec::Offload>({})});
  or_with("fsdp", &PlanKnobs::fsdp, {spec::Fsdp::megatron});
  return runs;
}

}  // namespace moetune::sweeps

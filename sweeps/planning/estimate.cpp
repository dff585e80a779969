// Memory and time of one run, and of many that were measured.
#include "sweeps/planning/estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "engine/spec/implied_knobs.h"
#include "kernels/base/units.h"
#include "profiler/analysis/stats.h"
#include "sweeps/planning/accuracy.h"
#include "sweeps/planning/machines.h"
#include "sweeps/planning/plan_outputs.h"
#include "tuner/planner/rules.h"

namespace moetune::sweeps {

namespace {

using nlohmann::json;
namespace planner = tuner::planner;

/// Memory's interval: 19 of 20 published runs lie within, natural routing further up.
constexpr double kMemoryLow = 0.95;
constexpr double kMemoryHigh = 1.06;
constexpr double kMemoryHighNatural = 1.12;
/// Below this share of what is predicted, without what lies beside PyTorch's memory, a run that
/// states all of its knobs cannot be: the interval's low end, and as much again.
constexpr double kMemoryLeast = kMemoryLow * 0.95;
/// Step time's, as a logarithm: with all knobs stated, and with some left open. Nine of ten
/// published runs lie within, also of those that were left out of the fit.
constexpr double kTimeKnown = 0.20;
constexpr double kTimeUnknown = 0.33;
/// Beside these where no run on such a device in such a precision was fitted: nothing has shown how
/// far off the rates are there, so as much again as where all knobs are stated.
constexpr double kTimeUnseen = 0.20;
/// Torchtitan's runs, of which none was fitted (docs/torchtitan.md). Its published ones on
/// H100 and H200 took 1.14 to 2.31 times the time that is priced, a logarithm of 0.13 to 0.84. They
/// reserved 1.02 to 1.22 times the memory that is priced as allocated, with pipeline stages 1.57.
constexpr double kTitanFaster = 0.33;
constexpr double kTitanSlower = 0.85;
constexpr double kTitanMemoryLow = 0.85;
constexpr double kTitanMemoryHigh = 1.25;
constexpr double kTitanMemoryHighStages = 1.60;
/// Of engines that are priced as Megatron-Core and are not. Published steps took 0.57 to 2.31 times
/// what is priced so, and memory was 0.77 to 1.59 times that (docs/planner.md, Estimate).
constexpr double kOtherFaster = 0.60;
constexpr double kOtherSlower = kTitanSlower;
constexpr double kOtherMemoryLow = 0.75;
constexpr double kOtherMemoryHigh = kTitanMemoryHighStages;

/// Of the FLOPs that are counted for a token those that are done: frozen weights have no gradients.
double done_share(const planner::PlanRun& run) {
  return run.knobs.task == spec::TrainingTask::lora ? 2.0 / 3 : 1.0;
}

/// The largest load with which the run fits, with `high` times its peak.
double load_that_fits(const planner::PlanRun& run, double high, double capacity) {
  planner::PlanRun other = run;
  return largest_load([&](double load) {
    other.load = run.model->num_experts > 0 ? load : 1;
    const double peak = high * planner::predict_memory(other).peak_bytes();
    return verdict_of(other, peak, capacity) == Verdict::fits;
  });
}

/// Takes members of a set out of `lean` that the run itself does not have, as far as `take` does.
template <class E>
void take_out_members(const planner::PlanRun& run, const planner::PlanRun& lean,
                      spec::NamedSet<E> spec::PlanKnobs::*set,
                      const std::function<bool(const planner::PlanRun&)>& take) {
  for (const auto& out : spec::NameTable<E>::kRows) {
    if (!(lean.knobs.*set).has(out.value) || (run.knobs.*set).has(out.value)) continue;
    planner::PlanRun without = lean;
    without.knobs.*set = {};
    for (const auto& member : spec::NameTable<E>::kRows) {
      const bool stays = member.value != out.value && (lean.knobs.*set).has(member.value);
      if (stays) (without.knobs.*set).add(member.value);
    }
    take(without);
  }
}

/// Of the choices that tell a leaner run from this one those without which it may not fit. Each is
/// taken back where that breaks no rule, the rarer ones first: they are last in the table of knobs.
std::vector<std::string> needed_choices(
    const planner::PlanRun& run, planner::PlanRun lean,
    const std::function<bool(const planner::PlanRun&)>& may_fit) {
  const auto differing = [&](const planner::PlanRun& other) {
    std::vector<const spec::PlanKnobRow*> rows;
    for (const spec::PlanKnobRow& row : spec::plan_knob_table()) {
      if (get_plan_knob(other.knobs, row) != get_plan_knob(run.knobs, row)) rows.push_back(&row);
    }
    return rows;
  };
  const auto take = [&](const planner::PlanRun& without) {
    if (planner::breaks_more(without, lean) || !may_fit(without)) return false;
    lean = without;
    return true;
  };
  planner::PlanRun loaded = lean;
  loaded.load = run.load;
  take(loaded);
  for (bool has_changed = true; has_changed;) {
    has_changed = false;
    std::vector<const spec::PlanKnobRow*> rows = differing(lean);
    while (!rows.empty() && !has_changed) {
      planner::PlanRun without = lean;
      set_plan_knob(without.knobs, *rows.back(), get_plan_knob(run.knobs, *rows.back()));
      spec::set_implied(without.knobs);
      rows.pop_back();
      has_changed = differing(without).size() < differing(lean).size() && take(without);
    }
  }
  take_out_members(run, lean, &spec::PlanKnobs::recompute, take);
  take_out_members(run, lean, &spec::PlanKnobs::offload, take);
  std::vector<std::string> needed;
  if (lean.load != run.load) needed.push_back(fmt::format("imbalance {}", lean.load));
  for (const spec::PlanKnobRow* row : differing(lean)) {
    needed.push_back(fmt::format("{} {}", row->name, get_plan_knob(lean.knobs, *row)));
  }
  return needed;
}

/// How far off a prediction may be: of memory as factors, of step time as logarithms.
struct Spread {
  double memory_low = kMemoryLow;
  double memory_high = kMemoryHigh;
  double faster = kTimeKnown;
  double slower = kTimeKnown;
};

Spread titan_spread(const planner::PlanRun& run) {
  return {kTitanMemoryLow, run.knobs.pp > 1 ? kTitanMemoryHighStages : kTitanMemoryHigh,
          kTitanFaster, kTitanSlower};
}

Spread spread_of(const planner::PlanRun& run, const EstimateContext& context, bool is_calibrated) {
  if (!run.is_of_megatron) return titan_spread(run);
  if (context.is_of_other_engine) {
    return {kOtherMemoryLow, kOtherMemoryHigh, kOtherFaster, kOtherSlower};
  }
  Spread spread;
  if (!context.is_load_stated) spread.memory_high = kMemoryHighNatural;
  spread.faster = spread.slower =
      (context.num_unknown > 0 ? kTimeUnknown : kTimeKnown) + (is_calibrated ? 0 : kTimeUnseen);
  return spread;
}

/// The upper end of memory over a predicted peak. Torchtitan's releases of 2024 did not compile the
/// loss, whatever they were told: that may be meant.
double memory_high_of(const planner::PlanRun& run, const Spread& spread, double peak_bytes) {
  if (run.is_of_megatron || run.knobs.cross_entropy != spec::CrossEntropy::native) {
    return spread.memory_high;
  }
  planner::PlanRun eager = run;
  eager.knobs.cross_entropy = spec::CrossEntropy::unfused;
  const double eager_bytes = planner::predict_memory(eager).peak_bytes();
  return spread.memory_high * std::max(1.0, eager_bytes / peak_bytes);
}

EstimateContext context_of(const PublishedRow& row) {
  EstimateContext context;
  context.months = row.months;
  context.num_unknown = row.num_unknown;
  context.is_of_other_engine = row.is_of_other_engine;
  context.is_load_stated = row.routing != "natural";
  context.leaner = row.leaner;
  context.gflop_per_token = row.gflop_per_token;
  context.stage = row.memory_stage;
  return context;
}

}  // namespace

std::optional<int64_t> num_runs_behind(const Calibration& calibration,
                                       const spec::HardwareSpec& hardware,
                                       spec::PrecisionRecipe precision) {
  if (calibration.fitted.empty()) return 0;
  if (calibration.is_probed && is_of_probe(precision)) return std::nullopt;
  if (!calibration.cases) return std::nullopt;
  int64_t count = 0;
  for (const CalibrationCase& one : *calibration.cases) {
    if (one.key.precision == spec::name_of(precision) && is_of_device(one, hardware)) {
      count += one.num_runs;
    }
  }
  return count;
}

std::string rates_text(const Calibration& calibration, const spec::HardwareSpec& hardware,
                       spec::PrecisionRecipe precision, bool is_of_megatron) {
  if (!is_of_megatron) {
    return fmt::format(
        "{}, {}: intervals are wide, and fits is what fits at the upper end", calibration.basis,
        // No case tells whose software it is, but only one's own runs are beside the shipped ones.
        calibration.measured.empty() ? "none of them of torchtitan"
                                     : "none of them of torchtitan but your own");
  }
  const std::optional<int64_t> count = num_runs_behind(calibration, hardware, precision);
  if (calibration.fitted.empty() || !count) return calibration.basis;
  return fmt::format("{}, of them on {} in {}: {}", calibration.basis, hardware.name,
                     spec::name_of(precision), *count);
}

const char* name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::fits:
      return "fits";
    case Verdict::tight:
      return "tight";
    case Verdict::oom:
      return "oom";
  }
  return "?";
}

int64_t first_rank_of(const spec::PlanKnobs& knobs, int stage) {
  return stage * knobs.stage_ranks();
}

Verdict verdict_of(const planner::PlanRun& run, double peak_bytes, double leanest_bytes,
                   double capacity_bytes) {
  if (capacity_bytes <= 0) return Verdict::fits;
  if (!run.is_of_megatron) {
    // No measured run vouches for what lies between the ends of so wide an interval.
    const Spread spread = titan_spread(run);
    const double high_bytes = peak_bytes * memory_high_of(run, spread, peak_bytes);
    if (planner::device_bytes(high_bytes) <= capacity_bytes) return Verdict::fits;
    const bool is_above = leanest_bytes * spread.memory_low * spread.memory_low > capacity_bytes;
    return is_above ? Verdict::oom : Verdict::tight;
  }
  if (planner::device_bytes(peak_bytes) <= capacity_bytes) return Verdict::fits;
  return leanest_bytes * kMemoryLeast > capacity_bytes ? Verdict::oom : Verdict::tight;
}

double largest_load(const std::function<bool(double)>& fits) {
  if (!fits(1)) return 0;
  if (fits(kMostLoad)) return kMostLoad;
  double low = 1;
  double high = kMostLoad;
  while (high - low > 0.01) {
    const double middle = (low + high) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

std::string load_text(double load) {
  if (load <= 0) return "-";
  return load < kMostLoad ? fmt::format("{:.2f}", load) : fmt::format("{:.0f} and more", kMostLoad);
}

std::string fits_up_to(double load) { return "; fits up to an imbalance of " + load_text(load); }

std::string routing_assumption(double load) {
  return fmt::format("the busiest rank's experts receive {:.2f} of their share{}", load,
                     load == 1 ? " (balanced routing, assumed; --imbalance says otherwise)" : "");
}

std::string load_words(const planner::PlanRun& run, const RunEstimate& estimate) {
  if (run.model->num_experts == 0) return "";
  if (estimate.load_that_fits > 0) return fits_up_to(estimate.load_that_fits);
  // One that was measured ran, whatever is predicted.
  if (estimate.verdict == Verdict::fits) return "";
  // Of torchtitan's wide intervals the upper end may lie beyond the device, and nothing else.
  return run.is_of_megatron || estimate.verdict == Verdict::oom
             ? "; does not fit even with balanced routing"
             : "; may not fit even with balanced routing";
}

std::string margin_text(const RunEstimate& estimate) {
  const auto bytes = [](double count) { return base::format_bytes(std::llround(count)); };
  const double more = estimate.memory.peak_bytes() - estimate.memory.allocated_bytes();
  const std::string beside =
      more > 0 ? fmt::format(" and {} of graphs' pool and the dispatcher's buffers", bytes(more))
               : "";
  return fmt::format(
      "\"fits\" keeps {} beside the peak{} ({:.0f} % for fragments, {} for CUDA's context and "
      "communicators); {} {}",
      bytes(estimate.margin_bytes), beside,
      100 * planner::figure_of<planner::MemoryRule::fragments>(),
      bytes(planner::figure_of<planner::MemoryRule::beside_pytorch>()),
      bytes(std::abs(estimate.left_bytes)), estimate.left_bytes < 0 ? "are missing" : "are left");
}

namespace {

/// What an estimate says of memory, of which a device has `capacity` bytes to use.
void fill_memory(const planner::PlanRun& run, const EstimateContext& context, const Spread& spread,
                 double capacity, RunEstimate& estimate) {
  estimate.memory = planner::predict_memory(run);
  estimate.stage = context.stage < 0 ? estimate.memory.worst_stage : context.stage;
  estimate.rank = first_rank_of(run.knobs, estimate.stage);
  const planner::StageMemory& stage = estimate.memory.stages[static_cast<size_t>(estimate.stage)];
  const double allocated = stage.allocated();
  const double worst = estimate.memory.peak_bytes();
  estimate.memory_lines = planner::memory_breakdown(run, stage, capacity);
  estimate.allocated_bytes = {allocated, allocated * spread.memory_low,
                              allocated * memory_high_of(run, spread, worst)};
  const auto reserved = [&](double bytes) {
    return planner::reserved_bytes(bytes, stage.in_graphs,
                                   planner::capacity_beside_buffers(stage, capacity));
  };
  estimate.reserved_bytes = {reserved(allocated), reserved(estimate.allocated_bytes.low),
                             reserved(estimate.allocated_bytes.high)};
  // Of another engine no measured run vouches for what lies between the ends of its interval.
  const double low_ratio = context.is_of_other_engine ? kOtherMemoryLow / kMemoryLow : 1;
  const double high_ratio = context.is_of_other_engine ? kOtherMemoryHigh : 1;
  estimate.verdict = verdict_of(run, high_ratio * worst, low_ratio * worst, capacity);
  // What is not stated may be chosen so that it fits: then it is not impossible either.
  const auto may_fit = [&](const planner::PlanRun& other) {
    const double least = low_ratio * planner::predict_memory(other).peak_bytes();
    return verdict_of(run, high_ratio * worst, least, capacity) != Verdict::oom;
  };
  if (estimate.verdict == Verdict::oom) {
    const auto lean = std::ranges::find_if(context.leaner, may_fit);
    if (lean != context.leaner.end()) {
      estimate.verdict = Verdict::tight;
      estimate.needed_choices = needed_choices(run, *lean, may_fit);
    }
  }
  estimate.margin_bytes = planner::device_bytes(worst) - worst;
  estimate.left_bytes = capacity - planner::device_bytes(worst);
  estimate.load_that_fits = load_that_fits(run, high_ratio, capacity);
}

/// What was measured of such a run, in the place of what is predicted. `tokens`: a device's, of one
/// step.
void take_measured(const MeasuredFigure& measured, double tokens, RunEstimate& estimate) {
  estimate.grade = "measured";
  estimate.step_seconds = {tokens / measured.tokens_per_s, tokens / measured.high,
                           tokens / measured.low};
  // What the parts are was not measured: they are scaled.
  const double ratio = estimate.step_seconds.value / estimate.step.seconds;
  for (double& part : estimate.step.parts) part *= ratio;
  estimate.step.seconds *= ratio;
}

/// Tokens of a step over devices.
double tokens_of_device(const planner::PlanRun& run) {
  return static_cast<double>(run.global_batch_size) * static_cast<double>(run.seq_length) /
         static_cast<double>(run.knobs.world_size());
}

/// Neither rates nor an interval make a device faster than its data sheet.
double least_step_seconds(const planner::PlanRun& run) {
  const double peak = planner::peak_flops_per_s(*run.hardware, run.knobs.precision);
  const double counted = run.model->training_flops_per_token(run.seq_length);
  return peak > 0 ? tokens_of_device(run) * done_share(run) * counted / peak : 0;
}

std::optional<int64_t> runs_behind(const planner::PlanRun& run, const Calibration& calibration,
                                   const EstimateContext& context) {
  const bool is_of_core = run.is_of_megatron && !context.is_of_other_engine;
  return is_of_core ? num_runs_behind(calibration, *run.hardware, run.knobs.precision)
                    : std::optional<int64_t>(0);
}

/// A calibration that does not tell its cases, as a probe's, is of the machine it is given for.
bool is_calibrated_by(const std::optional<int64_t>& num_runs) { return !num_runs || *num_runs > 0; }

const char* grade_of(bool is_calibrated) { return is_calibrated ? "calibrated" : "analytic"; }

}  // namespace

Speed predicted_speed(const planner::PlanRun& run, const Calibration& calibration,
                      double tokens_per_s) {
  const EstimateContext context;
  const bool is_calibrated = is_calibrated_by(runs_behind(run, calibration, context));
  const Spread spread = spread_of(run, context, is_calibrated);
  const double seconds = tokens_of_device(run) / tokens_per_s;
  const double least = std::min(seconds, least_step_seconds(run));
  const Interval step = {seconds, std::max(seconds * std::exp(-spread.faster), least),
                         seconds * std::exp(spread.slower)};
  return {inverse(tokens_of_device(run), step), grade_of(is_calibrated)};
}

RunEstimate estimate_run(const planner::PlanRun& run, const Calibration& calibration,
                         const EstimateContext& context) {
  RunEstimate estimate;
  estimate.num_runs = runs_behind(run, calibration, context);
  const bool is_calibrated = is_calibrated_by(estimate.num_runs);
  const Spread spread = spread_of(run, context, is_calibrated);
  const double capacity = static_cast<double>(run.hardware->memory_bytes) * context.memory_ratio;
  fill_memory(run, context, spread, capacity, estimate);
  estimate.step = planner::predict_step(run, calibration.rates, {context.months});
  const double tokens = tokens_of_device(run);
  const double counted = run.model->training_flops_per_token(run.seq_length);
  const double peak = planner::peak_flops_per_s(*run.hardware, run.knobs.precision);
  const double least_seconds = least_step_seconds(run);
  const double seconds = std::max(estimate.step.seconds, least_seconds);
  estimate.step_seconds = {seconds, std::max(seconds * std::exp(-spread.faster), least_seconds),
                           seconds * std::exp(spread.slower)};
  estimate.grade = grade_of(is_calibrated);
  estimate.predicted_tokens_per_s = tokens / estimate.step_seconds.value;
  if (const MeasuredFigure* measured = measured_of(run, calibration.measured)) {
    if (shows_that_it_fits(*measured, run, capacity)) estimate.verdict = Verdict::fits;
    take_measured(*measured, tokens, estimate);
  }
  estimate.tokens_per_s = inverse(tokens, estimate.step_seconds);
  const double gflop = context.gflop_per_token > 0 ? context.gflop_per_token : counted / 1e9;
  estimate.tflops = scaled(estimate.tokens_per_s, gflop / 1e3);
  if (peak > 0) estimate.tflops = at_most(estimate.tflops, peak / 1e12);
  return estimate;
}

std::string memory_text(const RunEstimate& estimate) {
  std::string text;
  for (const planner::LineBytes& line : estimate.memory_lines) {
    std::string terms;
    for (const planner::MemoryRow* row : line.rows) {
      terms += fmt::format("{}{} ({})", terms.empty() ? "" : ", ", row->name,
                           planner::name_of(row->evidence));
    }
    const planner::MemoryLineRow& row = planner::row_of(line.line);
    text += fmt::format("  {:29} {:>9}  {}\n", row.words,
                        base::format_bytes(std::llround(line.bytes)), terms);
    if (&row != &planner::memory_parts().back()) continue;
    const planner::StageMemory& stage = estimate.memory.stages[static_cast<size_t>(estimate.stage)];
    text += fmt::format("  {:29} {:>9}  before the first step {}, in it {}\n", "peak, allocated",
                        base::format_bytes(std::llround(stage.allocated())),
                        base::format_bytes(std::llround(stage.at_start)),
                        base::format_bytes(std::llround(stage.first_step)));
    if (stage.peak.total() <= stage.allocated()) continue;
    text +=
        fmt::format("  {:29} {:>9}  of graphs and the dispatcher: what has to fit\n",
                    "with pool and buffers", base::format_bytes(std::llround(stage.peak.total())));
  }
  return text;
}

json memory_terms_json() {
  json terms = json::array();
  for (const planner::MemoryRow& row : planner::memory_rows()) {
    terms.push_back({{"term", row.name},
                     {"line", planner::row_of(row.line).key},
                     {"how", planner::formula_text(row)},
                     {"evidence", planner::name_of(row.evidence)},
                     {"basis", row.basis}});
  }
  for (const planner::SavedTerm& term : planner::saved_terms()) {
    terms.push_back({{"term", term.name},
                     {"line", planner::row_of(planner::MemoryLine::activations).key},
                     {"how", planner::formula_text(term)},
                     {"evidence", planner::name_of(term.evidence)},
                     {"basis", nullptr}});
  }
  return terms;
}

RunEstimate estimate_row(const PublishedRow& row, const Calibration& calibration) {
  const std::string routing = routing_of_case(*row.model, row.routing);
  return estimate_run(row.run, calibration.for_case(*row.hardware, routing, row.months),
                      context_of(row));
}

double predicted_tokens_per_s(const planner::PlanRun& run, const Calibration& calibration,
                              double months) {
  const double seconds = planner::predict_step(run, calibration.rates, {months}).seconds;
  return tokens_of_device(run) / std::max(seconds, least_step_seconds(run));
}

namespace {

json memory_parts_json(const planner::StageMemory& stage) {
  json parts = json::object();
  for (const planner::MemoryLineRow& part : planner::memory_parts()) {
    parts[part.key] = std::llround(stage.peak.*part.bytes);
  }
  return parts;
}

}  // namespace

json to_json(const RunEstimate& estimate) {
  json document = json::object();
  put_whole(document, "peak_allocated_bytes", estimate.allocated_bytes);
  put_whole(document, "peak_reserved_bytes", estimate.reserved_bytes);
  const planner::StageMemory& stage = estimate.memory.stages[static_cast<size_t>(estimate.stage)];
  document["memory_stage"] = estimate.stage;
  document["memory_rank"] = estimate.rank;
  document["memory_moment"] = stage.moment;
  document["memory_stages"] = json::array();
  for (const planner::StageMemory& each : estimate.memory.stages) {
    document["memory_stages"].push_back({{"peak_allocated_bytes", std::llround(each.allocated())},
                                         {"memory_moment", each.moment},
                                         {"memory_parts_bytes", memory_parts_json(each)}});
  }
  document["memory_parts_bytes"] = memory_parts_json(stage);
  document["memory_lines"] = json::array();
  for (const planner::LineBytes& line : estimate.memory_lines) {
    json terms = json::array();
    for (const planner::MemoryRow* row : line.rows) terms.push_back(row->name);
    document["memory_lines"].push_back({{"line", planner::row_of(line.line).key},
                                        {"bytes", std::llround(line.bytes)},
                                        {"terms", std::move(terms)}});
  }
  document["graph_pool_bytes"] = std::llround(stage.in_graphs);
  document["start_bytes"] = std::llround(stage.at_start);
  document["first_step_bytes"] = std::llround(stage.first_step);
  document["verdict"] = name_of(estimate.verdict);
  document["margin_bytes"] = std::llround(estimate.margin_bytes);
  document["left_bytes"] = std::llround(estimate.left_bytes);
  document["load_that_fits"] = estimate.load_that_fits;
  put_whole(document, "step_time_ns", scaled(estimate.step_seconds, 1e9));
  put(document, "tflops_per_gpu", estimate.tflops);
  put(document, "tokens_per_s_per_gpu", estimate.tokens_per_s);
  document["wall"] = base::name_of(planner::wall_of(estimate.step));
  for (size_t i = 0; i < estimate.step.parts.size(); ++i) {
    const base::NamedPart part = planner::named(static_cast<planner::TimePart>(i));
    document["step_parts_ns"][base::name_of(part.row->id, part.group)] =
        std::llround(estimate.step.parts[i] * 1e9);
  }
  document["grade"] = estimate.grade;
  document["num_runs_behind"] = estimate.num_runs ? json(*estimate.num_runs) : json(nullptr);
  return document;
}

namespace {

/// What takes the place of to_json() where there is no estimate: each of its keys, with nothing.
json no_estimate() {
  json document = json::object();
  for (const OutputKey& key : kEstimateOfRun) {
    const std::string_view path = key.path;
    document[std::string(path.substr(0, path.find_first_of(".[")))] = nullptr;
  }
  return document;
}

}  // namespace

json estimate_rows(const std::vector<PublishedRow>& rows, const Calibration& calibration) {
  json document = {{"rows", json::array()}, {"memory_terms", memory_terms_json()}};
  Accuracy accuracy;
  for (const PublishedRow& row : rows) {
    std::string reason = row.reason;
    std::optional<RunEstimate> estimate;
    // No row takes the others along.
    try {
      if (reason.empty()) estimate = estimate_row(row, calibration);
    } catch (const std::exception& error) {
      reason = error.what();
    }
    json entry = {{"id", row.id}, {"supported", estimate.has_value()}, {"reason", nullptr}};
    if (estimate) {
      entry.update(to_json(*estimate));
      entry["assumed"] = row.assumed;
      entry["needed_choices"] = estimate->needed_choices;
      accuracy.add(row, *estimate);
    } else {
      entry.update(no_estimate());
      entry["assumed"] = entry["needed_choices"] = nullptr;
      entry["reason"] = reason;
      accuracy.add_unsupported(row);
    }
    const auto put_published = [&](const std::string& key, const std::optional<double>& value) {
      entry["published_" + key] = value ? json(*value) : json(nullptr);
    };
    put_published("tflops_per_gpu", row.tflops);
    put_published("tokens_per_s_per_gpu", row.tokens_per_s);
    put_published("step_time_ns", row.step_seconds
                                      ? std::optional<double>(std::round(*row.step_seconds * 1e9))
                                      : std::nullopt);
    put_published("peak_allocated_bytes", row.allocated_bytes
                                              ? std::optional<double>(row.allocated_bytes->value)
                                              : std::nullopt);
    put_published("peak_reserved_bytes", row.reserved_bytes);
    document["rows"].push_back(std::move(entry));
  }
  document["summary"] = accuracy.summary();
  return document;
}

}  // namespace moetune::sweeps

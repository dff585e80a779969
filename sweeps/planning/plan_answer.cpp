// Search, then what people ask of its answer: why this one, what the others lack, what would help.
#include "sweeps/planning/plan_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <functional>
#include <set>
#include <string_view>
#include <utility>

#include "kernels/base/parallel_for.h"
#include "kernels/base/units.h"
#include "sweeps/planning/set_against.h"
#include "tuner/planner/played_plan.h"
#include "tuner/planner/rules.h"

namespace moetune::sweeps {

namespace planner = tuner::planner;
using planner::PlanQuestion;
using planner::PlanRun;
using spec::PlanKnobs;

namespace {

/// The fastest plan known, of the best and of the space, for which `holds`.
const planner::PlannedConfig* fastest_where(const planner::PlanAnswer& answer,
                                            const std::function<bool(const PlanKnobs&)>& holds) {
  const planner::PlannedConfig* fastest = nullptr;
  const auto look_at = [&](const planner::PlannedConfig& config) {
    if ((fastest == nullptr || config.seconds < fastest->seconds) && holds(config.knobs)) {
      fastest = &config;
    }
  };
  for (const planner::PlannedConfig& config : answer.best) look_at(config);
  for (const planner::PlanCell& cell : answer.cells) {
    if (cell.fastest) look_at(*cell.fastest);
  }
  return fastest;
}

std::vector<ThumbOpinion> opinions(const PlanQuestion& question,
                                   const planner::PlanAnswer& answer) {
  std::vector<ThumbOpinion> opinions;
  const planner::PlannedConfig& first = answer.best.front();
  const PlanRun run = run_with(question, first);
  for (const planner::Thumb& thumb : planner::thumbs()) {
    if (!thumb.applies(run)) continue;
    ThumbOpinion opinion = {
        std::string(thumb.name), std::string(thumb.says), thumb.agrees(run), {}};
    const planner::PlannedConfig* fastest =
        opinion.agrees ? &first : fastest_where(answer, [&](const PlanKnobs& knobs) {
          return thumb.agrees(run_with(question, {knobs}));
        });
    if (fastest != nullptr) opinion.cost_ratio = fastest->seconds / first.seconds - 1;
    opinions.push_back(std::move(opinion));
  }
  return opinions;
}

/// What one change of what was asked would buy the first plan.
std::vector<KnobGain> helps_of(const PlanQuestion& question, const planner::PlanAnswer& answer,
                               const Calibration& calibration) {
  const planner::PlannedConfig& first = answer.best.front();
  const PlanRun run = run_with(question, first);
  const double tokens_per_s = planner::tokens_per_s_per_device(run, first.seconds);
  const double capacity = capacity_of(question);
  std::vector<KnobGain> helps;
  const auto add = [&](const char* what, std::string from, std::string to, const PlanRun& changed) {
    if (planner::broken_rule(changed) != nullptr) return;
    const double seconds = planner::predict_step(changed, calibration.rates).seconds;
    const double changed_per_s = planner::tokens_per_s_per_device(changed, seconds);
    const double gain = changed_per_s / tokens_per_s - 1;
    constexpr double kLeast = 0.001;
    if (gain < kLeast) return;
    const double peak = planner::predict_memory(changed).peak_bytes();
    helps.push_back({what,
                     std::move(from),
                     std::move(to),
                     gain,
                     peak - first.peak_bytes,
                     {},
                     true,
                     verdict_of(changed, peak, capacity),
                     planner::device_bytes(peak) <= capacity});
    helps.back().speed = predicted_speed(changed, calibration, changed_per_s);
  };
  const spec::HardwareSpec& hardware = *question.hardware;
  using spec::PrecisionRecipe;
  for (const auto& [recipe, flops_per_s] :
       {std::pair{PrecisionRecipe::fp8_blockwise, hardware.fp8_flops_per_s},
        std::pair{PrecisionRecipe::fp8_current, hardware.fp8_flops_per_s},
        // Formats with a scale for each few elements came with the products of 4 bits.
        std::pair{PrecisionRecipe::mxfp8, hardware.fp4_flops_per_s},
        std::pair{PrecisionRecipe::nvfp4, hardware.fp4_flops_per_s}}) {
    if (flops_per_s <= 0 || first.knobs.precision != PrecisionRecipe::bf16) continue;
    PlanRun changed = run;
    changed.knobs.precision = recipe;
    if (question.can_say != nullptr && !question.can_say(changed.knobs, "precision")) continue;
    add("precision", std::string(spec::name_of(first.knobs.precision)),
        std::string(spec::name_of(recipe)), changed);
  }
  PlanRun larger = run;
  larger.global_batch_size *= 2;
  add("global batch", std::to_string(run.global_batch_size),
      std::to_string(larger.global_batch_size), larger);
  spec::HardwareSpec faster = hardware;
  faster.inter_node.bytes_per_s *= 2;
  PlanRun networked = run;
  networked.hardware = &faster;
  add("network, GB/s of a device", fmt::format("{:.0f}", hardware.inter_node.bytes_per_s / 1e9),
      fmt::format("{:.0f}", faster.inter_node.bytes_per_s / 1e9), networked);
  PlanRun balanced = run;
  balanced.load = 1;
  if (run.load > 1) {
    add("load of the busiest experts", fmt::format("{:.2f}", run.load), "1.00", balanced);
  }
  // More memory of a device: the front beyond what there is, its next step and its end.
  const planner::PlannedConfig* next = nullptr;
  for (const planner::PlannedConfig& config : answer.front) {
    const double gain = first.seconds / config.seconds - 1;
    const bool is_last = &config == &answer.front.back();
    constexpr double kWorthTelling = 0.01;
    if (missing_bytes(question, config.peak_bytes) <= 0 || gain < kWorthTelling) continue;
    if (next != nullptr && !is_last) continue;
    next = &config;
    const double needed = planner::device_bytes(config.peak_bytes);
    const PlanRun roomy = run_with(question, config);
    helps.push_back({"memory of a device",
                     base::format_bytes(hardware.memory_bytes),
                     base::format_bytes(std::llround(needed)),
                     gain,
                     config.peak_bytes - first.peak_bytes,
                     {},
                     true,
                     verdict_of(roomy, config.peak_bytes, needed),
                     true});
    helps.back().speed = predicted_speed(roomy, calibration,
                                         planner::tokens_per_s_per_device(roomy, config.seconds));
  }
  std::stable_sort(helps.begin(), helps.end(),
                   [](const KnobGain& a, const KnobGain& b) { return *a.gain > *b.gain; });
  return helps;
}

/// The wall that the played parts of a step speak for.
base::Wall wall_of(const tuner::CostEstimate& estimate) {
  std::array<double, base::kNumWalls> shares{};
  for (const auto& [name, ns] : estimate.parts_ns) {
    base::add_share(name, static_cast<double>(ns) / static_cast<double>(estimate.step_ns), shares);
  }
  return base::binding_wall(shares);
}

}  // namespace

void play_best(const Calibration& calibration, bool has_records, PlanResult& result) {
  constexpr size_t kPlayed = 3;
  struct Played {
    tuner::PlayedStep step;
    double seconds = 0;
  };
  std::vector<Played> played(std::min(kPlayed, result.answer.best.size()));
  base::parallel_for(played.size(), [&](size_t i) {
    const auto start = std::chrono::steady_clock::now();
    played[i].step = planner::play_plan(run_with(result.question, result.answer.best[i]),
                                        calibration.rates, has_records && i == 0);
    played[i].seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  });
  for (size_t i = 0; i < played.size(); ++i) {
    tuner::PlayedStep& step = played[i].step;
    const base::Wall wall = wall_of(step.estimate);
    if (i > 0) {
      result.played_others.push_back({step.estimate.step_ns, wall, played[i].seconds});
      continue;
    }
    result.played = std::move(step);
    result.played_wall = wall;
    result.play_seconds = played[i].seconds;
    result.not_in_played = planner::not_played(run_with(result.question, result.answer.best[i]));
  }
}

void look_at_batches(const Calibration& calibration, PlanResult& result) {
  if (result.answer.best.empty()) return;
  const PlanQuestion& question = result.question;
  const PlanRun first = run_with(question, result.answer.best.front());
  const spec::PlanKnobs& k = first.knobs;
  // Virtual stages take micro-batches in rounds of as many as there are stages.
  const int64_t round = planner::num_virtual_stages(first) > 1 ? k.pp : 1;
  const double unit = static_cast<double>(k.micro_batch_size) * k.dp * static_cast<double>(round);
  std::set<int64_t> sizes = {first.global_batch_size};
  constexpr int64_t kLeastTokens = int64_t{1} << 20;
  constexpr int64_t kMostTokensOfStep = int64_t{16} << 20;
  for (int64_t tokens = kLeastTokens; tokens <= kMostTokensOfStep; tokens *= 2) {
    const double wanted = static_cast<double>(tokens) / static_cast<double>(first.seq_length);
    sizes.insert(std::llround(std::max(1.0, std::round(wanted / unit)) * unit));
  }
  for (const int64_t size : sizes) {
    PlanRun run = first;
    run.global_batch_size = size;
    if (planner::broken_rule(run) != nullptr) continue;
    if (missing_bytes(question, planner::predict_memory(run).peak_bytes()) > 0) continue;
    const double seconds = planner::predict_step(run, calibration.rates).seconds;
    Speed speed = predicted_speed(run, calibration, planner::tokens_per_s_per_device(run, seconds));
    const double tokens = seconds * speed.tokens_per_s.value;
    result.batches.push_back({size, inverse(tokens, speed.tokens_per_s), std::move(speed)});
  }
}

int64_t smallest_good_batch(const PlanResult& result) {
  constexpr double kAsGood = 0.98;
  double most = 0;
  for (const BatchSpeed& batch : result.batches)
    most = std::max(most, batch.speed.tokens_per_s.value);
  for (const BatchSpeed& batch : result.batches) {
    if (batch.speed.tokens_per_s.value >= kAsGood * most) return batch.global_batch_size;
  }
  return 0;
}

PlanResult make_plan(const PlanQuestion& question, const Calibration& calibration,
                     const std::optional<PlanRun>& against,
                     const spec::dialects::RunConfig* words) {
  PlanResult result;
  result.question = question;
  const auto start = std::chrono::steady_clock::now();
  result.answer = planner::search_plans(question, calibration.rates);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (against) {
    result.against = set_against(question, calibration, *against, words, result.answer);
  }
  const EstimateContext context = context_of(question);
  for (const planner::PlannedConfig& config : result.answer.best) {
    result.estimates.push_back(estimate_run(run_with(question, config), calibration, context));
  }
  if (!result.answer.best.empty()) {
    result.thumbs = opinions(question, result.answer);
    result.helps = helps_of(question, result.answer, calibration);
  }
  const std::string assumption = spec::model_assumption(*question.model);
  if (!assumption.empty()) result.assumptions.push_back(assumption);
  if (question.model->num_experts > 0) {
    result.assumptions.push_back(routing_assumption(question.load));
  }
  using spec::dialects::Dialect;
  const Dialect engine = question.is_of_megatron ? Dialect::megatron_lm : Dialect::torchtitan;
  result.assumptions.push_back(
      fmt::format("memory as {} {} holds it; rates: {}",
                  question.is_of_megatron ? "Megatron-Core with Transformer Engine" : "torchtitan",
                  spec::dialects::dialect_row(engine).release,
                  rates_text(calibration, *question.hardware, question.base.precision,
                             question.is_of_megatron)));
  return result;
}

}  // namespace moetune::sweeps

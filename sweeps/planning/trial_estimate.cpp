// The exact memory model and the played step, with what a run may differ from them.
#include "sweeps/planning/trial_estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/units.h"

namespace moetune::sweeps {
namespace {

using nlohmann::json;

/// Times the load that was asked about: as uneven as routing of the quick start's trials was.
constexpr double kLoadHigh = 2;
/// How far off a played step is that no trial has corrected, as logarithms. On two kinds of CPU the
/// quick start's trials took 0.5 to 1.03 times what is predicted, on an H100 and an H200 the model
/// that fills the card 0.65 and 0.7 times (docs/results.md, docs/gpu.md).
constexpr double kFaster = 0.70;
constexpr double kSlower = 0.20;

bool fits(int64_t bytes, const spec::TrialSpec& trial) {
  return trial.hardware.memory_bytes == 0 || bytes <= trial.hardware.memory_bytes;
}

std::string verdict_text(const TrialEstimate& estimate, const spec::TrialSpec& trial) {
  const int64_t capacity = trial.hardware.memory_bytes;
  if (capacity == 0) return "there is no limit";
  std::string text =
      fmt::format("{} of {}", name_of(estimate.verdict), base::format_bytes(capacity));
  if (trial.model.num_experts == 0) return text;
  return text + (estimate.load_that_fits > 0
                     ? fits_up_to(estimate.load_that_fits)
                     : std::string("; does not fit even with balanced routing"));
}

}  // namespace

TrialEstimate estimate_trial(const spec::TrialSpec& trial, double load) {
  const tuner::CompiledStep compiled(trial, {}, load);
  const auto peak_at = [&](double other) {
    return tuner::estimate_memory(trial, compiled, {}, other).peak_bytes;
  };
  TrialEstimate estimate;
  estimate.memory = tuner::estimate_memory(trial, compiled, {}, load);
  const auto worst =
      std::ranges::max_element(estimate.memory.ranks, {}, &tuner::RankMemory::peak_bytes);
  estimate.worst_rank = static_cast<int>(worst - estimate.memory.ranks.begin());
  const auto peak = static_cast<double>(estimate.memory.peak_bytes);
  estimate.peak_bytes = {peak, peak, static_cast<double>(peak_at(load * kLoadHigh))};
  estimate.verdict = fits(estimate.memory.peak_bytes, trial) ? Verdict::fits : Verdict::oom;
  estimate.load_that_fits = largest_load([&](double other) { return fits(peak_at(other), trial); });
  estimate.step = tuner::play_step(trial, compiled, {});
  const auto step_ns = static_cast<double>(estimate.step.step_ns);
  estimate.step_ns = {step_ns, step_ns * std::exp(-kFaster), step_ns * std::exp(kSlower)};
  const double tokens = static_cast<double>(trial.training.global_batch_size) *
                        static_cast<double>(trial.training.seq_length) /
                        static_cast<double>(trial.hardware.num_devices());
  estimate.tokens_per_s = inverse(tokens * 1e9, estimate.step_ns);
  estimate.tflops = scaled(estimate.tokens_per_s,
                           trial.model.training_flops_per_token(trial.training.seq_length) / 1e12);
  return estimate;
}

json to_json(const TrialEstimate& estimate, const spec::TrialSpec& trial) {
  json document = {
      {"knobs", spec::to_json(trial.knobs)},     {"worst_rank", estimate.worst_rank},
      {"verdict", name_of(estimate.verdict)},    {"load_that_fits", estimate.load_that_fits},
      {"step_parts_ns", estimate.step.parts_ns}, {"grade", tuner::name_of(estimate.step.grade)}};
  put_whole(document, "peak_allocated_bytes", estimate.peak_bytes);
  // The engine keeps nothing that it has freed.
  put_whole(document, "peak_reserved_bytes", estimate.peak_bytes);
  put_whole(document, "step_time_ns", estimate.step_ns);
  put(document, "tokens_per_s_per_gpu", estimate.tokens_per_s);
  put(document, "tflops_per_gpu", estimate.tflops);
  const tuner::GroupBytes& groups =
      estimate.memory.ranks[static_cast<size_t>(estimate.worst_rank)].group_bytes;
  for (size_t group = 0; group < groups.size(); ++group) {
    document["memory_parts_bytes"][name_of(static_cast<tuner::MemoryGroup>(group))] = groups[group];
  }
  return document;
}

std::string text_of(const TrialEstimate& estimate, const spec::TrialSpec& trial) {
  const auto ns = [](double value) { return base::format_ns(std::llround(value)); };
  std::string text =
      fmt::format("{} a step ({} to {}), {:.0f} tokens/s a GPU ({}: no trial has corrected it)\n",
                  ns(estimate.step_ns.value), ns(estimate.step_ns.low), ns(estimate.step_ns.high),
                  estimate.tokens_per_s.value, tuner::name_of(estimate.step.grade));
  std::vector<std::pair<int64_t, std::string>> parts;
  for (const auto& [name, part_ns] : estimate.step.parts_ns) parts.emplace_back(part_ns, name);
  std::ranges::sort(parts, std::greater{});
  for (const auto& [part_ns, name] : parts) {
    text += fmt::format("  {:<28} {:5.1f} %\n", name,
                        100 * static_cast<double>(part_ns) / estimate.step_ns.value);
  }
  const auto bytes = [](double count) { return base::format_bytes(std::llround(count)); };
  text += fmt::format("{} on rank {}, the fullest (up to {} with less even routing): {}\n",
                      bytes(estimate.peak_bytes.value), estimate.worst_rank,
                      bytes(estimate.peak_bytes.high), verdict_text(estimate, trial));
  const tuner::GroupBytes& groups =
      estimate.memory.ranks[static_cast<size_t>(estimate.worst_rank)].group_bytes;
  for (size_t group = 0; group < groups.size(); ++group) {
    if (groups[group] == 0) continue;
    text += fmt::format("  {:<28} {}\n", name_of(static_cast<tuner::MemoryGroup>(group)),
                        base::format_bytes(groups[group]));
  }
  return text;
}

}  // namespace moetune::sweeps

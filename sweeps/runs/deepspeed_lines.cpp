#include "sweeps/runs/deepspeed_lines.h"

#include <algorithm>

#include "sweeps/runs/log_collector.h"
#include "sweeps/runs/text_scan.h"

namespace moetune::sweeps::deepspeed_lines {
namespace {

using log_text::integer_behind;
using log_text::leading_integer;
using log_text::number_behind;

constexpr double kGibi = 1024.0 * 1024.0 * 1024.0;

}  // namespace

/// "epoch=0/micro_step=80/global_step=20, RunningAvgSamplesPerSec=312.5, CurrSamplesPerSec=...", of
/// 2022 "0/20, RunningAvgSamplesPerSec=...", before that "0/20, SamplesPerSec=...".
bool read_rate(std::string_view text, size_t at, LogCollector& log) {
  constexpr std::string_view kWord = "global_step=";
  const size_t word = text.rfind(kWord, at);
  const size_t slash = text.rfind('/', at);
  if (slash == std::string_view::npos) return false;
  const auto number = leading_integer(
      text.substr(word == std::string_view::npos ? slash + 1 : word + kWord.size()));
  if (!number) return false;
  StepLine step;
  step.step = *number;
  step.samples_per_s = number_behind(text.substr(at), "CurrSamplesPerSec=");
  log.add_step(step);
  const auto now = number_behind(text.substr(at), ", MemAllocated=");
  const auto peak = number_behind(text.substr(at), "MaxMemAllocated=");
  if (now) log.add_memory(log.rank(), MemoryKind::allocated, false, *now * kGibi, *number);
  if (peak) log.add_memory(log.rank(), MemoryKind::allocated, true, *peak * kGibi, *number);
  return true;
}

/// "steps: 20 loss: 9.1250 iter time (s): 0.812 samples/sec: 315.271"
bool read_pipeline(std::string_view text, size_t at, LogCollector& log) {
  const size_t word = text.rfind("steps: ", at);
  if (word == std::string_view::npos) return false;
  const auto number = leading_integer(text.substr(word + 7));
  if (!number) return false;
  StepLine step;
  step.step = *number;
  step.loss = number_behind(text.substr(word), "loss: ");
  step.step_time_s = number_behind(text.substr(at), "iter time (s): ");
  step.samples_per_s = number_behind(text.substr(at), "samples/sec: ");
  if (!step.step_time_s) return false;
  log.add_step(step);
  return true;
}

/// "[Rank 0] step=20, skipped=0, lr=[2e-05], mom=[(0.9, 0.95)]": skipped since the start.
bool read_step(std::string_view text, size_t at, LogCollector& log) {
  const size_t word = text.rfind("step=", at);
  if (word == std::string_view::npos) return false;
  const auto number = leading_integer(text.substr(word + 5));
  const auto skipped = integer_behind(text.substr(at), "skipped=");
  if (!number || !skipped || *skipped < 0) return false;
  StepLine step;
  step.step = *number;
  step.learning_rate = number_behind(text.substr(at), "lr=[");
  step.num_skipped = std::max(0.0, static_cast<double>(*skipped) - log.now().steps.num_skipped());
  log.add_step(step);
  return true;
}

/// "MA 61.25 GB Max_MA 70.5 GB CA 72.0 GB Max_CA 72 GB"
bool read_memory(std::string_view text, size_t at, LogCollector& log) {
  const auto allocated = number_behind(text.substr(at), "Max_MA ");
  const auto reserved = number_behind(text.substr(at), "Max_CA ");
  if (allocated) log.add_memory(log.rank(), MemoryKind::allocated, true, *allocated * kGibi, -1);
  if (reserved) log.add_memory(log.rank(), MemoryKind::reserved, true, *reserved * kGibi, -1);
  return allocated.has_value();
}

}  // namespace moetune::sweeps::deepspeed_lines

#include "sweeps/runs/token_rate.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/median.h"
#include "sweeps/runs/echoed_config.h"

namespace moetune::sweeps {
namespace {

/// Whether all lines about steps have the same of what they say, and nothing else says that it
/// changes.
bool is_batch_fixed(const RunFacts& facts) {
  const auto is_same = [&](StepMember member) {
    const StepLine* first = nullptr;
    for (const StepLine& line : facts.steps) {
      if (!(line.*member)) continue;
      if (first == nullptr) first = &line;
      if (line.*member != first->*member) return false;
    }
    return true;
  };
  if (!is_same(&StepLine::global_batch_size) || !is_same(&StepLine::seq_length)) return false;
  const bool is_logged = std::ranges::any_of(
      facts.steps, [](const StepLine& line) { return line.global_batch_size.has_value(); });
  return is_logged || !has_growing_batch(facts.config.value_or(spec::dialects::RunConfig{}), facts);
}

double value_or_none(const std::optional<int64_t>& size) {
  return static_cast<double>(size.value_or(0));
}

/// The median over lines, each by its own batch; 0: they do not say it.
double tokens_per_s_by_lines(const RunFacts& facts) {
  std::vector<double> rates;
  for (size_t i = 0; i < facts.step_time->steady_batches.size(); ++i) {
    const StepBatch& batch = facts.step_time->steady_batches[i];
    const double length = batch.seq_length > 0 ? batch.seq_length : value_or_none(facts.seq_length);
    const double tokens = batch.num_sequences * length;
    if (tokens > 0) rates.push_back(tokens / facts.step_time->steady_s[i]);
  }
  return rates.empty() ? 0 : base::median(rates);
}

}  // namespace

bool has_growing_batch(const spec::dialects::RunConfig& config, const RunFacts& facts) {
  constexpr std::array<std::string_view, 2> kWords = {"rampup", "batch_size_schedule"};
  const auto grows = [&](std::string key, std::string_view value) {
    std::ranges::replace(key, '-', '_');
    const bool is_off = is_absent(value) || value == "0";
    return !is_off && std::ranges::any_of(kWords, [&](std::string_view word) {
      return key.find(word) != std::string::npos;
    });
  };
  return std::ranges::any_of(config.stated,
                             [&](const auto& said) { return grows(said.key, said.value); }) ||
         std::ranges::any_of(facts.echoed.settings,
                             [&](const auto& said) { return grows(said.key, said.value); });
}

void derive_tokens(std::optional<double> traced_s, RunFacts& facts) {
  const double world = value_or_none(facts.world_size);
  if (facts.tokens_per_s_per_gpu || !(world > 0)) return;
  double rate = 0;
  if (is_batch_fixed(facts)) {
    const double tokens = facts.tokens_per_step.value_or(value_or_none(facts.global_batch_size) *
                                                         value_or_none(facts.seq_length));
    const double step_s = facts.step_time ? facts.step_time->median_s : traced_s.value_or(0);
    if (step_s > 0) rate = tokens / step_s;
  } else if (facts.step_time) {
    rate = tokens_per_s_by_lines(facts);
  }
  if (!(rate > 0)) return;
  facts.tokens_per_s_per_gpu = rate / world;
  facts.are_tokens_derived = true;
}

}  // namespace moetune::sweeps

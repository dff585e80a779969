#include "profiler/analysis/parts_verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>

#include "kernels/base/units.h"

namespace moetune::profiler {
namespace {

using base::kLeastBindingRatio;

double ns_of(const StepVerdict& part) { return static_cast<double>(part.step_ns); }

StepVerdict mean_of(std::span<const StepVerdict> parts) {
  StepVerdict mean;
  double all_ns = 0;
  for (const StepVerdict& part : parts) {
    mean.step_ns += part.step_ns;
    mean.num_lost += part.num_lost;
    all_ns += ns_of(part);
  }
  for (const StepVerdict& part : parts) {
    const double weight = all_ns > 0 ? ns_of(part) / all_ns : 1 / static_cast<double>(parts.size());
    const auto add = [&](double& sum, double ratio) { sum += weight * ratio; };
    for (size_t i = 0; i < mean.ceilings.size(); ++i) add(mean.ceilings[i], part.ceilings[i]);
    for (size_t i = 0; i < mean.sub_ceilings.size(); ++i) {
      add(mean.sub_ceilings[i], part.sub_ceilings[i]);
    }
    add(mean.device_shared_ratio, part.device_shared_ratio);
    add(mean.recompute_ratio, part.recompute_ratio);
    add(mean.inferred_ratio, part.inferred_ratio);
  }
  return mean;
}

/// Where no label gains enough alone in all parts: one that does with what hides it in some.
void find_hidden(std::span<const StepVerdict> parts, StepVerdict& mean) {
  std::array<double, kNumWalls> ratios = mean.ceilings;
  double all_ns = 0;
  for (const StepVerdict& part : parts) all_ns += ns_of(part);
  for (const StepVerdict& part : parts) {
    if (!part.is_hidden() || all_ns <= 0) continue;
    const double more = std::max(0.0, part.joint_ratio - part.ceiling_ratio());
    ratios[static_cast<size_t>(part.label)] += ns_of(part) / all_ns * more;
  }
  mean.label = label_of(ratios);
  if (base::is_recoverable(mean.label)) mean.joint_ratio = ratios[static_cast<size_t>(mean.label)];
}

/// None where no part has the label.
const StepVerdict* longest_by(std::span<const StepVerdict> parts, Wall label) {
  const StepVerdict* longest = nullptr;
  const auto loss_ns = [](const StepVerdict& part) {
    return std::max(part.ceiling_ratio(), part.joint_ratio) * ns_of(part);
  };
  for (const StepVerdict& part : parts) {
    if (part.label != label) continue;
    if (longest == nullptr || loss_ns(*longest) < loss_ns(part)) longest = &part;
  }
  return longest;
}

SubCause largest_cause_of(const StepVerdict& mean) {
  SubCause largest = SubCause::unexplained;
  double most = -1;
  for (const SubCauseRow& row : sub_causes()) {
    const double own = mean.sub_ceilings[static_cast<size_t>(row.id)];
    if (row.label != mean.label || own <= most) continue;
    most = own;
    largest = row.id;
  }
  return largest;
}

std::string summary_of(const StepVerdict& mean) {
  const std::string ratio = base::format_ratio(mean.ceiling_ratio());
  if (mean.label == Wall::unknown) {
    return fmt::format(
        "unknown: nothing in the records explains the waits in {} of the replayed time", ratio);
  }
  if (mean.label == Wall::compute) {
    return fmt::format("compute: {} of the replayed time; nothing else would gain {}", ratio,
                       base::format_ratio(kLeastBindingRatio));
  }
  if (mean.is_hidden()) return text_of_hidden(mean);
  return fmt::format("{} ({}): without it what was replayed would be {} shorter",
                     name_of(mean.label), row_of(mean.sub_cause).name, mean.ceiling_text());
}

}  // namespace

StepsVerdict verdict_of_parts(std::span<const StepVerdict> parts) {
  StepsVerdict all;
  StepVerdict& verdict = all.verdict = mean_of(parts);
  verdict.label = label_of(verdict.ceilings);
  if (verdict.label == Wall::compute) find_hidden(parts, verdict);
  verdict.sub_cause = largest_cause_of(verdict);
  if (const StepVerdict* longest = longest_by(parts, verdict.label)) {
    verdict.sub_cause = longest->sub_cause;
    verdict.rank = longest->rank;
    verdict.link = longest->link;
    if (verdict.is_hidden()) verdict.hidden_by = longest->hidden_by;
  }
  verdict.summary = summary_of(verdict);
  const auto ceiling_of = [&](const StepVerdict& part) {
    return part.ceilings[static_cast<size_t>(verdict.label)];
  };
  all.num_steps = static_cast<int>(parts.size());
  all.num_agreeing =
      static_cast<int>(std::ranges::count(parts, verdict.label, &StepVerdict::label));
  all.low_ratio = ceiling_of(*std::ranges::min_element(parts, {}, ceiling_of));
  all.high_ratio = ceiling_of(*std::ranges::max_element(parts, {}, ceiling_of));
  return all;
}

}  // namespace moetune::profiler

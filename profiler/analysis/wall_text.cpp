// One sentence for each wall, filled with the figures behind it.
#include "profiler/analysis/wall_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "kernels/base/step_parts.h"
#include "kernels/base/units.h"

namespace moetune::profiler {
namespace {

using base::format_bytes;
using base::format_ns;
using base::format_ratio;

std::string over_ranks(int64_t num_ranks) {
  return num_ranks == 1 ? std::string("on its one rank")
                        : fmt::format("on average over {} ranks", num_ranks);
}

std::string mostly(const DominantGroup& dominant) {
  return dominant.op.empty() ? std::string() : fmt::format(" (mostly {})", dominant.op);
}

std::string communication_subject(const DominantGroup& dominant) {
  if (dominant.is_bubble && dominant.wait_ns > dominant.transfer_ns) {
    return "Pipeline bubbles, in which a stage waits for another one, take";
  }
  const base::GroupRow* row = base::find_group(dominant.group);
  if (row != nullptr && row->text[0] != '\0') {
    std::string text = row->text;
    text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
    return fmt::format("{}{} takes", text, mostly(dominant));
  }
  const std::string adjective =
      row == nullptr ? fmt::format("'{}'", dominant.group) : std::string(row->adjective);
  if (dominant.wait_ns > dominant.transfer_ns) {
    return fmt::format("Waiting for late ranks in {} communication{} takes", adjective,
                       mostly(dominant));
  }
  return fmt::format("Blocking {} communication{} takes", adjective, mostly(dominant));
}

std::string ceiling(const WallBound& bound) {
  return fmt::format("removing all of it would raise throughput by at most {}",
                     format_ratio(bound.gain_ceiling_ratio));
}

std::string out_of_memory(const MemoryFacts& memory) {
  if (!memory.oom_reason.empty()) return memory.oom_reason;
  return fmt::format("Out of memory: {} were in use of {}.", format_bytes(memory.peak_bytes),
                     format_bytes(memory.capacity_bytes));
}

}  // namespace

std::string wall_summary(const WallEvidence& verdict, const DominantGroup& dominant,
                         const MemoryFacts& memory, const WallOptions& options) {
  if (memory.is_oom) return out_of_memory(memory);
  const WallBound& bound = verdict.bounds[static_cast<size_t>(verdict.wall)];
  const std::string where = over_ranks(verdict.num_ranks);
  switch (verdict.wall) {
    case Wall::memory:
      return fmt::format(
          "Recomputation, which is only done because memory is short, takes {} of the step {}; {}.",
          format_ratio(bound.mean_ratio), where, ceiling(bound));
    case Wall::host:
      return fmt::format(
          "For {} of the step {} no compute runs because the host has not launched it yet; {}.",
          format_ratio(bound.mean_ratio), where, ceiling(bound));
    case Wall::communication: {
      const std::string first = fmt::format("{} {} of the step {}", communication_subject(dominant),
                                            format_ratio(verdict.dominant_ratio), where);
      if (bound.mean_ratio > verdict.dominant_ratio * 1.02) {
        return fmt::format("{}; all blocking communication together takes {}, and {}.", first,
                           format_ratio(bound.mean_ratio), ceiling(bound));
      }
      return fmt::format("{}; {}.", first, ceiling(bound));
    }
    case Wall::compute:
      break;
  }
  const auto largest = std::max_element(
      verdict.bounds.begin(), verdict.bounds.end(),
      [](const WallBound& a, const WallBound& b) { return a.mean_ratio < b.mean_ratio; });
  std::string compute = fmt::format("Compute kernels run for {} of the step {}",
                                    format_ratio(verdict.compute_ratio()), where);
  const double shared_ratio = verdict.ratio_of(base::StepPart::device_shared);
  if (shared_ratio > 0) {
    compute += fmt::format(", {} takes {}",
                           base::text_of({&base::row_of(base::StepPart::device_shared), {}}),
                           format_ratio(shared_ratio));
  }
  if (largest->mean_ns == 0) return fmt::format("{}; nothing else costs time.", compute);
  return fmt::format("{}; no other cost reaches {} (largest: {}, {}).", compute,
                     format_ratio(options.threshold_ratio), name_of(largest->wall),
                     format_ratio(largest->mean_ratio));
}

std::string bound_text(const WallBound& bound, int64_t num_ranks, int32_t slowest_rank) {
  static constexpr std::array<const char*, kNumWalls> kSubjects = {
      "Blocking communication and pipeline bubbles", "Compute not yet launched", "Recomputation",
      "Recoverable compute"};
  const std::string slowest =
      num_ranks == 1
          ? std::string()
          : fmt::format(", {} on rank {}, the slowest", format_ns(bound.slowest_ns), slowest_rank);
  return fmt::format("{}: {} ({} of the step) {}{}; gain ceiling {}.",
                     kSubjects[static_cast<size_t>(bound.wall)], format_ns(bound.mean_ns),
                     format_ratio(bound.mean_ratio), over_ranks(num_ranks), slowest,
                     format_ratio(bound.gain_ceiling_ratio));
}

std::string dominant_text(const DominantGroup& dominant, int64_t step_ns) {
  const auto of_step = [step_ns](int64_t ns) {
    return format_ratio(step_ns == 0 ? 0.0
                                     : static_cast<double>(ns) / static_cast<double>(step_ns));
  };
  return fmt::format(
      "Group '{}' per rank and step: volume {} of device work, exposed {} ({} of the step), "
      "blocking {} ({}), of which {} {}.",
      dominant.group, format_ns(dominant.volume_ns), format_ns(dominant.exposed_ns),
      of_step(dominant.exposed_ns), format_ns(dominant.transfer_ns + dominant.wait_ns),
      of_step(dominant.transfer_ns + dominant.wait_ns), format_ns(dominant.wait_ns),
      dominant.is_bubble ? "is pipeline bubble" : "is waiting for a late participant");
}

}  // namespace moetune::profiler

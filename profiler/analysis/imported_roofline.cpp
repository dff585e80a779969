#include "profiler/analysis/imported_roofline.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/base/units.h"
#include "profiler/analysis/recording_advice.h"

namespace moetune::profiler {

void ImportedRoofline::add(const ImportedTrace& trace, const std::vector<uint32_t>& ops,
                           const WorkClasses& wide, const DevicePeaks& peaks) {
  auto work = trace.works.begin();
  for (const uint32_t row : ops) {
    const ImportedOp& op = trace.ops[row];
    const bool is_kernel = op.kind == ActivityKind::kernel || op.kind == ActivityKind::graph;
    if (!is_kernel || wide.of(op) == WorkClass::communication) continue;
    const auto ns = static_cast<double>(op.duration_ns());
    all_ns += ns;
    while (work != trace.works.end() && work->op < row) ++work;
    if (work == trace.works.end() || work->op != row || !peaks.is_known()) continue;
    const double peak = work->is_eight_bit ? peaks.eight_bit_flops_per_s : peaks.flops_per_s;
    if (peak <= 0) continue;
    const double flops_ns = 1e9 * static_cast<double>(work->flops) / peak;
    const double bytes_ns = 1e9 * static_cast<double>(work->bytes) / peaks.memory_bytes_per_s;
    const double least_ns = std::min(ns, std::max(flops_ns, bytes_ns));
    known_ns += ns;
    over_ns += ns - least_ns;
    bandwidth_ns += std::max(0.0, least_ns - flops_ns);
  }
}

std::string why_unsplit(std::span<const ImportedTrace> traces, const ImportedRoofline& roofline,
                        const DevicePeaks& peaks) {
  constexpr double kLeastKnown = 0.5;
  if (std::ranges::all_of(traces, [](const auto& trace) { return trace.works.empty(); })) {
    return why_no_shapes(traces);
  }
  if (!peaks.is_known()) return "the device's peaks are not known (--hardware)";
  if (roofline.known_ratio() < kLeastKnown) {
    return fmt::format("only {} of the kernels' time is of operators whose shapes are known",
                       base::format_ratio(roofline.known_ratio()));
  }
  return {};
}

}  // namespace moetune::profiler

#include "profiler/analysis/imported_roofline.h"

#include <algorithm>

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

}  // namespace moetune::profiler

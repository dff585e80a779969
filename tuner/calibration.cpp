// Least squares of measured time over predicted work, for each op label.
#include "tuner/calibration.h"

#include <algorithm>
#include <cmath>

namespace moetune::tuner {
namespace {

using plan::OpKind;

bool is_fitted(OpKind kind) {
  return kind == OpKind::compute || kind == OpKind::memory || kind == OpKind::dispatcher;
}

/// Roofline without the floor; a machine without peaks is measured in FLOPs and bytes themselves.
double work_of(const spec::HardwareSpec& hardware, plan::Work work, double flops, double bytes,
               double row_flops) {
  if (hardware.peak_flops_per_s <= 0 && hardware.memory_bytes_per_s <= 0) return flops + bytes;
  return plan::work_ns(hardware, work, flops, bytes, row_flops);
}

}  // namespace

Calibration::Fit Calibration::fitted(std::vector<Sample> samples) {
  Fit fit;
  double n = 0;
  double sum_x = 0;
  double sum_y = 0;
  double sum_xx = 0;
  double sum_xy = 0;
  double min_x = samples.empty() ? 0 : samples.front().work_ns;
  double max_x = min_x;
  for (const Sample& s : samples) {
    n += s.count;
    sum_x += s.count * s.work_ns;
    sum_y += s.count * s.duration_ns;
    sum_xx += s.count * s.work_ns * s.work_ns;
    sum_xy += s.count * s.work_ns * s.duration_ns;
    min_x = std::min(min_x, s.work_ns);
    max_x = std::max(max_x, s.work_ns);
  }
  fit.samples = std::move(samples);
  if (n <= 0) return fit;
  fit.is_set = true;
  const double variance = sum_xx - sum_x * sum_x / n;
  // Sizes within a few per cent of each other say nothing about a fixed part.
  const bool has_two_sizes = max_x > 1.3 * min_x && variance > 0;
  fit.slope = has_two_sizes ? (sum_xy - sum_x * sum_y / n) / variance : 0;
  fit.fixed_ns = has_two_sizes ? (sum_y - fit.slope * sum_x) / n : 0;
  if (!has_two_sizes || fit.fixed_ns < 0) {
    fit.fixed_ns = 0;
    fit.slope = sum_xx > 0 ? sum_xy / sum_xx : 0;
  }
  if (fit.slope <= 0) {
    fit.slope = 0;
    fit.fixed_ns = sum_y / n;
  }
  return fit;
}

void Calibration::add(const spec::HardwareSpec& hardware,
                      const std::map<std::string, TrialOutcome::OpTime>& op_times) {
  bool has_any = false;
  for (const plan::OpRow& row : plan::op_table()) {
    if (!is_fitted(row.kind)) continue;
    for (size_t p = 0; p < kNumPasses; ++p) {
      const auto pass = static_cast<plan::Pass>(p);
      const auto found = op_times.find(plan::op_label(row.id, pass));
      if (found == op_times.end() || found->second.count <= 0) continue;
      const auto count = static_cast<double>(found->second.count);
      const Sample sample{
          count,
          work_of(hardware, row.work, static_cast<double>(found->second.flops) / count,
                  static_cast<double>(found->second.bytes) / count,
                  static_cast<double>(found->second.row_flops) / count),
          static_cast<double>(found->second.duration_ns) / count};
      if (!std::isfinite(sample.duration_ns) || sample.duration_ns < 0) continue;
      has_any = true;
      Fit& fit = fits_[index_of(row.id, pass)];
      fit.samples.push_back(sample);
      fit = fitted(std::move(fit.samples));
      Fit& kind = kinds_[static_cast<size_t>(row.kind)];
      kind.samples.push_back(sample);
    }
  }
  for (Fit& kind : kinds_) kind = fitted(std::move(kind.samples));
  if (has_any) ++num_trials_;
}

int64_t Calibration::duration_ns(const spec::HardwareSpec& hardware, plan::Op op, plan::Pass pass,
                                 const plan::OpCost& cost) const {
  const Fit* fit = &fits_[index_of(op, pass)];
  if (!fit->is_set) fit = &kinds_[static_cast<size_t>(plan::op_row(op).kind)];
  if (!fit->is_set) return plan::roofline_ns(hardware, op, cost);
  const double work = work_of(hardware, plan::op_row(op).work, static_cast<double>(cost.flops),
                              static_cast<double>(cost.bytes), static_cast<double>(cost.row_flops));
  return static_cast<int64_t>(fit->fixed_ns + fit->slope * work);
}

}  // namespace moetune::tuner

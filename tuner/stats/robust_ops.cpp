// Medians of what is alike, lines over rows where sizes differ, and the probe's reading as a speed.
#include "tuner/stats/robust_ops.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/base/error.h"
#include "profiler/analysis/stats.h"

namespace moetune::tuner {
namespace {

/// Fewer medians say nothing of how far they lie apart.
constexpr size_t kFewestGroups = 3;

using StepOfRank = std::pair<int, int>;

/// Standard error of the middle of what was measured in several steps and ranks, by how far these
/// lie apart as wholes; 0 where there are too few.
double error_between(const std::map<StepOfRank, std::vector<double>>& groups) {
  if (groups.size() < kFewestGroups) return 0.0;
  std::vector<double> medians;
  medians.reserve(groups.size());
  for (const auto& [step_of_rank, values] : groups) medians.push_back(profiler::median(values));
  return profiler::kMedianError * profiler::kMadToDeviation *
         profiler::median_absolute_deviation(medians) /
         std::sqrt(static_cast<double>(medians.size()));
}

}  // namespace

MachineSpeed machine_speed(const std::vector<ProbeSample>& probes, double usual_ns) {
  MOETUNE_CHECK(std::isfinite(usual_ns) && usual_ns > 0, "the probe usually takes {} ns", usual_ns);
  if (probes.empty()) return {};
  std::vector<double> ratios;
  std::map<StepOfRank, std::vector<double>> groups;
  for (const ProbeSample& probe : probes) {
    MOETUNE_CHECK(std::isfinite(probe.duration_ns) && probe.duration_ns > 0, "a probe took {} ns",
                  probe.duration_ns);
    ratios.push_back(probe.duration_ns / usual_ns);
    groups[{probe.step, probe.rank}].push_back(ratios.back());
  }
  const profiler::MedianInterval middle = profiler::median_interval(std::move(ratios));
  const double reach = profiler::kNormal95 * error_between(groups);
  return {middle.median,
          // The slowness stays above 0.
          std::max(std::min(middle.low, middle.median - reach), 0.01 * middle.median),
          std::max(middle.high, middle.median + reach)};
}

RobustOps::Centre RobustOps::slope_of(Samples samples) {
  std::stable_sort(samples.begin(), samples.end(),
                   [](const OpSample* a, const OpSample* b) { return a->rows < b->rows; });
  const size_t half = samples.size() / 2;
  const size_t first_above = samples.size() - half;
  std::vector<double> slopes;
  for (size_t i = 0; i < half; ++i) {
    const OpSample& below = *samples[i];
    const OpSample& above = *samples[first_above + i];
    if (above.rows <= below.rows) continue;
    slopes.push_back((above.duration_ns - below.duration_ns) / (above.rows - below.rows));
  }
  if (slopes.empty()) {
    const double rows = samples.front()->rows;
    if (rows <= 0) return {};
    std::vector<double> durations;
    for (const OpSample* sample : samples) durations.push_back(sample->duration_ns);
    const double per_row = profiler::median(std::move(durations)) / rows;
    return {per_row, per_row, per_row};
  }
  const profiler::MedianInterval slope = profiler::median_interval(std::move(slopes));
  return {std::max(0.0, slope.median), std::max(0.0, slope.low), std::max(0.0, slope.high)};
}

double RobustOps::Line::at(double rows) const {
  return std::max(0.0, level_ns + slope.value * (rows - middle_rows));
}

RobustOps::Centre RobustOps::ratio_of(const Samples& samples, const Line& line) {
  std::vector<double> ratios;
  std::map<StepOfRank, std::vector<double>> groups;
  for (const OpSample* sample : samples) {
    const double expected = line.at(sample->rows);
    if (expected <= 0) continue;
    ratios.push_back(sample->duration_ns / expected);
    groups[{sample->step, sample->rank}].push_back(ratios.back());
  }
  if (ratios.empty()) return {1, 1, 1};
  const profiler::MedianInterval middle = profiler::median_interval(std::move(ratios));
  const double reach = profiler::kNormal95 * error_between(groups);
  return {1, std::min(middle.low, 1 - reach), std::max(middle.high, 1 + reach)};
}

RobustOps::Line RobustOps::line_of(const Samples& samples) {
  Line line;
  line.num_samples = static_cast<int64_t>(samples.size());
  std::vector<double> rows;
  for (const OpSample* sample : samples) rows.push_back(sample->rows);
  line.middle_rows = profiler::median(std::move(rows));
  line.slope = slope_of(samples);
  std::vector<double> levels;
  for (const OpSample* sample : samples) {
    levels.push_back(sample->duration_ns - line.slope.value * (sample->rows - line.middle_rows));
  }
  line.level_ns = profiler::median(std::move(levels));
  line.ratio = ratio_of(samples, line);
  return line;
}

RobustOps::RobustOps(const std::vector<OpSample>& samples, const MachineSpeed& speed)
    : speed_(speed) {
  MOETUNE_CHECK(speed.low > 0 && speed.slowness >= speed.low && speed.high >= speed.slowness &&
                    std::isfinite(speed.high),
                "a machine that is {} ({} to {}) times slower than usual", speed.slowness,
                speed.low, speed.high);
  std::map<OpClass, Samples> classes;
  for (const OpSample& sample : samples) {
    MOETUNE_CHECK(std::isfinite(sample.duration_ns) && sample.duration_ns >= 0 &&
                      std::isfinite(sample.rows) && sample.rows >= 0,
                  "{}: {} ns for {} rows", sample.op.label, sample.duration_ns, sample.rows);
    classes[sample.op].push_back(&sample);
  }
  for (const auto& [op, alike] : classes) lines_[op] = line_of(alike);
}

std::optional<OpDuration> RobustOps::duration(const OpClass& op, double rows) const {
  const auto found = lines_.find(op);
  if (found == lines_.end()) return std::nullopt;
  const Line& line = found->second;
  const double off = rows - line.middle_rows;
  const double at = line.at(rows);
  // The line as a whole and its slope err independently, as the level is taken in the middle.
  const double slope_below = line.slope.value - (off > 0 ? line.slope.low : line.slope.high);
  const double slope_above = (off > 0 ? line.slope.high : line.slope.low) - line.slope.value;
  const double low = at - std::hypot(at * (1 - line.ratio.low), slope_below * off);
  const double high = at + std::hypot(at * (line.ratio.high - 1), slope_above * off);
  return OpDuration{at / speed_.slowness, std::max(0.0, low) / speed_.high, high / speed_.low,
                    line.num_samples};
}

}  // namespace moetune::tuner

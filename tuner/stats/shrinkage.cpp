// Precision-weighted means; see shrinkage.h.
#include "tuner/stats/shrinkage.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "kernels/base/error.h"
#include "profiler/analysis/stats.h"

namespace moetune::tuner {
namespace {

constexpr double kNormal95 = 1.96;
constexpr size_t kFewestPredictions = 4;
/// With fewer: a factor of e either way is within four of these.
constexpr double kUnknownSpread = 0.25;
constexpr double kLeastSpread = 0.02;

}  // namespace

void PredictionErrors::add(double predicted_log_gain, const LogGain& measured) {
  errors_.push_back(std::abs(measured.mean - predicted_log_gain));
  variances_.push_back(measured.error() * measured.error());
}

double PredictionErrors::spread() const {
  if (errors_.size() < kFewestPredictions) return kUnknownSpread;
  const double seen = profiler::kMadToDeviation * profiler::median(errors_);
  const double variance = seen * seen - profiler::median(variances_);
  return std::max(kLeastSpread, std::sqrt(std::max(0.0, variance)));
}

LogGain shrunk(const std::vector<LogGain>& measured, double predicted_log_gain, double spread) {
  MOETUNE_CHECK(!measured.empty() && spread > 0, "a gain of {} measurements, spread {}",
                measured.size(), spread);
  double precision = 1 / (spread * spread);
  double sum = predicted_log_gain * precision;
  LogGain result;
  for (const LogGain& gain : measured) {
    const double error = std::max(gain.error(), 1e-12);
    precision += 1 / (error * error);
    sum += gain.mean / (error * error);
    result.noise = std::max(result.noise, gain.noise);
  }
  result.mean = sum / precision;
  const double reach = kNormal95 / std::sqrt(precision);
  result.low = result.mean - reach;
  result.high = result.mean + reach;
  return result;
}

}  // namespace moetune::tuner

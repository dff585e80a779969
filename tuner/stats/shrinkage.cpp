// Means weighted by precision, of measurement and prediction, and the spread between both.
#include "tuner/stats/shrinkage.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "kernels/base/error.h"
#include "profiler/analysis/stats.h"

namespace moetune::tuner {
namespace {

/// Beyond this, measurement and prediction contradict each other: of 16,000 that agree, one is so
/// far off.
constexpr double kMostDeviations = 4;
constexpr size_t kFewestPredictions = 4;
/// The spread with fewer predictions: a factor of e either way is within four of these.
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
  LogGain result;
  double precision = 0;
  double sum = 0;
  for (const LogGain& gain : measured) {
    const double error = std::max(gain.error(), 1e-12);
    precision += 1 / (error * error);
    sum += gain.mean / (error * error);
    result.noise = std::max(result.noise, gain.noise);
  }
  // So wide that what was measured lies within so many deviations.
  const double least = (sum / precision - predicted_log_gain) / kMostDeviations;
  const double variance = std::max(spread * spread, least * least - 1 / precision);
  precision += 1 / variance;
  sum += predicted_log_gain / variance;
  result.mean = sum / precision;
  const double reach = profiler::kNormal95 / std::sqrt(precision);
  result.low = result.mean - reach;
  result.high = result.mean + reach;
  return result;
}

}  // namespace moetune::tuner

// Rates from measured runs: least squares on the logarithm of throughput, with priors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tuner/planner/step_time.h"

namespace moetune::tuner::planner {

/// A run with what it measured.
struct MeasuredRun {
  const PreparedStep* step = nullptr;
  TimeContext context;
  double tokens_per_s = 0;  ///< of one device
  double weight = 1;
};

struct FittedRate {
  std::string name;
  double value = 0;
  double low = 0;   ///< of an 80 % interval
  double high = 0;  //
};

struct Fit {
  Rates rates;
  std::vector<FittedRate> fitted;
  double median_error = 0;  ///< |ln(predicted / measured)|, of the runs that were fitted
};

/// ln(predicted / measured).
double log_error(const MeasuredRun& run, const Rates& rates);

/// What runs of one kind take over what the rates say.
struct CaseFit {
  double factor = 1;
  double low = 1;   ///< of an 80 % interval
  double high = 1;  //
};

/// Weighted mean of the logarithms (Huber's rule as below), drawn towards 0 as if runs of the
/// weight `prior` had shown none. `rates` without factors of cases.
CaseFit fit_case(const std::vector<MeasuredRun>& runs, const Rates& rates, double prior);

/// Levenberg-Marquardt steps on the logarithms of the rates with a prior, residuals weighed by
/// Huber's rule beyond 0.15. Intervals follow from the curvature at the end, residuals being of
/// their own spread. Deterministic.
Fit fit_rates(const std::vector<MeasuredRun>& runs, const Rates& start = {});

/// Puts what a probe of one device has measured (HardwareSpec::efficiency and half_rows, in 16
/// bits) in the place of that device's rates and returns them. A probe times kernels alone, not
/// beside those of a step: the intervals are a tenth to both sides, which is an assumption. What
/// was not measured (a share of 1) or is out of the rate's range is left. Empty: nothing was taken.
std::vector<FittedRate> take_probed(const spec::HardwareSpec& hardware, Rates& rates);

}  // namespace moetune::tuner::planner

// What a gain is worth when it is the best of many that were tried.
//
// The largest of many noisy measurements is too large: whoever picks it is disappointed later (the
// optimizer's curse; Smith and Winkler 2006, "The Optimizer's Curse: Skepticism and Postdecision
// Surprise in Decision Analysis"). Their remedy is used here. Before a measured gain is judged, it
// is drawn towards the gain that the cost model predicted. The larger its noise is, compared with
// the errors that predictions have shown, the further it is drawn. Selection then needs no other
// correction (Dawid 1994, "Selection paradoxes of Bayesian inference").
//
// Thresholds are not corrected instead, as Benjamini and Hochberg do, for three reasons. A search
// decides one by one and does not know how many candidates will follow. It has a prediction for
// each. And the size of the gain is corrected, too, not only the decision. On a quiet machine all
// this changes nothing. Where noise hides everything, the prediction decides, within its errors.
#pragma once

#include <vector>

#include "tuner/stats/run_comparison.h"

namespace moetune::tuner {

/// How far predictions of gains have been off in one search.
class PredictionErrors {
 public:
  void add(double predicted_log_gain, const LogGain& measured);
  void clear() { errors_.clear(), variances_.clear(); }
  /// Robust standard deviation of true gains around their predictions; the noise of the
  /// measurements is taken out. Wide while few are known, and never below a bound that keeps
  /// predictions from outweighing measurements.
  [[nodiscard]] double spread() const;

 private:
  std::vector<double> errors_;  ///< absolute
  std::vector<double> variances_;
};

/// The best estimate of one gain from its prediction and one or more independent measurements. If
/// both can hardly be true, the spread of the prediction is widened until they agree: a prior has
/// to give way to data that contradict it (Dawid 1973, "Posterior expectations for large
/// observations"), and the cost model may not know what is special about one configuration.
LogGain shrunk(const std::vector<LogGain>& measured, double predicted_log_gain, double spread);

}  // namespace moetune::tuner

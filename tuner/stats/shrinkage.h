// What a gain is worth when it is the best of many that were tried.
//
// Of many noisy measurements the largest is too large: whoever picks it is disappointed later (the
// optimizer's curse; Smith and Winkler 2006, "The Optimizer's Curse: Skepticism and Postdecision
// Surprise in Decision Analysis"). Their remedy is taken here: before it is judged, each measured
// gain is drawn towards what the cost model predicted, by as much as its noise is larger than the
// errors that predictions are seen to have. Selection then needs no further correction (Dawid 1994,
// "Selection paradoxes of Bayesian inference").
//
// Rather this than a correction of thresholds, such as Benjamini and Hochberg's: a search decides
// one by one and cannot know how many candidates are still to come, it has a prediction for each,
// and the size of the gain that is told is put right, too, not only the decision. On a quiet
// machine it changes nothing; where noise hides everything, it decides as the prediction does, but
// by the width of its errors.
#pragma once

#include <vector>

#include "tuner/stats/run_comparison.h"

namespace moetune::tuner {

/// How far predictions of gains have been off in one search.
class PredictionErrors {
 public:
  void add(double predicted_log_gain, const LogGain& measured);
  void clear() { errors_.clear(), variances_.clear(); }
  /// Standard deviation around the prediction, robustly and without the noise of what was measured.
  /// Wide while few are known, and never so small that a prediction would outweigh a measurement.
  [[nodiscard]] double spread() const;

 private:
  std::vector<double> errors_;  ///< absolute
  std::vector<double> variances_;
};

/// Independent measurements of one gain, which are at least one, and its prediction together. Where
/// both could hardly be true, the prediction is taken for as wrong as it must be at least: a prior
/// has to give way to data that contradict it (Dawid 1973, "Posterior expectations for large
/// observations"), and one configuration may be what the cost model does not know.
LogGain shrunk(const std::vector<LogGain>& measured, double predicted_log_gain, double spread);

}  // namespace moetune::tuner

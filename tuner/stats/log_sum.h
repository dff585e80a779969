// log(sum of exp), term by term. The probability of many readings is smaller than any double, so it
// is only handled by its logarithm.
#pragma once

#include <cmath>
#include <limits>

namespace moetune::tuner {

inline constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

class LogSum {
 public:
  void add(double log_term) {
    if (log_term <= largest_) {
      sum_ += std::exp(log_term - largest_);
    } else {
      sum_ = largest_ == kMinusInfinity ? 1.0 : sum_ * std::exp(largest_ - log_term) + 1.0;
      largest_ = log_term;
    }
  }
  [[nodiscard]] double value() const {
    return largest_ == kMinusInfinity ? kMinusInfinity : largest_ + std::log(sum_);
  }

 private:
  double largest_ = kMinusInfinity;
  double sum_ = 0.0;
};

}  // namespace moetune::tuner

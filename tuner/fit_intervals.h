// Whether a configuration fits: its predicted peak with the interval that what is known of the
// rows, and what trials have measured, leave it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tuner/strategy.h"

namespace moetune::tuner {

/// What a configuration's interval says.
enum class Room : uint8_t {
  none,    ///< even the low end is too much
  unsure,  ///< the interval crosses the limit: a trial has to tell
  enough   ///< even the high end fits
};

struct PeakInterval {
  int64_t low_bytes = 0;
  int64_t high_bytes = 0;
};
/// "61.3 MiB", or "61.3 MiB to 80.1 MiB".
std::string text_of(const PeakInterval& peak);

/// Learns from the trials of one search. Deterministic given the trials added. Predictions that
/// know each rank's rows and those that assume them err for other reasons: each kind learns from
/// its own trials.
class FitIntervals {
 public:
  /// `margin_ratio`: the share of the capacity that predictions have to leave free.
  FitIntervals(int64_t capacity_bytes, double margin_ratio)
      : capacity_bytes_(capacity_bytes), margin_ratio_(margin_ratio) {}
  void restart() {
    kinds_ = {};
    num_failed_ = 0;
  }
  /// Trials that ran out of memory.
  [[nodiscard]] size_t num_failed() const { return num_failed_; }

  /// Trials that ended neither well nor for lack of memory teach nothing.
  void add(const Prediction& prediction, const TrialOutcome& outcome);

  /// Of `prediction`, over more steps `peak_bytes`. What is known of every rank is a point until a
  /// trial contradicts it. Else balanced rows are the least that the fullest rank can have, and
  /// all rows of its group the most; where trials were measured, the most is what the worst of
  /// them took beyond its prediction.
  [[nodiscard]] PeakInterval interval(const Prediction& prediction, int64_t peak_bytes) const;
  [[nodiscard]] Room room(const Prediction& prediction, int64_t peak_bytes) const;
  /// Why there is none.
  [[nodiscard]] std::string reason(const Prediction& prediction, int64_t peak_bytes) const;

 private:
  struct Kind {
    double low_ratio = 1;  ///< measured over predicted, of the trials so far and 1
    double high_ratio = 1;
    bool is_measured = false;
    std::optional<int64_t> smallest_failed_bytes;  ///< predicted, of those that ran out of memory
  };
  [[nodiscard]] const Kind& kind_of(const Prediction& prediction) const {
    return kinds_[prediction.is_peak_exact ? 1 : 0];
  }
  [[nodiscard]] bool is_beyond_failed(const Prediction& prediction) const {
    const std::optional<int64_t> failed = kind_of(prediction).smallest_failed_bytes;
    return failed && prediction.peak_bytes >= *failed;
  }
  [[nodiscard]] double limit_bytes() const {
    return static_cast<double>(capacity_bytes_) * (1 - margin_ratio_);
  }

  int64_t capacity_bytes_;
  double margin_ratio_;
  std::array<Kind, 2> kinds_{};
  size_t num_failed_ = 0;
};

}  // namespace moetune::tuner

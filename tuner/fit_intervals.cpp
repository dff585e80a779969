// The interval of a peak, and what it says beside the capacity.
#include "tuner/fit_intervals.h"

#include <fmt/format.h>

#include <cmath>

#include "kernels/base/units.h"

namespace moetune::tuner {

std::string text_of(const PeakInterval& peak) {
  const std::string low = base::format_bytes(peak.low_bytes);
  const std::string high = base::format_bytes(peak.high_bytes);
  return low == high ? low : fmt::format("{} to {}", low, high);
}

void FitIntervals::add(const Prediction& prediction, const TrialOutcome& outcome) {
  if (prediction.peak_bytes <= 0) return;
  Kind& kind = kinds_[prediction.is_peak_exact ? 1 : 0];
  const auto predicted = static_cast<double>(prediction.peak_bytes);
  if (outcome.status == spec::TrialStatus::oom) {
    ++num_failed_;
    // It would have taken more than there is; how much more, nobody knows.
    kind.high_ratio = std::max(kind.high_ratio, static_cast<double>(capacity_bytes_) / predicted);
    kind.smallest_failed_bytes =
        std::min(kind.smallest_failed_bytes.value_or(prediction.peak_bytes), prediction.peak_bytes);
  } else if (outcome.status == spec::TrialStatus::ok && outcome.peak_bytes > 0) {
    const double ratio = static_cast<double>(outcome.peak_bytes) / predicted;
    kind.low_ratio = std::min(kind.low_ratio, ratio);
    kind.high_ratio = std::max(kind.high_ratio, ratio);
    kind.is_measured = true;
  }
}

PeakInterval FitIntervals::interval(const Prediction& prediction, int64_t peak_bytes) const {
  const Kind& kind = kind_of(prediction);
  const auto scaled = [&](double ratio) {
    return static_cast<int64_t>(std::llround(static_cast<double>(peak_bytes) * ratio));
  };
  PeakInterval peak{scaled(kind.low_ratio), scaled(kind.high_ratio)};
  if (!prediction.is_peak_exact && !kind.is_measured) {
    peak.high_bytes = std::max(peak.high_bytes, prediction.most_peak_bytes);
  }
  return peak;
}

Room FitIntervals::room(const Prediction& prediction, int64_t peak_bytes) const {
  if (capacity_bytes_ <= 0) return Room::enough;
  const PeakInterval peak = interval(prediction, peak_bytes);
  if (static_cast<double>(peak.low_bytes) > limit_bytes()) return Room::none;
  // One of its kind that is predicted to need no more has failed.
  if (is_beyond_failed(prediction)) return Room::none;
  return static_cast<double>(peak.high_bytes) <= limit_bytes() ? Room::enough : Room::unsure;
}

std::string FitIntervals::reason(const Prediction& prediction, int64_t peak_bytes) const {
  const PeakInterval peak = interval(prediction, peak_bytes);
  const std::string what =
      fmt::format("predicted peak {}{}", text_of(peak),
                  peak_bytes > prediction.peak_bytes ? " over the validation's steps" : "");
  const std::string capacity = base::format_bytes(capacity_bytes_);
  if (static_cast<double>(peak.low_bytes) <= limit_bytes()) {
    const int64_t failed = kind_of(prediction).smallest_failed_bytes.value_or(0);
    return fmt::format("{} of {}: one that was predicted to need no more ({}) ran out of memory",
                       what, capacity, base::format_bytes(failed));
  }
  if (peak.low_bytes <= capacity_bytes_) {
    return fmt::format("{} exceeds {}: the capacity of {} without the margin of {}", what,
                       base::format_bytes(static_cast<int64_t>(limit_bytes())), capacity,
                       base::format_ratio(margin_ratio_));
  }
  return fmt::format("{} exceeds the capacity of {}", what, capacity);
}

}  // namespace moetune::tuner

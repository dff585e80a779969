// Weighted means and sums, by what each counter of the table is.
#include "profiler/device/counter_sums.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace moetune::profiler {
namespace {

/// Past it no count of bytes is one, and neither would it fit an integer.
constexpr double kMaxValue = 1e15;

bool is_value(double value) { return value >= 0 && value <= kMaxValue; }  // false for NaN, too

/// The sample's time in the window; end <= start when there is none.
CounterWindow clipped(const CounterSample& sample, const CounterWindow& window) {
  return {std::max(sample.start_ns, window.start_ns), std::min(sample.end_ns, window.end_ns)};
}

bool is_in(const CounterSample& sample, const CounterWindow& window) {
  const CounterWindow part = clipped(sample, window);
  return part.end_ns > part.start_ns;
}

/// In floating point: a broken time stamp may be farther from another than an int64_t can say.
double length_of(int64_t start_ns, int64_t end_ns) {
  return static_cast<double>(end_ns) - static_cast<double>(start_ns);
}

/// Length of the union.
int64_t covered_time(std::vector<CounterWindow> parts) {
  std::sort(parts.begin(), parts.end(),
            [](const CounterWindow& a, const CounterWindow& b) { return a.start_ns < b.start_ns; });
  uint64_t covered = 0;
  int64_t covered_until = std::numeric_limits<int64_t>::min();
  for (const CounterWindow& part : parts) {
    const int64_t start_ns = std::max(part.start_ns, covered_until);
    if (part.end_ns <= start_ns) continue;
    covered += static_cast<uint64_t>(part.end_ns) - static_cast<uint64_t>(start_ns);
    covered_until = part.end_ns;
  }
  return static_cast<int64_t>(std::min<uint64_t>(covered, std::numeric_limits<int64_t>::max()));
}

}  // namespace

bool any_sample_in(std::span<const CounterSample> samples, const CounterWindow& window) {
  return std::any_of(samples.begin(), samples.end(),
                     [&](const CounterSample& sample) { return is_in(sample, window); });
}

CounterSums sum_counters(std::span<const CounterSample> samples, const CounterWindow& window) {
  std::array<bool, kNumCounters> has{};
  for (const CounterSample& sample : samples) {
    if (!is_in(sample, window)) continue;
    for (size_t i = 0; i < kNumCounters; ++i) has[i] = has[i] || is_value(sample.values[i]);
  }
  const bool has_any = std::find(has.begin(), has.end(), true) != has.end();

  CounterSums sums;
  double time = 0;
  std::array<double, kNumCounters> totals{};
  std::vector<CounterWindow> parts;
  for (const CounterSample& sample : samples) {
    const bool is_empty = sample.end_ns <= sample.start_ns;
    const bool is_outside = sample.end_ns <= window.start_ns || sample.start_ns >= window.end_ns;
    if (is_outside) continue;
    bool is_complete = has_any && !is_empty && is_in(sample, window);
    for (size_t i = 0; i < kNumCounters; ++i) {
      is_complete = is_complete && (!has[i] || is_value(sample.values[i]));
    }
    if (!is_complete) {
      ++sums.num_rejected;
      continue;
    }
    const CounterWindow part = clipped(sample, window);
    const double length = length_of(part.start_ns, part.end_ns);
    const double share = length / length_of(sample.start_ns, sample.end_ns);
    for (const Counter counter : {Counter::sm_active, Counter::tensor_active}) {
      // A little above 1 is the hardware's rounding.
      if (has[static_cast<size_t>(counter)]) {
        totals[static_cast<size_t>(counter)] += std::min(sample.value(counter), 1.0) * length;
      }
    }
    for (const Counter counter : {Counter::dram_read, Counter::dram_write}) {
      if (has[static_cast<size_t>(counter)]) {
        totals[static_cast<size_t>(counter)] += sample.value(counter) * share;
      }
    }
    time += length;
    parts.push_back(part);
    ++sums.num_samples;
  }
  sums.covered_ns = covered_time(std::move(parts));
  if (sums.num_samples == 0) return sums;

  const auto ratio = [&](Counter counter) -> std::optional<double> {
    const auto i = static_cast<size_t>(counter);
    if (!has[i]) return std::nullopt;
    return std::min(totals[i] / time, 1.0);
  };
  const auto bytes = [&](Counter counter) -> std::optional<int64_t> {
    const auto i = static_cast<size_t>(counter);
    if (!has[i]) return std::nullopt;
    return static_cast<int64_t>(std::llround(std::min(totals[i], 9e18)));
  };
  sums.sm_active_ratio = ratio(Counter::sm_active);
  sums.tensor_active_ratio = ratio(Counter::tensor_active);
  sums.dram_read_bytes = bytes(Counter::dram_read);
  sums.dram_write_bytes = bytes(Counter::dram_write);
  return sums;
}

}  // namespace moetune::profiler

// Timing for the benchmarks: the median of several runs, each long enough to be measured.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <vector>

namespace moetune::bench {

/// Median nanoseconds per call of `body` over `num_runs` runs of at least `run_ns` each.
template <typename Body>
double median_ns(Body&& body, int num_runs = 9, int64_t run_ns = 2'000'000) {
  using Clock = std::chrono::steady_clock;
  const auto time_calls = [&](int64_t num_calls) {
    const auto start = Clock::now();
    for (int64_t i = 0; i < num_calls; ++i) body();
    return static_cast<double>(std::chrono::nanoseconds(Clock::now() - start).count());
  };
  time_calls(2);
  int64_t num_calls = 1;
  while (time_calls(num_calls) < static_cast<double>(run_ns)) num_calls *= 2;
  std::vector<double> per_call;
  for (int run = 0; run < num_runs; ++run) {
    per_call.push_back(time_calls(num_calls) / static_cast<double>(num_calls));
  }
  std::nth_element(per_call.begin(), per_call.begin() + num_runs / 2, per_call.end());
  return per_call[static_cast<size_t>(num_runs / 2)];
}

/// Median of the processor's seconds that `body` takes, each run once.
template <typename Body>
double median_cpu_seconds(const Body& body, int num_runs) {
  std::vector<double> seconds;
  for (int i = 0; i < num_runs; ++i) {
    const std::clock_t start = std::clock();
    body();
    seconds.push_back(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  std::ranges::sort(seconds);
  return seconds[static_cast<size_t>(num_runs) / 2];
}

}  // namespace moetune::bench

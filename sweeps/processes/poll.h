// The one loop that looks again and again.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace moetune::sweeps {

/// Asks `is_done` every `period` until it says so, or `deadline` has come; its last answer.
template <typename Done>
bool poll_until(std::chrono::steady_clock::time_point deadline, std::chrono::milliseconds period,
                const Done& is_done) {
  using std::chrono::steady_clock;
  while (!is_done()) {
    const auto left = deadline - steady_clock::now();
    if (left <= steady_clock::duration::zero()) return false;
    std::this_thread::sleep_for(std::min<steady_clock::duration>(left, period));
  }
  return true;
}

}  // namespace moetune::sweeps

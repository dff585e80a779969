// The same work on several things at once.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

namespace moetune::base {

/// Calls work(i) for each i below `count`, on as many threads as there are cores. When all are
/// done, throws what the least i threw.
template <typename Work>
void for_each_at_once(size_t count, const Work& work) {
  std::vector<std::exception_ptr> failures(count);
  std::atomic<size_t> next = 0;
  const auto take_turns = [&] {
    for (size_t i = next++; i < count; i = next++) {
      try {
        work(i);
      } catch (...) {
        failures[i] = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> helpers;
    const size_t num_threads =
        std::min<size_t>(count, std::max(1U, std::thread::hardware_concurrency()));
    try {
      for (size_t i = 1; i < num_threads; ++i) helpers.emplace_back(take_turns);
    } catch (const std::system_error&) {
      // With fewer threads, then.
    }
    take_turns();
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace moetune::base

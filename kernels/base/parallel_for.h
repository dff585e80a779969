// A loop whose iterations run on several threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

namespace moetune::base {

/// Calls work(i) for each i < count on all cores. Waits for all calls; then rethrows the exception
/// of the smallest i that failed.
template <typename Work>
void parallel_for(size_t count, const Work& work) {
  std::vector<std::exception_ptr> failures(count);
  std::atomic<size_t> next = 0;
  const auto run_tasks = [&] {
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
      for (size_t i = 1; i < num_threads; ++i) helpers.emplace_back(run_tasks);
    } catch (const std::system_error&) {
      // No more threads are available: go on with those that started.
    }
    run_tasks();
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace moetune::base

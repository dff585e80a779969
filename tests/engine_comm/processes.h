// Several ranks for tests: as threads whose failures are collected, and as processes.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace moetune::engine::testing {

/// Runs body(rank) on a thread each. What each has thrown, by rank; empty: nothing.
inline std::vector<std::string> run_threads(int count, const std::function<void(int)>& body) {
  std::vector<std::string> errors(static_cast<size_t>(count));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

/// Runs body(rank) in a process each, which ends with what it returns, 99 after an exception. The
/// exit codes by rank; a signal's number negated.
inline std::vector<int> run_processes(int count, const std::function<int(int)>& body) {
  std::vector<pid_t> pids;
  for (int rank = 0; rank < count; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) {
      int code = 99;
      try {
        code = body(rank);
      } catch (...) {
        code = 99;
      }
      _exit(code);
    }
    pids.push_back(pid);
  }
  std::vector<int> codes;
  for (const pid_t pid : pids) {
    int status = 0;
    waitpid(pid, &status, 0);
    codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
  }
  return codes;
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace moetune::engine::testing

// Several ranks for tests: as threads whose failures are collected, and as processes; how they end.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "engine/comm/socket.h"
#include "kernels/base/environment_failure.h"
#include "kernels/base/error.h"

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

/// How a rank has ended.
struct Outcome {
  enum class Kind : uint8_t { fine, usage, peer, memory, device, environment, error };
  Kind kind = Kind::fine;
  std::string text;
};

inline Outcome outcome_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const base::UsageError& error) {
    return {Outcome::Kind::usage, error.what()};
  } catch (const base::PeerFailed& error) {
    return {Outcome::Kind::peer, error.what()};
  } catch (const base::DeviceFailed& error) {
    return {Outcome::Kind::device, error.what()};
  } catch (const base::EnvironmentFailure& error) {
    return {Outcome::Kind::environment, error.what()};
  } catch (const base::OutOfMemory& error) {
    return {Outcome::Kind::memory, error.what()};
  } catch (const std::exception& error) {
    return {Outcome::Kind::error, error.what()};
  }
  return {};
}

/// A port that was free a moment ago.
inline int free_port() {
  const Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(address);
  auto* place = reinterpret_cast<sockaddr*>(&address);
  if (::bind(socket.fd(), place, bytes) != 0 || ::getsockname(socket.fd(), place, &bytes) != 0) {
    throw base::Error("no port is free");
  }
  return ntohs(address.sin_port);
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace moetune::engine::testing

// Ends a process whose device never answers: a thread that waits for a stream cannot be woken, so
// another one has to notice.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace moetune::engine {

/// Calls `expire` when there is no beat for `limit`.
class Watchdog {
 public:
  /// `expire` gets what was being waited for; it is called once, on the watchdog's own thread.
  Watchdog(std::chrono::milliseconds limit, std::function<void(const std::string& what)> expire);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Something has been done; what comes next is `what`.
  void beat(std::string what);

 private:
  void run();

  std::chrono::milliseconds limit_;
  std::function<void(const std::string&)> expire_;
  std::mutex mutex_;  ///< guards what follows
  std::condition_variable changed_;
  std::string what_ = "the start";
  int64_t num_beats_ = 0;
  bool is_ending_ = false;
  std::thread thread_;
};

/// Why a process ends whose device has not done `what` within `limit`.
std::string hung_text(const std::string& what, std::chrono::milliseconds limit);

/// Says `message` on standard error, and leaves the process with the exit code for `hung`, at once:
/// no destructor could free a device that does not answer.
[[noreturn]] void leave_hung(const std::string& message);

}  // namespace moetune::engine

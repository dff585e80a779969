#include "engine/watchdog.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "engine/spec/trial_status.h"

namespace moetune::engine {

Watchdog::Watchdog(std::chrono::milliseconds limit,
                   std::function<void(const std::string& what)> expire)
    : limit_(limit), expire_(std::move(expire)), thread_([this] { run(); }) {}

Watchdog::~Watchdog() {
  {
    const std::scoped_lock lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Watchdog::beat(std::string what) {
  {
    const std::scoped_lock lock(mutex_);
    what_ = std::move(what);
    ++num_beats_;
  }
  changed_.notify_all();
}

void Watchdog::run() {
  std::unique_lock lock(mutex_);
  while (!is_ending_) {
    const int64_t seen = num_beats_;
    const bool has_moved =
        changed_.wait_for(lock, limit_, [&] { return is_ending_ || num_beats_ != seen; });
    if (has_moved) continue;
    const std::string what = what_;
    lock.unlock();
    expire_(what);
    return;
  }
}

std::string hung_text(const std::string& what, std::chrono::milliseconds limit) {
  return fmt::format("{} has not ended within {} s; the device does not answer", what,
                     std::chrono::duration<double>(limit).count());
}

void leave_hung(const std::string& message) {
  fmt::print(stderr, "moetune-rank: {}\n", message);
  std::fflush(stderr);
  _exit(static_cast<int>(spec::ExitCode::hung));
}

}  // namespace moetune::engine

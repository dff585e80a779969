// flock on a file beside the database. Not on the database itself: closing a second descriptor of
// it would drop the locks that SQLite holds.
#include "sweeps/sweep_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "kernels/base/error.h"
#include "sweeps/processes/poll.h"

namespace moetune::sweeps {
namespace {

constexpr std::chrono::milliseconds kLookingTime{40};

std::string holder_in(int descriptor) {
  std::array<char, 32> text{};
  const ssize_t size = pread(descriptor, text.data(), text.size() - 1, 0);
  return size > 0 ? fmt::format(" (process {})", std::string(text.data())) : "";
}

/// The previous holder removes the file when it ends: then the lock just taken belongs to no name.
bool is_same_file(int descriptor, const std::string& path) {
  struct stat held {};
  struct stat named {};
  return fstat(descriptor, &held) == 0 && stat(path.c_str(), &named) == 0 &&
         held.st_ino == named.st_ino && held.st_dev == named.st_dev;
}

}  // namespace

SweepLock::SweepLock(const std::string& database_path) : path_(database_path + ".lock") {
  while (true) {
    descriptor_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (descriptor_ < 0) {
      const int error = errno;
      const std::string text = fmt::format(
          "{}: cannot be created: {}; --db needs a folder that exists and may be written", path_,
          std::strerror(error));
      if (error == ENOSPC || error == EDQUOT) throw base::Error(text);
      throw base::UsageError(text);
    }
    // Whoever only looks (is_locked) holds it for a moment.
    const auto take = [&] { return flock(descriptor_, LOCK_EX | LOCK_NB) == 0; };
    if (!poll_until(std::chrono::steady_clock::now() + kLookingTime, kLookingTime / 4, take)) {
      const std::string holder = holder_in(descriptor_);
      close(descriptor_);
      throw base::Error(fmt::format(
          "{}: another moetune{} is running trials into this database; wait until it is done, or "
          "stop it",
          database_path, holder));
    }
    if (is_same_file(descriptor_, path_)) break;
    close(descriptor_);
  }
  // For the message above only: a full disk must not stop the lock.
  const std::string pid = std::to_string(getpid());
  [[maybe_unused]] const int truncated = ftruncate(descriptor_, 0);
  [[maybe_unused]] const ssize_t written = pwrite(descriptor_, pid.data(), pid.size(), 0);
}

SweepLock::~SweepLock() {
  unlink(path_.c_str());
  close(descriptor_);
}

bool is_locked(const std::string& database_path) {
  const int descriptor = open((database_path + ".lock").c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return false;
  const bool is_held = flock(descriptor, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(descriptor);
  return is_held;
}

}  // namespace moetune::sweeps

// One writer at a time: two sweeps on one database would disturb each other's timings and could run
// a spec twice.
#pragma once

#include <string>

namespace moetune::sweeps {

/// Holds "<database>.lock" until destroyed, or until this process ends in whatever way.
class SweepLock {
 public:
  /// Throws base::Error naming the holder when another process has it, base::UsageError when the
  /// folder cannot be written.
  explicit SweepLock(const std::string& database_path);
  ~SweepLock();
  SweepLock(const SweepLock&) = delete;
  SweepLock& operator=(const SweepLock&) = delete;

 private:
  std::string path_;
  int descriptor_ = -1;
};

/// Whether another process holds it: a sweep is running. False where nobody can tell.
bool is_locked(const std::string& database_path);

}  // namespace moetune::sweeps

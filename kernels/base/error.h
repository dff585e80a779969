// Exception types and the CHECK macros. Programmer errors assert; the world failing throws one of
// these; an expected outcome is a value. Each type maps to one process exit code
// (engine/spec/trial_status.h), so that a parent can tell what happened to its child.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <stdexcept>
#include <string>

namespace moetune::base {

/// Something in the world failed: a file, a database, a system call. Ends in exit code `failed`.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Bad input by the user: a file, key, knob or layout that cannot work. The message names the file,
/// the key, the value found and what would be right. Ends in exit code 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

/// A device allocation went past the capacity. Carries what the ledger knew at that moment.
class OutOfMemory : public Error {
 public:
  /// Inside a library, which says neither for what nor how much; `library_text` is all it says.
  explicit OutOfMemory(const std::string& library_text)
      : Error("out of device memory: " + library_text) {}
  OutOfMemory(std::string allocation_name, std::string group_name, int64_t requested_bytes,
              int64_t in_use_bytes, int64_t capacity_bytes, int rank);

  std::string allocation_name;
  std::string group_name;
  int64_t requested_bytes = 0;
  int64_t in_use_bytes = 0;
  int64_t capacity_bytes = 0;
  int rank = 0;
};

/// Numbers went wrong: NaN, infinity, or a loss off the reference. Ends in exit code `wrong`.
class WrongNumbers : public Error {
 public:
  using Error::Error;
};

/// There is no device that the program could use.
class NoDevice : public Error {
 public:
  enum class Why : uint8_t { no_driver, no_device, too_old };

  NoDevice(Why why_in, const std::string& message) : Error(message), why(why_in) {}

  Why why;
};

/// The device has failed while it worked, such as by a kernel that touched memory which is not
/// there. Nothing more can be done on it in this process.
class DeviceFailed : public Error {
 public:
  using Error::Error;
};

/// This rank was released because another rank failed first; never the root cause.
class PeerFailed : public Error {
 public:
  using Error::Error;
};

[[noreturn]] void check_failed(const char* expression, const char* file, int line,
                               const std::string& message);

}  // namespace moetune::base

/// Throws base::Error naming expression, file and line when `condition` does not hold.
#define MOETUNE_CHECK(condition, ...)                                                            \
  do {                                                                                           \
    if (!(condition)) {                                                                          \
      ::moetune::base::check_failed(#condition, __FILE__, __LINE__, ::fmt::format(__VA_ARGS__)); \
    }                                                                                            \
  } while (false)

// Errors of the CUDA runtime as exceptions, and what the driver says of the device's memory.
#pragma once

#include <cstdint>
#include <exception>
#include <mutex>
#include <string>

namespace moetune::kernels::cuda {

/// `status`: a cudaError_t. Unless it is success throws base::DeviceFailed when the device is lost
/// by it, else base::Error, with the runtime's text.
void check(int status, const char* what);

/// For a call of one of NVIDIA's libraries that failed: throws base::DeviceFailed when the device
/// is lost, else what memory_failure gives when the library says so, else base::Error.
[[noreturn]] void throw_library_error(const std::string& text, bool is_out_of_memory);

/// Held while what something takes of the device is measured as a difference, so that other ranks
/// of this process do not take theirs meanwhile.
std::mutex& measuring_mutex();

/// Memory of the current device in use, by this program and others.
int64_t used_device_bytes();

/// Counts the users of a device in this process. What is in use when the first of them comes is
/// this process's context and what other programs hold.
class DeviceUse {
 public:
  /// Makes the device current and with it, for the first time in the process, its context. Throws
  /// base::EnvironmentFailure when others have left no memory for one.
  explicit DeviceUse(int device);
  ~DeviceUse();
  DeviceUse(const DeviceUse&) = delete;
  DeviceUse& operator=(const DeviceUse&) = delete;

  /// What was in use then, of the first; 0 of the others.
  [[nodiscard]] int64_t bytes_before() const { return bytes_before_; }

 private:
  int device_;
  int64_t bytes_before_ = 0;
};

/// Throws base::OutOfMemory for `bytes` that the device does not have.
[[noreturn]] void throw_out_of_memory(int device, int64_t bytes);
/// For `bytes` more (0: nobody says how many) that the driver refuses. Throws
/// base::EnvironmentFailure when there would be room but for what other programs held at the start,
/// else base::OutOfMemory.
[[noreturn]] void throw_allocation_failed(int device, int64_t bytes);
/// The same judgement for a library, which says neither for what nor how much; `text` is all it
/// says.
std::exception_ptr memory_failure(int device, const std::string& text);
/// Of the calling thread's device.
std::exception_ptr memory_failure(const std::string& text);

}  // namespace moetune::kernels::cuda

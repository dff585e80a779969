// Errors of the CUDA runtime as exceptions, and what the driver says of the device's memory.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

namespace moetune::kernels::cuda {

/// `status`: a cudaError_t. Unless it is success throws base::DeviceFailed when the device is lost
/// by it, else base::Error, with the runtime's text.
void check(int status, const char* what);

/// For a call of one of NVIDIA's libraries that failed: throws base::DeviceFailed when the device
/// is lost, else base::OutOfMemory when the library says so, else base::Error.
[[noreturn]] void throw_library_error(const std::string& text, bool is_out_of_memory);

/// Held while what something takes of the device is measured as a difference, so that other ranks
/// of this process do not take theirs meanwhile.
std::mutex& measuring_mutex();

/// Memory of the current device in use, by this program and others.
int64_t used_device_bytes();

/// Throws base::OutOfMemory for `bytes` that the device does not have.
[[noreturn]] void throw_out_of_memory(int device, int64_t bytes);

}  // namespace moetune::kernels::cuda

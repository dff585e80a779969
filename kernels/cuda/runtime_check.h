// Errors of the CUDA runtime as exceptions, and what the driver says of the device's memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace moetune::kernels::cuda {

/// Throws base::Error with the runtime's text unless `status` is success.
void check(cudaError_t status, const char* what);

/// Memory of the current device in use, by this program and others.
int64_t used_device_bytes();

/// Throws base::OutOfMemory for `bytes` that the device does not have.
[[noreturn]] void throw_out_of_memory(int device, int64_t bytes);

}  // namespace moetune::kernels::cuda

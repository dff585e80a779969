// Which errors of the CUDA runtime mean that the device is lost to this process.
#pragma once

#include <cuda_runtime_api.h>

namespace moetune::kernels::cuda {

/// Errors that the runtime keeps returning from here on: the context is lost.
inline bool is_device_error(int status) {
  switch (static_cast<cudaError_t>(status)) {
    case cudaErrorLaunchFailure:
    case cudaErrorIllegalAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorHardwareStackError:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorLaunchTimeout:
    case cudaErrorDevicesUnavailable:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

}  // namespace moetune::kernels::cuda

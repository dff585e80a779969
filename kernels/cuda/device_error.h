// Which errors of the CUDA runtime mean that the device is lost to this process. Without CUDA's
// headers, for builds that have none; runtime_check.cpp compares the numbers with them.
#pragma once

#include <algorithm>
#include <array>

namespace moetune::kernels::cuda {

/// cudaErrorDevicesUnavailable, ECCUncorrectable, IllegalAddress, LaunchTimeout, Assert,
/// HardwareStackError, IllegalInstruction, MisalignedAddress, InvalidAddressSpace, InvalidPc,
/// LaunchFailure, Unknown.
constexpr std::array<int, 12> kDeviceErrors = {46,  214, 700, 702, 710, 714,
                                               715, 716, 717, 718, 719, 999};

/// Errors (a cudaError_t) that the runtime keeps returning from here on: the context is lost.
inline bool is_device_error(int status) {
  return std::find(kDeviceErrors.begin(), kDeviceErrors.end(), status) != kDeviceErrors.end();
}

}  // namespace moetune::kernels::cuda

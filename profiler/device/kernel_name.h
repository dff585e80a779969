// Kernel names for people: C++ symbols carry templates and parameters that fill a screen.
#pragma once

#include <string>

namespace moetune::profiler {

/// "_ZN7moetune4gemmIfEEvPT_" is "gemm"; a name that is no C++ symbol stays as it is.
std::string short_kernel_name(const std::string& symbol);
/// The same is "void moetune::gemm<float>(float*)".
std::string full_kernel_name(const std::string& symbol);

}  // namespace moetune::profiler

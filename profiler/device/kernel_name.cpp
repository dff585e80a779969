// Demangles a symbol; for people drops everything but its last name.
#include "profiler/device/kernel_name.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>

#include "kernels/base/cxx_names.h"

namespace moetune::profiler {

std::string short_kernel_name(const std::string& symbol) {
  const std::string full = full_kernel_name(symbol);
  if (full == symbol) return symbol;
  const std::string name = base::unscoped_name(full);
  return name == full ? symbol : name;
}

std::string full_kernel_name(const std::string& symbol) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> demangled(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), &std::free);
  return status != 0 || demangled == nullptr ? symbol : demangled.get();
}

}  // namespace moetune::profiler

// Demangles a symbol and drops everything but its last name.
#include "profiler/device/kernel_name.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>

namespace moetune::profiler {

std::string short_kernel_name(const std::string& symbol) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> demangled(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), &std::free);
  if (status != 0 || demangled == nullptr) return symbol;
  std::string name;
  int depth = 0;  // of <> and ()
  for (const char c : std::string(demangled.get())) {
    if (c == '<' || c == '(') ++depth;
    if (depth == 0) name.push_back(c);
    if (c == '>' || c == ')') depth = depth > 0 ? depth - 1 : 0;
  }
  // What is left: [return type ][scopes::]name[ qualifiers, as in "[clone .1]"].
  name = name.substr(0, name.find(" ["));
  const size_t scope = name.rfind("::");
  if (scope != std::string::npos) name = name.substr(scope + 2);
  const size_t space = name.rfind(' ');
  if (space != std::string::npos) name = name.substr(space + 1);
  return name.empty() ? symbol : name;
}

}  // namespace moetune::profiler

// Names of C++ functions for people: templates, parameters and scopes fill a screen.
#pragma once

#include <string>
#include <string_view>

namespace moetune::base {

/// "void moetune::gemm<float>(float*)" is "gemm"; a text that is no such name stays as it is.
std::string unscoped_name(std::string_view demangled);

}  // namespace moetune::base

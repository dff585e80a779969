// Names of C++ functions for people: templates, parameters and scopes fill a screen.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace moetune::base {

/// "void moetune::gemm<float>(float*)" is "gemm"; a text that is no such name stays as it is.
std::string unscoped_name(std::string_view demangled);

/// The first bytes of UTF-8 text, whole characters.
std::string cut_text(std::string_view text, size_t most_bytes);

}  // namespace moetune::base

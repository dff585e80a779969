#include "kernels/base/cxx_names.h"

namespace moetune::base {

std::string unscoped_name(std::string_view demangled) {
  // Names of copies and of marked ranges have blanks, too.
  const bool is_function = demangled.find("::") != std::string_view::npos ||
                           demangled.find_first_of("<(") != std::string_view::npos;
  if (!is_function) return std::string(demangled);
  std::string name;
  int depth = 0;  // of <> and ()
  for (size_t i = 0; i < demangled.size(); ++i) {
    const char c = demangled[i];
    const bool is_arrow = c == '>' && i > 0 && demangled[i - 1] == '-';
    if (c == '<' || c == '(') ++depth;
    if (depth == 0) name.push_back(c);
    if ((c == '>' && !is_arrow) || c == ')') depth = depth > 0 ? depth - 1 : 0;
  }
  // What is left: [return type ][scopes::]name[ qualifiers, as in "[clone .1]"].
  name = name.substr(0, name.find(" ["));
  const size_t scope = name.rfind("::");
  if (scope != std::string::npos) name = name.substr(scope + 2);
  const size_t space = name.rfind(' ');
  if (space != std::string::npos) name = name.substr(space + 1);
  return name.empty() ? std::string(demangled) : name;
}

}  // namespace moetune::base

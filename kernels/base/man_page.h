// A manual page in the form that man(1) reads, from text that knows nothing of it. Both programs
// write theirs from their tables of options.
#pragma once

#include <string>
#include <string_view>

namespace moetune::base {

class ManPage {
 public:
  /// `name`: the program. `summary`: what stands behind the name in lists of pages.
  ManPage(std::string_view name, std::string_view summary, std::string_view version);

  void section(std::string_view title);
  void subsection(std::string_view title);
  /// Several lines are kept as they are, one is filled.
  void text(std::string_view text);
  /// `names`: "--quiet, -q". `value`: "PATH", empty for a flag. `help` may be empty.
  void option(std::string_view names, std::string_view value, std::string_view help);

  [[nodiscard]] const std::string& str() const { return page_; }

 private:
  std::string page_;
};

}  // namespace moetune::base

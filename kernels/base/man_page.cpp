// The few macros of man(7) that a page needs, and what has to be escaped in its text.
#include "kernels/base/man_page.h"

#include <fmt/format.h>

namespace moetune::base {
namespace {

/// Dashes stay dashes that can be copied, and no line becomes a macro.
std::string escaped(std::string_view text) {
  std::string out;
  bool is_line_start = true;
  for (const char c : text) {
    if (is_line_start && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
    is_line_start = c == '\n';
  }
  return out;
}

/// Of a macro's argument, which stands in double quotes.
std::string in_quotes(std::string_view text) {
  std::string out = "\"";
  for (const char c : escaped(text)) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

std::string upper(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return out;
}

}  // namespace

ManPage::ManPage(std::string_view name, std::string_view summary, std::string_view version) {
  page_ = fmt::format(".TH {} 1 \"\" {} {}\n", in_quotes(upper(name)),
                      in_quotes(fmt::format("{} {}", name, version)), in_quotes("User Commands"));
  section("NAME");
  page_ += fmt::format("{} \\- {}\n", escaped(name), escaped(summary));
}

void ManPage::section(std::string_view title) {
  page_ += fmt::format(".SH {}\n", in_quotes(title));
}

void ManPage::subsection(std::string_view title) {
  page_ += fmt::format(".SS {}\n", in_quotes(title));
}

void ManPage::text(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  const bool is_kept = text.find('\n') != std::string_view::npos;
  page_ +=
      fmt::format(".PP\n{}{}\n{}", is_kept ? ".nf\n" : "", escaped(text), is_kept ? ".fi\n" : "");
}

void ManPage::option(std::string_view names, std::string_view value, std::string_view help) {
  page_ += fmt::format(".TP\n\\fB{}\\fR{}\n{}\n", escaped(names),
                       value.empty() ? "" : fmt::format(" \\fI{}\\fR", escaped(value)),
                       help.empty() ? "\\&" : escaped(help));
}

}  // namespace moetune::base

// The page that every report is: one file with style, scripts and sections, put in place at once.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moetune::reports {

/// A section whose body is there already.
struct PageSection {
  std::string_view id;
  std::string_view title;
  std::string_view short_title;  ///< in the navigation
  std::string_view lead;         ///< HTML, may be empty
  std::string body;              ///< HTML
};

struct Page {
  std::string title;     ///< plain text
  std::string subtitle;  ///< plain text
  std::string origin;    ///< HTML
  std::vector<PageSection> sections;
};

std::string render_page(const Page& page);

/// Puts a finished page at `output_path` by renaming a temporary file: a failure leaves no
/// half-written page. Returns its size in bytes. Throws base::Error where it cannot be written.
int64_t put_page(const std::string& page, const std::string& output_path);

/// Throws base::UsageError where `output_path` is no place for a page: a folder, a device, the
/// database itself, a file that is no page, or in a folder that is not there. `option` is what the
/// user gave it as; `database_path` is empty where there is no database.
void check_target(const std::string& database_path, const std::string& output_path,
                  const std::string& option);

}  // namespace moetune::reports

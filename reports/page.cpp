// Fills the template, and writes what comes out.
#include "reports/page.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "embedded/kReportScript.h"
#include "embedded/kReportStyle.h"
#include "embedded/kReportTemplate.h"
#include "kernels/base/error.h"
#include "reports/html.h"

namespace moetune::reports {
namespace {

// Replaces {{name}} marks in one pass, so that what is put in is never searched for marks again.
std::string fill_template(std::string_view text, const std::map<std::string, std::string>& values) {
  std::string result;
  size_t position = 0;
  while (position < text.size()) {
    const size_t open = text.find("{{", position);
    if (open == std::string_view::npos) {
      break;
    }
    const size_t close = text.find("}}", open);
    MOETUNE_CHECK(close != std::string_view::npos, "the report's template has an open mark");
    const std::string name(text.substr(open + 2, close - open - 2));
    const auto found = values.find(name);
    MOETUNE_CHECK(found != values.end(), "the report's template asks for '{}'", name);
    result += text.substr(position, open - position);
    result += found->second;
    position = close + 2;
  }
  return result += text.substr(position);
}

/// Whether a file begins as pages do.
bool is_page(const std::string& path) {
  constexpr std::string_view kStart = "<!doctype html>";
  std::string start(kStart.size(), ' ');
  std::ifstream file(path, std::ios::binary);
  file.read(start.data(), static_cast<std::streamsize>(start.size()));
  return start == kStart;
}

}  // namespace

std::string render_page(const Page& page) {
  std::string sections;
  std::string navigation;
  for (const PageSection& section : page.sections) {
    navigation += fmt::format("<a href=\"#{}\">{}</a>\n", section.id, section.short_title);
    sections += fmt::format(
        "<section id=\"{0}\" aria-labelledby=\"title-{0}\">\n<h2 id=\"title-{0}\">{1}</h2>\n{2}{3}"
        "</section>\n\n",
        section.id, section.title,
        section.lead.empty() ? "" : fmt::format("<p class=\"lead\">{}</p>\n", section.lead),
        section.body);
  }
  return fill_template(
      kReportTemplate,
      {{"title", escape(page.title)},
       {"subtitle", escape(page.subtitle)},
       {"origin", page.origin},
       {"first", page.sections.empty() ? "" : std::string(page.sections.front().id)},
       {"style", std::string(kReportStyle)},
       {"navigation", navigation},
       {"sections", sections},
       {"script", std::string(kReportScript)}});
}

void check_target(const std::string& database_path, const std::string& output_path,
                  const std::string& option) {
  namespace fs = std::filesystem;
  const fs::path target(output_path);
  std::error_code ignored;
  const fs::file_status status = fs::status(target, ignored);
  if (fs::is_directory(status)) {
    throw base::UsageError(
        fmt::format("{}: is a folder; {} takes the name of the HTML file", output_path, option));
  }
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    throw base::UsageError(fmt::format(
        "{}: is not a regular file; {} takes the name of the HTML file", output_path, option));
  }
  // By name too: a database may be made only later.
  if (!database_path.empty() &&
      (fs::equivalent(target, database_path, ignored) ||
       fs::weakly_canonical(target, ignored) == fs::weakly_canonical(database_path, ignored))) {
    throw base::UsageError(fmt::format(
        "{}: is the database itself; {} takes the name of the HTML file", output_path, option));
  }
  // A page may be written over, nothing else of the user's may.
  if (fs::exists(status) && fs::file_size(target, ignored) > 0 && !is_page(output_path)) {
    throw base::UsageError(
        fmt::format("{}: is there already and is no HTML page; {} takes the "
                    "name of the HTML file",
                    output_path, option));
  }
  const fs::path folder = target.parent_path();
  if (folder.empty() || fs::is_directory(folder, ignored)) return;
  throw base::UsageError(fmt::format(
      "{}: folder {} {}", output_path, folder.string(),
      fs::exists(folder, ignored) ? "is not a folder" : "does not exist; make it first"));
}

int64_t put_page(const std::string& page, const std::string& output_path) {
  const std::string temporary = fmt::format("{}.{}.tmp", output_path, ::getpid());
  std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
  file.write(page.data(), static_cast<std::streamsize>(page.size()));
  file.close();
  if (!file || std::rename(temporary.c_str(), output_path.c_str()) != 0) {
    const int error = errno;
    std::remove(temporary.c_str());
    throw base::Error(
        fmt::format("{}: cannot write the report: {}", output_path, std::strerror(error)));
  }
  return static_cast<int64_t>(page.size());
}

}  // namespace moetune::reports

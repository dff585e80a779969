// Fills the template, and writes what comes out.
#include "reports/page.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string_view>
#include <utility>

#include "embedded/kReportScript.h"
#include "embedded/kReportStyle.h"
#include "embedded/kReportTemplate.h"
#include "kernels/base/error.h"
#include "kernels/base/utf8.h"
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

/// A new file beside a page, which takes its place once it is whole. Its name cannot be guessed, so
/// that nobody who may write into the folder puts anything in its way; if something is there all
/// the same, also a link, it is not opened. mkostemp would do that, too, but its files are for one
/// user alone, and other threads may make files while a process asks for its umask.
class PageInMaking {
 public:
  explicit PageInMaking(const std::string& output_path) {
    const std::filesystem::path folder = std::filesystem::path(output_path).parent_path();
    constexpr int kMostTries = 100;
    std::random_device random;
    for (int i = 0; i < kMostTries; ++i) {
      path_ = folder / fmt::format(".moetune-{:08x}{:08x}.tmp", random(), random());
      file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
      error_ = file_ < 0 ? errno : 0;
      if (error_ != EEXIST && error_ != EINTR) return;
    }
  }
  ~PageInMaking() {
    if (file_ >= 0) ::close(file_);
    if (error_ == 0 && !is_in_place_) ::unlink(path_.c_str());
  }
  PageInMaking(const PageInMaking&) = delete;
  PageInMaking& operator=(const PageInMaking&) = delete;

  /// Writes all of it and moves it to `output_path`. The errno of what failed, or 0.
  [[nodiscard]] int put(std::string_view page, const std::string& output_path) {
    if (error_ != 0) return error_;
    while (!page.empty()) {
      const ssize_t count = ::write(file_, page.data(), page.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return errno;
      page.remove_prefix(static_cast<size_t>(count));
    }
    // Some file systems, such as those of a network, tell only here that there was no room.
    if (::close(std::exchange(file_, -1)) != 0) return errno;
    if (std::rename(path_.c_str(), output_path.c_str()) != 0) return errno;
    is_in_place_ = true;
    return 0;
  }

 private:
  std::string path_;
  int file_ = -1;
  int error_ = 0;
  bool is_in_place_ = false;
};

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
  std::error_code error;
  const fs::file_status status = fs::status(target, error);
  // A name that is too long, or a link to itself.
  if (status.type() == fs::file_type::none) {
    constexpr size_t kMostBytes = 200;
    throw base::UsageError(
        fmt::format("{}: {}", base::shortened(output_path, kMostBytes), error.message()));
  }
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
  PageInMaking file(output_path);
  if (const int error = file.put(page, output_path); error != 0) {
    throw base::Error(
        fmt::format("{}: cannot write the report: {}", output_path, std::strerror(error)));
  }
  return static_cast<int64_t>(page.size());
}

}  // namespace moetune::reports

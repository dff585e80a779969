// Writing the page: bad requests, writes that fail, and targets that are no place for it.
#include <sys/stat.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "kernels/base/error.h"
#include "profiler/store/store.h"
#include "reports/page.h"
#include "reports/report.h"
#include "tests/profiler/temp_folder.h"
#include "tests/reports/fixture_helper.h"

namespace moetune::reports {
namespace {

using nlohmann::json;
using tests::says;
using tests::TempFolder;

BOOST_AUTO_TEST_SUITE(report_files)

std::string text_in(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

BOOST_AUTO_TEST_CASE(bad_requests_are_named) {
  const TempFolder folder;
  store::Store::open(folder.file("empty.db"));
  BOOST_CHECK_EXCEPTION(write_report(folder.file("empty.db"), folder.file("out.html")),
                        base::UsageError, says("empty.db", "no sweep and no hunt"));
  BOOST_TEST(!std::filesystem::exists(folder.file("out.html")));
  BOOST_CHECK_THROW(write_report(folder.file("missing.db"), folder.file("out.html")), base::Error);
  tests::make_fixture(folder.file("runs.db"));
  BOOST_CHECK_EXCEPTION(
      write_report(folder.file("runs.db"), folder.file("out.html"), {.sweep_id = 7}),
      base::UsageError, says("runs.db", "no sweep 7"));
  BOOST_CHECK_THROW(
      write_report(folder.file("runs.db"), folder.file("out.html"), {.trial = "ffffffff"}),
      base::UsageError);
  std::filesystem::create_directory(folder.file("folder"));
  BOOST_CHECK_EXCEPTION(write_report(folder.file("runs.db"), folder.file("folder")),
                        base::UsageError, says("folder"));
}

BOOST_AUTO_TEST_CASE(a_failed_write_leaves_the_old_page) {
  const TempFolder folder;
  tests::make_fixture(folder.file("runs.db"));
  std::filesystem::create_directory(folder.file("a"));
  BOOST_TEST(write_report(folder.file("runs.db"), folder.file("a/out.html")) > 100'000);
  BOOST_TEST(std::filesystem::file_size(folder.file("a/out.html")) > 100'000u);
  BOOST_CHECK_THROW(
      write_report(folder.file("runs.db"), folder.file("a/out.html"), {.sweep_id = 7}),
      base::UsageError);
  BOOST_TEST(std::filesystem::file_size(folder.file("a/out.html")) > 100'000u);
  // Its temporary file is gone too.
  for (const auto& entry : std::filesystem::directory_iterator(folder.file("a"))) {
    BOOST_TEST(entry.path().filename() == "out.html");
  }
}

// Whoever else may write into the folder knows the name of the page and the number of the process.
BOOST_AUTO_TEST_CASE(a_link_in_the_way_of_a_page_is_not_followed) {
  const TempFolder folder;
  const std::string page = folder.file("out.html");
  const std::string other = folder.file("other");
  tests::write_text(other, "not mine");
  for (const std::string& name : {page + ".tmp", page + "." + std::to_string(getpid()) + ".tmp"}) {
    std::filesystem::create_symlink(other, name);
  }
  BOOST_TEST(put_page("<!doctype html>one", page) == 18);
  BOOST_TEST(text_in(page) == "<!doctype html>one");
  BOOST_TEST(!std::filesystem::is_symlink(page));
  BOOST_TEST(text_in(other) == "not mine");
}

BOOST_AUTO_TEST_CASE(a_page_is_for_those_whom_the_umask_allows) {
  const TempFolder folder;
  const auto mode_under = [&](mode_t mask, const char* name) {
    const mode_t old = umask(mask);
    put_page("<!doctype html>", folder.file(name));
    umask(old);
    struct stat seen {};
    BOOST_REQUIRE(stat(folder.file(name).c_str(), &seen) == 0);
    return static_cast<unsigned>(seen.st_mode) & 0777U;
  };
  BOOST_TEST(mode_under(022, "a.html") == 0644U);
  BOOST_TEST(mode_under(077, "b.html") == 0600U);
}

BOOST_AUTO_TEST_CASE(a_page_that_cannot_be_put_in_place_leaves_nothing) {
  const TempFolder folder;
  std::filesystem::create_directories(folder.file("a/out.html/full"));
  BOOST_CHECK_EXCEPTION(put_page("<!doctype html>", folder.file("a/out.html")), base::Error,
                        says("out.html", "cannot write the report"));
  BOOST_CHECK_EXCEPTION(put_page("<!doctype html>", folder.file("none/out.html")), base::Error,
                        says("none/out.html", "No such file"));
  for (const auto& entry : std::filesystem::directory_iterator(folder.file("a"))) {
    BOOST_TEST(entry.path().filename() == "out.html");
  }
}

BOOST_AUTO_TEST_CASE(a_target_that_is_no_place_for_a_page_is_refused) {
  const TempFolder folder;
  const std::string db = folder.file("runs.db");
  tests::make_fixture(db);
  const auto check = [&](const std::string& target, const char* part) {
    BOOST_CHECK_EXCEPTION(write_report(db, target), base::UsageError, says(target, part));
  };
  check(folder.file("none/deep/out.html"), "does not exist");
  BOOST_TEST(!std::filesystem::exists(folder.file("none")));
  tests::write_text(folder.file("file"), "x");
  check(folder.file("file/out.html"), "is not a folder");
  BOOST_REQUIRE(mkfifo(folder.file("pipe").c_str(), 0600) == 0);
  check(folder.file("pipe"), "not a regular file");
  std::filesystem::create_symlink(folder.file("pipe"), folder.file("link.html"));
  check(folder.file("link.html"), "not a regular file");
  BOOST_TEST(std::filesystem::is_fifo(folder.file("pipe")));
  BOOST_TEST(std::filesystem::is_symlink(folder.file("link.html")));
  check(db, "is the database itself");
  BOOST_CHECK_NO_THROW(store::Store::open_read_only(db));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace moetune::reports

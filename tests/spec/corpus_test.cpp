// Training text: which files of a folder are read, in which order, and how much of them.
#include "engine/spec/corpus.h"

#include <sys/resource.h>

#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "kernels/base/error.h"
#include "tests/profiler/temp_folder.h"

namespace moetune::spec {
namespace {

namespace fs = std::filesystem;
using tests::says;

struct TextFolder {
  tests::TempFolder folder;
  std::string root = folder.file("text");

  TextFolder() { fs::create_directory(root); }

  void write(const std::string& name, const std::string& text) const {
    const fs::path path = fs::path(root) / name;
    fs::create_directories(path.parent_path());
    tests::write_text(path, text);
  }
};

// A file of a folder: is it read?
struct FileRow {
  const char* name;
  std::string bytes;
  bool is_read;
};
std::ostream& operator<<(std::ostream& out, const FileRow& row) { return out << row.name; }

const std::string kDatabase = std::string("SQLite format 3") + '\0' + "pages";

const FileRow kFiles[] = {
    {"page.txt", "plain", true},
    {"no_extension", "plain", true},
    {"novel.tex", "plain", true},
    {"lines.jsonl", "{}\n{}\n", true},
    {"script.rs", "fn main() {}\n", true},
    {"wrong name.png", "plain after all", true},
    {"build.log", "a file that is named like a folder", true},
    {"utf8", "na\xc3\xafve \xe2\x82\xac \xf0\x9f\x98\x80", true},
    {"cut off", std::string(4095, 'x') + "\xc3\xaf", true},
    {"latin1",
     "Die Stra\xdf"
     "e f\xfchrt durch den Wald, und sie ist lang.",
     true},
    {"page.html", "<p>no database of this name</p>", true},
    {"notes.lock", "no database of this name either", true},
    {"nul.txt", std::string("text\0text", 9), false},
    {"compressed", "\x1f\x8b\xff\xd8\xe0\x80\x91\xfe\xc0\x01", false},
    {".hidden", "plain", false},
    {".git/config", "plain", false},
    {".deps/CMakeLists.txt", "plain", false},
    {"build/release/log.txt", "plain", false},
    {"sub/build/log.txt", "plain", false},
    {"out/page.html", "plain", false},
    {"web/node_modules/a/index.js", "plain", false},
    {"src/__pycache__/a.txt", "plain", false},
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(corpus, TextFolder)

BOOST_DATA_TEST_CASE_F(TextFolder, files_are_chosen_by_what_they_hold,
                       boost::unit_test::data::make(kFiles), row) {
  write(row.name, row.bytes);
  if (!row.is_read) {
    BOOST_CHECK_EXCEPTION(read_corpus(root), base::UsageError, says(root, "holds no text"));
    return;
  }
  const Corpus corpus = read_corpus(root);
  BOOST_TEST(corpus.bytes == row.bytes);
  BOOST_TEST(corpus.num_files == 1);
  BOOST_TEST(!corpus.is_cut);
}

BOOST_AUTO_TEST_CASE(a_folder_that_cmake_built_in_is_passed_over_whatever_its_name) {
  write("a.txt", "kept");
  write("my-binaries/CMakeCache.txt", "CMAKE_BUILD_TYPE=Release");
  write("my-binaries/deep/log.txt", "built");
  BOOST_TEST(read_corpus(root).bytes == "kept");
}

BOOST_AUTO_TEST_CASE(what_moetune_writes_beside_its_database_does_not_change_the_text) {
  write("a.txt", "kept");
  const std::string digest = read_corpus(root).digest;
  write("runs.db", kDatabase);
  for (const char* name : {"runs.db.lock", "runs.db.text", "runs.db.running/spec.json",
                           "runs.db.reference/state", "runs.html"}) {
    write(name, "written by moetune");
  }
  BOOST_TEST(read_corpus(root).bytes == "kept");
  BOOST_TEST(read_corpus(root).digest == digest);
}

BOOST_AUTO_TEST_CASE(files_follow_each_other_in_path_order) {
  for (const char* name : {"b/z", "a", "b/a", "c.md", "B"}) write(name, std::string(name) + ";");
  const Corpus corpus = read_corpus(root);
  BOOST_TEST(corpus.bytes == "B;a;b/a;b/z;c.md;");
  BOOST_TEST(corpus.num_files == 5);
  BOOST_TEST(read_corpus(root).digest == corpus.digest);
}

BOOST_AUTO_TEST_CASE(links_that_lead_nowhere_are_no_files) {
  write("a.txt", "kept");
  fs::create_symlink("missing", fs::path(root) / "dangling");
  fs::create_symlink("circle", fs::path(root) / "circle");
  BOOST_TEST(read_corpus(root).bytes == "kept");
}

BOOST_AUTO_TEST_CASE(a_file_by_itself_is_read_whatever_it_holds) {
  write(".hidden", std::string("\0\xff\0", 3));
  BOOST_TEST(read_corpus(root + "/.hidden").bytes == std::string("\0\xff\0", 3));
}

BOOST_AUTO_TEST_CASE(text_beyond_the_limit_is_cut_and_said_to_be) {
  const std::string text(10000, 'x');
  write("a", text);
  for (const std::string& path : {root, root + "/a"}) {
    const Corpus whole = read_corpus(path, 10000);
    BOOST_TEST(whole.bytes == text);
    BOOST_TEST(!whole.is_cut);
    for (const int64_t limit : {1, 4096, 8192, 9999}) {
      const Corpus corpus = read_corpus(path, limit);
      BOOST_TEST(corpus.bytes == text.substr(0, static_cast<size_t>(limit)));
      BOOST_TEST(corpus.is_cut);
    }
  }
  // What follows counts when it is text.
  write("b.bin", std::string(8, '\0'));
  BOOST_TEST(!read_corpus(root, 10000).is_cut);
  write("c", "more");
  BOOST_TEST(read_corpus(root, 10000).is_cut);
  BOOST_TEST(read_corpus(root, 10000).num_files == 1);
  BOOST_TEST(read_corpus(root, 10002).bytes == text + "mo");
}

BOOST_AUTO_TEST_CASE(a_huge_file_is_not_held_whole) {
  constexpr int64_t kFileBytes = int64_t{1} << 30;
  write("a", "x");
  fs::resize_file(root + "/a", kFileBytes);
  const auto peak_bytes = [] {
    struct rusage usage {};
    getrusage(RUSAGE_SELF, &usage);
    return int64_t{usage.ru_maxrss} * 1024;
  };
  const int64_t before = peak_bytes();
  BOOST_TEST(read_corpus(root + "/a", 5000).is_cut);
  BOOST_TEST(peak_bytes() - before < kFileBytes / 2);
}

BOOST_AUTO_TEST_CASE(what_cannot_be_read_is_named) {
  BOOST_CHECK_EXCEPTION(read_corpus(root + "/none"), base::UsageError,
                        says("/none", "does not exist"));
  BOOST_CHECK_EXCEPTION(read_corpus(root), base::UsageError, says(root, "holds no text"));
  BOOST_CHECK_EXCEPTION(read_corpus("/dev/null"), base::UsageError,
                        says("/dev/null", "neither a file nor a folder"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::spec

// Small repositories for tests, made by the git program, and a look at whether anything in one has
// changed.
#pragma once

#include <fmt/format.h>
#include <sys/stat.h>

#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "sweeps/processes/process.h"
#include "tests/profiler/temp_folder.h"

namespace moetune::tests {

inline std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

/// An environment variable for the length of a test; what it was comes back.
class Variable {
 public:
  Variable(std::string name, const std::string& value) : name_(std::move(name)) {
    if (const char* old = std::getenv(name_.c_str())) old_ = old;
    setenv(name_.c_str(), value.c_str(), 1);
  }
  ~Variable() {
    if (old_) {
      setenv(name_.c_str(), old_->c_str(), 1);
    } else {
      unsetenv(name_.c_str());
    }
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  std::string name_;
  std::optional<std::string> old_;
};

/// Everything below a folder: kind, contents and time of change of every file, under its path.
inline std::map<std::string, std::string> snapshot(const std::string& folder) {
  namespace fs = std::filesystem;
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    struct stat status {};
    BOOST_REQUIRE(lstat(entry.path().c_str(), &status) == 0);
    std::string contents;
    if (entry.is_symlink()) {
      contents = fs::read_symlink(entry.path());
    } else if (entry.is_regular_file()) {
      contents = text_of(entry.path());
    }
    files[fs::relative(entry.path(), folder)] = fmt::format(
        "{:o} {}.{} {}", status.st_mode, status.st_mtim.tv_sec, status.st_mtim.tv_nsec, contents);
  }
  return files;
}

/// Fails the test with the paths that differ.
inline void check_same(const std::map<std::string, std::string>& before,
                       const std::map<std::string, std::string>& after) {
  for (const auto& [path, state] : before) {
    const auto found = after.find(path);
    BOOST_TEST((found != after.end()), path << " is gone");
    if (found != after.end()) BOOST_TEST((found->second == state), path << " has changed");
  }
  for (const auto& [path, state] : after) BOOST_TEST(before.contains(path), path << " is new");
}

/// A repository in a folder of its own, with settings that do not depend on who runs the tests.
class GitFixture {
 public:
  GitFixture() {
    write_text(config_.file("gitconfig"),
               "[user]\n\tname = Tester\n\temail = tester@localhost\n[init]\n\tdefaultBranch = "
               "main\n[protocol \"file\"]\n\tallow = user\n");
    global_.emplace("GIT_CONFIG_GLOBAL", config_.file("gitconfig"));
    system_.emplace("GIT_CONFIG_NOSYSTEM", "1");
    std::filesystem::create_directories(repo);
    git({"init", "--quiet"});
  }

  /// Standard output of git in a folder, by default the repository; the call must end well.
  std::string git(const std::vector<std::string>& words, const std::string& where = "") const {
    sweeps::Command command{{"/usr/bin/env", "git"}, {}, output_.file("out"), output_.file("err")};
    command.arguments.insert(command.arguments.end(), words.begin(), words.end());
    command.working_directory = where.empty() ? repo : where;
    std::filesystem::remove(command.stdout_path);
    sweeps::SystemProcessRunner runner;
    const auto end = runner.start(command)->wait(std::chrono::seconds(60));
    BOOST_REQUIRE(end.has_value());
    BOOST_REQUIRE_MESSAGE(!end->is_signal && end->code == 0,
                          sweeps::shell_line(command) << ": " << text_of(output_.file("err")));
    return text_of(command.stdout_path);
  }

  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(repo + "/" + path).parent_path());
    write_text(repo + "/" + path, text);
  }

  /// Commits everything that lies in the checkout; returns the id.
  std::string commit(const std::string& message = "a commit") const {
    git({"add", "--all"});
    write_text(output_.file("message"), message);
    git({"commit", "--quiet", "--allow-empty", "--allow-empty-message", "--cleanup=verbatim", "-F",
         output_.file("message")});
    return head();
  }
  /// One more commit, with a file that holds `text`.
  std::string commit_file(const std::string& path, const std::string& text,
                          const std::string& message = "a commit") const {
    write(path, text);
    return commit(message);
  }
  [[nodiscard]] std::string head(const std::string& revision = "HEAD") const {
    std::string id = git({"rev-parse", revision});
    id.pop_back();
    return id;
  }

 private:
  TempFolder config_;
  TempFolder output_;
  std::optional<Variable> global_;
  std::optional<Variable> system_;

 public:
  TempFolder folder;
  std::string repo = folder.file("repo");
};

}  // namespace moetune::tests

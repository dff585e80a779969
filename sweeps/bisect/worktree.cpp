// Makes the bare repository, checks commits out of it, and repairs what a killed process has left.
#include "sweeps/bisect/worktree.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "sweeps/bisect/submodules.h"
#include "sweeps/bisect/text.h"

namespace moetune::sweeps {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMarker = "moetune-bisect";

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Written beside and moved into place, so that nobody reads half of it.
void write_file(const fs::path& path, const std::string& text) {
  const fs::path fresh = path.string() + ".new";
  std::ofstream file(fresh, std::ios::binary);
  file << text << std::flush;
  if (!file) {
    throw base::Error(fmt::format("{}: cannot be written; is the disk full?", path.string()));
  }
  file.close();
  fs::rename(fresh, path);
}

void remove_folder(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) throw base::Error(fmt::format("{}: cannot be removed: {}", path, error.message()));
}

/// Whether `path` is `folder` or lies in it; both without links and "..".
bool is_in(const fs::path& path, const fs::path& folder) {
  const auto [folder_end, rest] =
      std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return folder_end == folder.end();
}

/// A value in git's config syntax.
std::string config_value(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '\n') {
      quoted += "\\n";
    } else {
      if (c == '"' || c == '\\') quoted += '\\';
      quoted += c;
    }
  }
  return quoted + "\"";
}

}  // namespace

ScratchRepository::ScratchRepository(const GitRepository& source, const std::string& folder)
    : source_(source) {
  if (folder.empty()) throw base::UsageError("the scratch folder has no name");
  std::error_code error;
  folder_ = fs::weakly_canonical(fs::absolute(folder), error);
  if (error) {
    throw base::UsageError(
        fmt::format("the scratch folder '{}' cannot be used: {}", folder, error.message()));
  }
  while (folder_.size() > 1 && folder_.ends_with('/')) folder_.pop_back();
  for (const std::string& users : {source.root(), source.common_folder()}) {
    if (is_in(folder_, fs::weakly_canonical(users))) {
      throw base::UsageError(fmt::format(
          "the scratch folder {} lies in the repository {}, which is not to be touched; name one "
          "outside of it with --scratch",
          folder_, users));
    }
  }
  fs::create_directories(folder_, error);
  if (error) {
    throw base::UsageError(
        fmt::format("the scratch folder {} cannot be created: {}", folder_, error.message()));
  }
  take_marker();
  try {
    make_repository();
    borrow_from_source();
  } catch (...) {
    close(marker_);
    throw;
  }
}

ScratchRepository::~ScratchRepository() { close(marker_); }

void ScratchRepository::take_marker() {
  const std::string path = folder_ + "/" + kMarker;
  std::error_code ignored;
  if (!fs::exists(path, ignored) && !fs::is_empty(folder_, ignored)) {
    throw base::UsageError(
        fmt::format("the scratch folder {} holds other files; name an empty one, or one that does "
                    "not exist, with --scratch",
                    folder_));
  }
  marker_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (marker_ < 0) {
    throw base::UsageError(
        fmt::format("the scratch folder {} cannot be written: {}", folder_, std::strerror(errno)));
  }
  // The lock is gone with the process, however that ends.
  std::string problem;
  bool is_usage = true;
  if (flock(marker_, LOCK_EX | LOCK_NB) != 0) {
    is_usage = false;
    problem = fmt::format(
        "the scratch folder {} is used by another moetune; wait until it is done, or stop it",
        folder_);
  } else if (const std::string owner = read_file(path); owner.empty()) {
    const std::string text = source_.common_folder() + "\n";
    if (write(marker_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
      problem =
          fmt::format("the scratch folder {} cannot be written: {}", folder_, std::strerror(errno));
    }
  } else if (owner != source_.common_folder() + "\n") {
    problem = fmt::format(
        "the scratch folder {} was made for the repository {}, not for {}; name another folder, or "
        "remove it",
        folder_, plain_text(owner, 300), source_.common_folder());
  }
  if (problem.empty()) return;
  close(marker_);
  if (is_usage) throw base::UsageError(problem);
  throw base::Error(problem);
}

void ScratchRepository::make_repository() const {
  const std::string done = git_folder() + "/moetune-ready";
  if (fs::exists(done)) return;
  remove_folder(git_folder());
  const GitProgram& git = source_.git();
  const std::string format = git.line(source_.root(), {"rev-parse", "--show-object-format"});
  // Without a template: no hooks.
  git.text(folder_, {"init", "--quiet", "--bare", "--template=", "--object-format=" + format, "--",
                     git_folder()});
  // The user's settings of this repository (filters, addresses, credentials) hold here as well, by
  // reference. What follows them wins.
  std::string settings = fmt::format(
      "[include]\n\tpath = {}\n"
      "[core]\n\tbare = true\n\thooksPath = /dev/null\n\tsparseCheckout = false\n"
      "\tfsmonitor = false\n"
      "[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n",
      config_value(source_.common_folder() + "/config"));
  // What addresses of submodules such as "../other" are relative to.
  if (git.run(source_.root(), {"config", "--get", "remote.origin.url"}).code != 0) {
    settings += fmt::format("[remote \"origin\"]\n\turl = {}\n", config_value(source_.root()));
  }
  write_file(git_folder() + "/config", read_file(git_folder() + "/config") + settings);
  write_file(done, "");
}

void ScratchRepository::borrow_from_source() const {
  const GitProgram& git = source_.git();
  const std::string objects =
      git.line(source_.root(), {"rev-parse", "--path-format=absolute", "--git-path", "objects"});
  fs::create_directories(git_folder() + "/objects/info");
  write_file(git_folder() + "/objects/info/alternates", objects + "\n");
  // Where a shallow clone's history ends.
  const std::string shallow = source_.common_folder() + "/shallow";
  if (fs::exists(shallow)) write_file(git_folder() + "/shallow", read_file(shallow));
  // Branches and tags as they are now: builds name themselves by 'git describe'.
  std::istringstream refs(
      git.text(source_.root(), {"for-each-ref", "--format=%(objectname) %(refname)"}));
  std::string packed = "# pack-refs with: sorted \n";
  for (std::string line; std::getline(refs, line);) packed += line + "\n";
  write_file(git_folder() + "/packed-refs", packed);
}

Worktree::Worktree(const ScratchRepository& scratch, std::string path)
    : scratch_(scratch), git_(scratch.source().git().not_above(path)), path_(std::move(path)) {}

bool Worktree::is_ours() const {
  std::error_code ignored;
  if (!fs::is_regular_file(fs::symlink_status(path_ + "/.git", ignored))) return false;
  const GitProgram::Output common =
      git_.run(path_, {"rev-parse", "--path-format=absolute", "--git-common-dir"});
  return common.code == 0 && common.out == scratch_.git_folder() + "\n";
}

bool Worktree::reuse(const std::string& id) const {
  if (!is_ours()) return false;
  // Either fails for instance on the lock that a killed git left.
  return git_.run(path_, {"checkout", "--force", "--detach", "--quiet", id, "--"}).code == 0 &&
         git_.run(path_, {"clean", "-ffdxq"}).code == 0;
}

void Worktree::checkout(const std::string& id, std::chrono::milliseconds limit) const {
  MOETUNE_CHECK(is_commit_id(id), "'{}' is no commit id", id);
  const GitRepository& source = scratch_.source();
  if (!reuse(id)) {
    remove_folder(path_);
    const std::string git_folder = "--git-dir=" + scratch_.git_folder();
    git_.text(scratch_.folder(), {git_folder, "worktree", "prune", "--expire=now"});
    fs::create_directories(fs::path(path_).parent_path());
    // Twice --force: also over the lock of a "worktree add" that was killed.
    git_.text(scratch_.folder(),
              {git_folder, "worktree", "add", "--force", "--force", "--detach", "--quiet", "--",
               path_, id},
              limit);
  }
  // A linked worktree of the user's has submodules of its own, where they were wanted in it.
  std::string modules = source.git_folder() + "/modules";
  if (!fs::exists(modules)) modules = source.common_folder() + "/modules";
  update_submodules(git_, path_, modules, limit);
}

}  // namespace moetune::sweeps

// Fetches what a commit's .gitmodules names. "git submodule init" is never called: it would write
// to the config. Setting submodule.active makes git take the addresses from .gitmodules.
#include "sweeps/bisect/submodules.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>

#include "kernels/base/units.h"
#include "sweeps/bisect/git.h"
#include "sweeps/bisect/text.h"

namespace moetune::sweeps {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr int kMaxNesting = 10;

struct Submodule {
  std::string name;
  std::string path;
  std::string commit;
};

/// The commit that the checked-out tree names for a submodule; empty: it names none.
std::string pinned_commit(const GitProgram& git, const std::string& folder,
                          const std::string& path) {
  // "160000 commit <id>\t<path>\0"
  const std::string entry = git.text(folder, {"ls-tree", "-z", "HEAD", "--", path});
  constexpr std::string_view kGitlink = "160000 commit ";
  const size_t tab = entry.find('\t');
  if (!entry.starts_with(kGitlink) || tab == std::string::npos) return {};
  std::string id = entry.substr(kGitlink.size(), tab - kGitlink.size());
  return is_commit_id(id) ? id : std::string();
}

std::vector<Submodule> submodules_of(const GitProgram& git, const std::string& folder) {
  if (!fs::is_regular_file(fs::symlink_status(fs::path(folder) / ".gitmodules"))) return {};
  const GitProgram::Output paths = git.run(
      folder, {"config", "-z", "--file", ".gitmodules", "--get-regexp", "^submodule\\..*\\.path$"});
  std::vector<Submodule> submodules;
  std::string_view rest = paths.code == 0 ? std::string_view(paths.out) : std::string_view();
  while (!rest.empty()) {
    // "submodule.<name>.path\n<path>\0"
    const std::string_view entry = rest.substr(0, rest.find('\0'));
    rest.remove_prefix(std::min(entry.size() + 1, rest.size()));
    const size_t newline = entry.find('\n');
    constexpr std::string_view kPrefix = "submodule.";
    constexpr std::string_view kSuffix = ".path";
    if (newline == std::string_view::npos || newline < kPrefix.size() + kSuffix.size()) continue;
    Submodule submodule;
    submodule.name = entry.substr(kPrefix.size(), newline - kPrefix.size() - kSuffix.size());
    submodule.path = entry.substr(newline + 1);
    submodule.commit = pinned_commit(git, folder, submodule.path);
    // Listed but not in the tree: left over in .gitmodules, git passes over it too.
    if (!submodule.commit.empty()) submodules.push_back(std::move(submodule));
  }
  return submodules;
}

/// The user's own clone of a submodule, when it has the wanted commit.
std::optional<std::string> known_clone(const GitProgram& git, const std::string& known_modules,
                                       const Submodule& submodule) {
  // As a config key the name must not end early or name another folder.
  if (known_modules.empty() || submodule.name.find("..") != std::string::npos ||
      submodule.name.find_first_of("=\n") != std::string::npos) {
    return std::nullopt;
  }
  const std::string clone = known_modules + "/" + submodule.name;
  std::error_code ignored;
  if (!fs::is_regular_file(clone + "/HEAD", ignored)) return std::nullopt;
  const GitProgram::Output has =
      git.run(clone, {"--git-dir=.", "cat-file", "-e", submodule.commit + "^{commit}"});
  return has.code == 0 ? std::optional(clone) : std::nullopt;
}

GitProgram::Output update(const GitProgram& git, const std::string& folder, const Submodule& module,
                          const std::vector<std::string>& settings, milliseconds limit) {
  std::vector<std::string> arguments = {"-c", "submodule.active=."};
  arguments.insert(arguments.end(), settings.begin(), settings.end());
  for (const char* word : {"submodule", "--quiet", "update", "--checkout", "--force", "--"}) {
    arguments.emplace_back(word);
  }
  arguments.push_back(module.path);
  return git.run(folder, arguments, limit);
}

void update_one(const GitProgram& git, const std::string& folder, const Submodule& submodule,
                const std::optional<std::string>& clone, milliseconds limit) {
  const std::string path = folder + "/" + submodule.path;
  const std::vector<std::string> may_copy = {"-c", "protocol.file.allow=always"};
  if (clone) {
    std::vector<std::string> settings = may_copy;
    settings.insert(settings.end(), {"-c", "submodule." + submodule.name + ".url=" + *clone});
    if (update(git, folder, submodule, settings, limit).code == 0) {
      // Addresses of nested submodules may be relative to the real one's.
      const GitProgram::Output address =
          git.run(*clone, {"--git-dir=.", "config", "--get", "remote.origin.url"});
      if (address.code == 0) {
        git.text(path,
                 {"config", "remote.origin.url", address.out.substr(0, address.out.size() - 1)});
      }
      return;
    }
  }
  GitProgram::Output result = update(git, folder, submodule, {}, limit);
  // Since 2.38 git refuses folders of this machine as addresses unless told that it may.
  if (result.code != 0 && result.err.find("transport 'file' not allowed") != std::string::npos) {
    result = update(git, folder, submodule, may_copy, limit);
  }
  if (result.code != 0) {
    throw base::Error(fmt::format("the submodule '{}' cannot be checked out at {}: git: {}",
                                  plain_text(submodule.path), base::short_commit(submodule.commit),
                                  result.complaint()));
  }
}

void update_all(const GitProgram& git, const std::string& folder, const std::string& known_modules,
                milliseconds limit, int depth) {
  MOETUNE_CHECK(depth < kMaxNesting, "{}: submodules are nested more than {} deep", folder,
                kMaxNesting);
  for (const Submodule& submodule : submodules_of(git, folder)) {
    const std::optional<std::string> clone = known_clone(git, known_modules, submodule);
    update_one(git, folder, submodule, clone, limit);
    const std::string path = folder + "/" + submodule.path;
    const GitProgram inside = git.not_above(path);
    inside.text(path, {"reset", "--hard", "--quiet"});
    inside.text(path, {"clean", "-ffdxq"});
    update_all(inside, path, clone ? *clone + "/modules" : "", limit, depth + 1);
  }
}

}  // namespace

void update_submodules(const GitProgram& git, const std::string& folder,
                       const std::string& known_modules, milliseconds limit) {
  update_all(git, folder, known_modules, limit, 0);
}

}  // namespace moetune::sweeps

#include "sweeps/config_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "engine/spec/dialects/forms.h"
#include "engine/spec/dialects/shell.h"
#include "kernels/base/error.h"
#include "sweeps/load.h"

namespace moetune::sweeps {
namespace {

namespace fs = std::filesystem;
namespace dialects = spec::dialects;

/// Names of more bytes, and with control characters, are no files' names.
bool may_be_name(const std::string& name) {
  constexpr size_t kLongest = 1024;
  return !name.empty() && name.size() <= kLongest && std::ranges::none_of(name, [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
  });
}

/// Without links; empty where there is nothing.
fs::path real_path(const fs::path& path) {
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  return error ? fs::path() : real;
}

/// From `root` to what lies below it, both without links; empty: it lies elsewhere.
std::string below(const fs::path& root, const fs::path& path) {
  if (root.empty() || path.empty()) return {};
  const fs::path relative = path.lexically_relative(root);
  if (relative.empty() || *relative.begin() == ".." || relative == ".") return {};
  return relative.generic_string();
}

std::string folder_of(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

/// The nearest folder at or above that of an experiment that has Primus' own models: a checkout of
/// it, where its experiments lie deeper. Empty: there is none.
std::string checkout_with(const std::string& path) {
  constexpr int kMostAbove = 8;
  fs::path folder = real_path(folder_of(path));
  for (int i = 0; i <= kMostAbove && !folder.empty(); ++i, folder = folder.parent_path()) {
    std::error_code error;
    if (fs::is_directory(folder / "primus/configs/models", error)) return folder;
    if (folder == folder.parent_path()) break;
  }
  return {};
}

/// The place of the file in the folder, in its checkout where none is given; where it lies
/// elsewhere, in its own.
std::pair<std::shared_ptr<ConfigFolder>, std::string> folder_for(const ConfigPlace& config) {
  const std::string given = config.folder.empty() ? checkout_with(config.path) : config.folder;
  for (const std::string& folder : {given, folder_of(config.path)}) {
    if (folder.empty()) continue;
    auto files = std::make_shared<ConfigFolder>(folder);
    if (std::string place = files->place_of(config.path); !place.empty()) {
      return {std::move(files), std::move(place)};
    }
  }
  return {};
}

}  // namespace

ConfigFolder::ConfigFolder(const std::string& folder) : root_(real_path(folder).string()) {}

std::string ConfigFolder::place_of(const std::string& path) const {
  // A link counts where it stands.
  const fs::path name = fs::path(path).filename();
  return name.empty() ? std::string() : below(root_, real_path(folder_of(path)) / name);
}

const ConfigFolder::File* ConfigFolder::first_of(const std::vector<std::string>& places) {
  for (const std::string& place : places) {
    if (root_.empty() || !may_be_name(place)) continue;
    const auto known = files_.find(place);
    if (known != files_.end()) return &known->second;
    const fs::path path = real_path(fs::path(root_) / place);
    std::error_code error;
    if (below(root_, path).empty() || !fs::is_regular_file(path, error)) continue;
    if (files_.size() == kMostFiles) {
      throw base::UsageError(
          fmt::format("{}: a configuration may name {} files, and this is one more",
                      shown_path(place), kMostFiles));
    }
    const uintmax_t size = fs::file_size(path, error);
    if (error || num_bytes_ + size > kMostBytes) {
      throw base::UsageError(
          fmt::format("{}: the files that a configuration names may have {} bytes together",
                      shown_path(place), kMostBytes));
    }
    File file{place, read_spec_file(path)};
    num_bytes_ += file.text.size();
    return &files_.emplace(place, std::move(file)).first->second;
  }
  return nullptr;
}

std::vector<std::string> ConfigFolder::paths() const {
  std::vector<std::string> paths;
  for (const auto& [place, file] : files_) paths.push_back(real_path(fs::path(root_) / place));
  return paths;
}

std::shared_ptr<ConfigFolder> find_named_files(const ConfigPlace& config, dialects::Dialect dialect,
                                               dialects::ImportOptions& how) {
  if (dialect != dialects::Dialect::primus) return nullptr;
  auto [files, place] = folder_for(config);
  how.named = files;
  how.place = std::move(place);
  return files;
}

NamedByCommand read_named_by_command(const std::string& text,
                                     const std::vector<std::string>& folders, Reach reach,
                                     dialects::ImportOptions& how) {
  NamedByCommand named;
  std::vector<ConfigFolder> all_files(folders.begin(), folders.end());
  const auto read = [&](const fs::path& name) -> std::optional<std::string> {
    std::error_code error;
    for (size_t i = 0; i < folders.size(); ++i) {
      if (reach == Reach::folder) {
        const auto* file = all_files[i].first_of({name.lexically_normal().generic_string()});
        if (file != nullptr) return file->text;
      } else if (const fs::path path = fs::path(folders[i]) / name;
                 fs::is_regular_file(path, error)) {
        return read_spec_file(path);
      }
    }
    return std::nullopt;
  };
  // By their names without the folder; empty: several have it.
  std::map<std::string, std::optional<std::string>> by_name;
  for (const dialects::ShellCommand& command : dialects::read_shell(text, how.source)) {
    for (const std::string& word : command.words) {
      const fs::path name(word.substr(word.rfind('=') + 1));
      const std::string extension = name.extension();
      if (extension != ".toml" && extension != ".yaml" && extension != ".yml") continue;
      std::optional<std::string> content = read(name);
      if (content) {
        named.all += *content;
        const auto [same, is_new] = by_name.try_emplace(name.filename(), content);
        if (!is_new && same->second != content) same->second.reset();
        how.files[name] = std::move(*content);
      } else if (extension == ".toml") {
        named.missing.push_back(name);
      }
    }
  }
  for (auto& [name, content] : by_name) {
    if (content) how.files.emplace(name, std::move(*content));
  }
  return named;
}

std::shared_ptr<ConfigFolder> read_named_files(const ConfigPlace& config, const std::string& text,
                                               dialects::Dialect dialect,
                                               dialects::ImportOptions& how) {
  const bool is_command = dialects::form_of(text) == dialects::Form::command;
  if (dialect == dialects::Dialect::torchtitan && is_command) {
    // A script is started in the folder of the run, or where it lies.
    std::vector<std::string> folders = {folder_of(config.path)};
    if (!config.folder.empty()) folders.push_back(config.folder);
    read_named_by_command(text, folders, Reach::folder, how);
    how.place = shown_path(folders.back());
  }
  // Experiments of Primus name files in torchtitan's words, too.
  const bool is_experiment = dialects::is_experiment(text);
  return find_named_files(config, is_experiment ? dialects::Dialect::primus : dialect, how);
}

}  // namespace moetune::sweeps

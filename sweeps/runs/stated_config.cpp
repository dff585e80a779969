#include "sweeps/runs/stated_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>
#include <utility>

#include "kernels/base/error.h"
#include "sweeps/config_files.h"
#include "sweeps/diagnosis.h"
#include "sweeps/load.h"
#include "sweeps/runs/other_config.h"

namespace moetune::sweeps {

std::string not_understood(const std::string& source, const std::string& why) {
  std::string_view said = why;
  const std::string prefix = source + ": ";
  if (said.starts_with(prefix)) said.remove_prefix(prefix.size());
  return fmt::format("{} is not understood: {}", source, said);
}

void add_notes_of(const spec::dialects::RunConfig& config, const std::string& source,
                  std::vector<std::string>& notes) {
  for (const std::string& note : config.notes) {
    notes.push_back(fmt::format("{}: {}", source, note));
  }
}

namespace {

namespace fs = std::filesystem;
namespace dialects = spec::dialects;

/// A file that may be the run's configuration.
struct Candidate {
  std::string path;
  bool is_unread = false;  ///< its reader has refused it by itself
  bool is_preset = false;  ///< a YAML of Primus that is no experiment: others may name it
  bool is_experiment = false;
};

/// Whether a path begins with a folder's, which may end with '/'.
bool is_in(const std::string& path, const std::string& folder) {
  if (folder.empty() || !path.starts_with(folder)) return false;
  return path.size() == folder.size() || folder.ends_with('/') || path[folder.size()] == '/';
}

/// Of a file that was found in a folder, or named by itself.
ConfigPlace place_of(const RunFolder& files, const std::string& path) {
  ConfigPlace place{path};
  for (const std::string& folder : files.folders) {
    if (folder.size() > place.folder.size() && is_in(path, folder)) place.folder = folder;
  }
  return place;
}

/// Takes what was read from what may be, also where the reader throws.
class Spent {
 public:
  Spent(const ConfigFolder* named, size_t& bytes_left) : named_(named), bytes_left_(bytes_left) {}
  ~Spent() {
    if (named_ != nullptr) bytes_left_ -= std::min(bytes_left_, named_->num_bytes());
  }
  Spent(const Spent&) = delete;
  Spent& operator=(const Spent&) = delete;

 private:
  const ConfigFolder* named_;
  size_t& bytes_left_;
};

/// Reads one, within what is left of `bytes_left` for the files that are named. Throws
/// base::UsageError.
std::optional<dialects::RunConfig> read_config(const RunFolder& files, const std::string& path,
                                               int64_t world_size, size_t& bytes_left) {
  const std::string text = read_spec_file(path);
  const auto dialect = dialects::detect_dialect(text);
  if (!dialect) return std::nullopt;
  dialects::ImportOptions how;
  how.source = path;
  const auto named = read_named_files(place_of(files, path), text, *dialect, how);
  if (named != nullptr && bytes_left == 0) {
    throw base::UsageError("the files that others before it name are too large");
  }
  const auto import = [&] {
    const Spent spent(named.get(), bytes_left);
    return dialects::import_run(text, *dialect, how);
  };
  dialects::RunConfig config = import();
  if (config.world_size == 0 && world_size > 0) {
    how.world_size = world_size;
    config = import();
  }
  return config;
}

/// All, each with what it is by its text alone.
std::vector<Candidate> candidates_of(const RunFolder& files) {
  std::vector<Candidate> candidates;
  for (const auto* paths : {&files.configs, &files.unread_configs}) {
    for (const std::string& path : *paths) {
      Candidate candidate{.path = path, .is_unread = paths == &files.unread_configs};
      try {
        const std::string text = read_spec_file(path);
        candidate.is_experiment = dialects::is_experiment(text);
        candidate.is_preset =
            !candidate.is_experiment && dialects::detect_dialect(text) == dialects::Dialect::primus;
      } catch (const base::UsageError&) {
        // Whoever reads it says so.
      }
      candidates.push_back(std::move(candidate));
    }
  }
  return candidates;
}

/// The files that each of some candidates names, by their paths without links.
using NamedPaths = std::vector<std::set<fs::path>>;

std::set<fs::path> paths_named_by(const RunFolder& files, const Candidate& candidate,
                                  size_t& num_bytes) {
  std::set<fs::path> paths;
  dialects::ImportOptions how;
  const ConfigPlace place = place_of(files, candidate.path);
  const auto folder = find_named_files(place, dialects::Dialect::primus, how);
  try {
    dialects::import_run(read_spec_file(candidate.path), dialects::Dialect::primus, how);
  } catch (const base::UsageError&) {
    // As far as it was read.
  }
  if (folder == nullptr) return paths;
  num_bytes += folder->num_bytes();
  for (const std::string& path : folder->paths()) paths.insert(path);
  return paths;
}

/// Without those that are parts of others. Files that name each other all stay.
std::vector<Candidate> without_parts(const RunFolder& files, std::vector<Candidate> candidates) {
  if (candidates.size() < 2) return candidates;
  // Each is read with all that it names.
  constexpr size_t kMostAsked = 8;
  constexpr size_t kMostBytes = 2 * ConfigFolder::kMostBytes;
  std::vector<size_t> asked;
  size_t num_bytes = 0;
  NamedPaths named(candidates.size());
  std::vector<fs::path> real(candidates.size());
  for (size_t i = 0; i < candidates.size(); ++i) {
    std::error_code error;
    real[i] = fs::canonical(candidates[i].path, error);
    const bool may_name = candidates[i].is_experiment || candidates[i].is_preset;
    if (!may_name || asked.size() == kMostAsked || num_bytes > kMostBytes) continue;
    asked.push_back(i);
    named[i] = paths_named_by(files, candidates[i], num_bytes);
  }
  std::vector<Candidate> kept;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const bool is_part = std::ranges::any_of(asked, [&](size_t j) {
      return j != i && named[j].contains(real[i]) && !named[i].contains(real[j]);
    });
    if (!is_part) kept.push_back(candidates[i]);
  }
  return kept;
}

/// Experiments take the places of presets that stand before them; all else stays where it is.
void put_experiments_first(std::vector<Candidate>& candidates) {
  std::vector<size_t> places;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].is_experiment || candidates[i].is_preset) places.push_back(i);
  }
  std::vector<Candidate> ordered;
  for (const bool is_experiment : {true, false}) {
    for (const size_t place : places) {
      if (candidates[place].is_experiment == is_experiment) ordered.push_back(candidates[place]);
    }
  }
  for (size_t i = 0; i < places.size(); ++i) candidates[places[i]] = std::move(ordered[i]);
}

/// Whether it is an experiment beside the one that is read, whose text is empty where that is none.
/// A copy says nothing else.
bool is_other_experiment(const Candidate& candidate, const std::string& text) {
  return !text.empty() && candidate.is_experiment && read_spec_file(candidate.path) != text;
}

}  // namespace

StatedConfig config_of_files(const RunFolder& files, const RunFacts* logged, int64_t world_size,
                             std::vector<std::string>& notes) {
  StatedConfig stated;
  std::vector<std::string> left_out;
  std::vector<std::string> passed_over;
  std::vector<std::string> of_others;
  std::vector<Candidate> candidates = candidates_of(files);
  put_experiments_first(candidates);
  size_t bytes_left = 4 * ConfigFolder::kMostBytes;
  std::string experiment;  // that is read
  for (const Candidate& candidate : without_parts(files, std::move(candidates))) {
    try {
      std::optional<dialects::RunConfig> config;
      if (!stated.config || candidate.is_unread) {
        config = read_config(files, candidate.path, world_size, bytes_left);
      }
      if (stated.config && is_other_experiment(candidate, experiment)) {
        passed_over.push_back(
            fmt::format("{} is another experiment and is not read", candidate.path));
      }
      if (stated.config || !config) continue;
      if (logged != nullptr) {
        if (std::string other = of_other_run(candidate.path, *logged, *config, notes);
            !other.empty()) {
          of_others.push_back(std::move(other));
          continue;
        }
      }
      add_notes_of(*config, candidate.path, notes);
      stated.config = std::move(config);
      stated.source = candidate.path;
      if (candidate.is_experiment) experiment = read_spec_file(candidate.path);
    } catch (const base::UsageError& error) {
      left_out.push_back(not_understood(candidate.path, error.what()));
    }
  }
  stated.has_unread = !left_out.empty();
  stated.has_other = !of_others.empty();
  add_left_out(of_others, notes);
  add_left_out(left_out, notes);
  add_left_out(passed_over, notes);
  return stated;
}

}  // namespace moetune::sweeps

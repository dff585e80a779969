// Files with settings that a run's configuration or command names.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/spec/dialects/run_config.h"

namespace moetune::sweeps {

/// The files of one folder that a text names. Nothing outside of it is read, whatever names and
/// links say; what is no regular file is not there.
class ConfigFolder final : public spec::dialects::NamedFileSource {
 public:
  /// Files that are read, and their bytes.
  static constexpr size_t kMostFiles = 64;
  static constexpr size_t kMostBytes = size_t{1} << 20;

  explicit ConfigFolder(const std::string& folder);
  /// Throws base::UsageError, which names the file, where it cannot be read, and beyond the limits.
  const File* first_of(const std::vector<std::string>& places) override;
  /// Where a file lies in the folder; empty: it does not.
  [[nodiscard]] std::string place_of(const std::string& path) const;
  /// Of all that were read, by their places.
  [[nodiscard]] const std::map<std::string, File>& files() const { return files_; }
  /// The same by their paths without links.
  [[nodiscard]] std::vector<std::string> paths() const;
  [[nodiscard]] size_t num_bytes() const { return num_bytes_; }

 private:
  std::string root_;  ///< without links; empty: there is none
  std::map<std::string, File> files_;
  size_t num_bytes_ = 0;
};

/// Of a file with a run's settings.
struct ConfigPlace {
  std::string path;
  /// Nothing outside is read. Empty: the checkout of Primus that an experiment lies in, where that
  /// has Primus' models. Else, and where the file lies elsewhere, its own.
  std::string folder{};
};

/// Lets the reader find what an experiment of Primus names. Null of other dialects, whose
/// configurations name nothing.
std::shared_ptr<ConfigFolder> find_named_files(const ConfigPlace& config,
                                               spec::dialects::Dialect dialect,
                                               spec::dialects::ImportOptions& how);

/// What a command or script names.
struct NamedByCommand {
  std::string all;                   ///< the texts, one behind the other
  std::vector<std::string> missing;  ///< names of those that are not there
};
enum class Reach : uint8_t {
  folder,    ///< only below the folder
  anywhere,  ///< wherever the command's own words lead
};
/// Configuration files that a command names, in the first folder that has them, into `how`: by the
/// words that name them, and by their names without the folder where one file has that.
NamedByCommand read_named_by_command(const std::string& text,
                                     const std::vector<std::string>& folders, Reach reach,
                                     spec::dialects::ImportOptions& how);

/// Whatever the file is, what it names below the folder. Null where that is not the reader's to
/// ask.
std::shared_ptr<ConfigFolder> read_named_files(const ConfigPlace& config, const std::string& text,
                                               spec::dialects::Dialect dialect,
                                               spec::dialects::ImportOptions& how);

}  // namespace moetune::sweeps

// Files that come with the programs and are found by name: models, hardware, sweeps, texts. The one
// place that knows where they are, so that nothing else depends on where the sources were built.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moetune::spec {

enum class Shelf : uint8_t { model, hardware, sweep, text };

struct ShelfRow {
  Shelf shelf;
  std::string_view word;    ///< in messages: "there is no model ..."
  std::string_view folder;  ///< below the share folder
};
std::span<const ShelfRow> shelf_table();

/// The folder that the environment variable MOETUNE_SHARE names, else ../share/moetune of the
/// running program's folder: of an installed program what was installed with it, in a build folder
/// links to the sources. It may not exist.
std::filesystem::path share_folder();

/// A file's name as it is compared and listed: lower case, dashes for underscores, without .json or
/// .txt. "engine/models/qwen3_30b_a3b.json" is "qwen3-30b-a3b".
std::string library_name(std::string_view file);
/// All names on a shelf, sorted; empty when the share folder does not have it.
std::vector<std::string> library_names(Shelf shelf);
/// The file that a name stands for, empty when there is none. A text with a slash is no name.
std::string find_in_library(Shelf shelf, std::string_view name);

/// The one file that a name is short for: the same without dashes and dots (deepseekv3), else the
/// only one that goes on behind it (moonlight). Empty where there is none, and where there are
/// several.
std::string likely_in_library(Shelf shelf, std::string_view name);

/// The file that a person means: a path, relative to `folder`, or else a name. Empty when it is
/// neither.
std::string find_file(Shelf shelf, const std::string& path_or_name, const std::string& folder);

/// For a message about a name that was not found: "did you mean 'a' or 'b'?", or all names of the
/// shelf when none is near, or where they were looked for when there are none.
std::string library_hint(Shelf shelf, std::string_view name);

}  // namespace moetune::spec

// Files that a run has left where a sweep file says they are.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace moetune::sweeps {

/// Tells whether a file has changed.
struct FileMark {
  int64_t modified_ns = 0;
  int64_t bytes = 0;
  bool operator==(const FileMark&) const = default;
};
/// By path.
using FileMarks = std::map<std::string, FileMark>;

/// Regular files that match `patterns` (glob, separated by blanks, escaped with \), relative to
/// `folder`. A matched folder stands for all files below it, except hidden ones. Throws
/// base::UsageError for more than 20,000 of them.
FileMarks files_at(std::string_view patterns, const std::string& folder);
/// `name` with all glob characters escaped.
std::string escaped_for_patterns(std::string_view name);
/// Files of files_at() that are new or have changed since `before`.
std::vector<std::string> changed_files(std::string_view patterns, const std::string& folder,
                                       const FileMarks& before);
/// Bytes of all of them together.
int64_t bytes_of(const std::vector<std::string>& files);
/// The last bytes of a file, at most so many.
std::string end_of_file(const std::string& path, int64_t most_bytes);

}  // namespace moetune::sweeps

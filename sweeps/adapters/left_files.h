// Files that a run has left where a sweep file says they are.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace moetune::sweeps {

/// Files by their paths, with what tells one state of a file from another.
struct FileMark {
  int64_t modified_ns = 0;
  int64_t bytes = 0;
  bool operator==(const FileMark&) const = default;
};
using FileMarks = std::map<std::string, FileMark>;

/// Of paths and patterns with *, separated by blanks, from `folder`; a backslash takes a character
/// as it is. Of a folder all files below it but hidden ones; throws base::UsageError where they are
/// more than 20,000.
FileMarks files_at(std::string_view patterns, const std::string& folder);
/// A name in which nothing is a pattern's.
std::string escaped_for_patterns(std::string_view name);
/// Of those the files that are not as they were `before`: what an earlier run has left is not this
/// one's.
std::vector<std::string> files_left(std::string_view patterns, const std::string& folder,
                                    const FileMarks& before);
/// Bytes of all of them together.
int64_t bytes_of(const std::vector<std::string>& files);
/// The last bytes of a file, at most so many.
std::string end_of_file(const std::string& path, int64_t most_bytes);

}  // namespace moetune::sweeps

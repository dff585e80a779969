// Files that a run has left where a sweep file says they are.
#pragma once

#include <ctime>
#include <string>
#include <string_view>
#include <vector>

namespace moetune::sweeps {

/// Paths and patterns with *, separated by blanks, from `folder`; only what was written at or after
/// `since` (seconds since 1970): what an earlier run has left is not this one's.
std::vector<std::string> files_left(std::string_view patterns, const std::string& folder,
                                    std::time_t since);
/// Bytes of all of them together.
int64_t bytes_of(const std::vector<std::string>& files);
/// The last bytes of a file, at most so many.
std::string end_of_file(const std::string& path, int64_t most_bytes);

}  // namespace moetune::sweeps

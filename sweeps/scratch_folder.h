// A folder for what nobody asked to keep.
#pragma once

#include <stdlib.h>  // mkdtemp is POSIX's, not the standard library's

#include <filesystem>
#include <string>
#include <system_error>

#include "kernels/base/error.h"

namespace moetune::sweeps {

/// A new folder in the temporary one, for this user alone, removed with all that is in it.
class ScratchFolder {
 public:
  explicit ScratchFolder(const std::string& name) {
    std::string pattern = std::filesystem::temp_directory_path() / (name + "-XXXXXX");
    MOETUNE_CHECK(mkdtemp(pattern.data()) != nullptr, "{}: cannot be created", pattern);
    path_ = pattern;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace moetune::sweeps

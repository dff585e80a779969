// Training text: any file, or all text files of a folder, read as bytes (vocabulary 256).
#pragma once

#include <cstdint>
#include <string>

namespace moetune::spec {

struct Corpus {
  std::string bytes;
  std::string digest;  ///< FNV-1a 64 of the bytes, 16 hexadecimal digits
  int64_t num_files = 0;
};

/// Reads a file as it is, or the text files below a folder in path order (source, markup and plain
/// text by extension; hidden folders, build outputs and dependencies are passed over), up to 64
/// MiB. Throws base::UsageError when nothing readable is there.
Corpus read_corpus(const std::string& path);

}  // namespace moetune::spec

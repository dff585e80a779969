// Training text: any file, or all text files of a folder, read as bytes (vocabulary 256).
#pragma once

#include <cstdint>
#include <string>

namespace moetune::spec {

/// What is read of a training text unless the caller says otherwise; larger ones are cut.
constexpr int64_t kMaxCorpusBytes = int64_t{64} << 20;

struct Corpus {
  std::string bytes;
  std::string digest;  ///< FNV-1a 64 of the bytes, 16 hexadecimal digits
  int64_t num_files = 0;
  bool is_cut = false;  ///< there is more text than was read
};

/// Reads a file as it is, or the files below a folder that look like text, whatever their names,
/// in path order. Passed over in a folder: what is hidden, build outputs and dependencies, and what
/// moetune keeps beside a runs database. At most `max_bytes` are read, also of a larger file.
/// Throws base::UsageError when nothing readable is there.
Corpus read_corpus(const std::string& path, int64_t max_bytes = kMaxCorpusBytes);

}  // namespace moetune::spec

// Reading of untrusted files by position: never blocks on a pipe, never maps memory that another
// process may cut off.
#pragma once

#include <cstdint>
#include <string>

namespace moetune::engine {

/// An open regular file. Throws base::UsageError when it is not there, not readable or not a
/// regular file.
class FileReader {
 public:
  explicit FileReader(std::string path);
  ~FileReader();
  FileReader(FileReader&& other) noexcept;
  FileReader& operator=(FileReader&&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  /// Bytes when it was opened.
  [[nodiscard]] uint64_t size() const { return size_; }
  /// Exactly `num_bytes` from `offset`; throws base::UsageError when the file has become shorter.
  void read(uint64_t offset, void* out, uint64_t num_bytes) const;

 private:
  std::string path_;
  int descriptor_ = -1;
  uint64_t size_ = 0;
};

/// The whole of a file that is at most `max_bytes` long.
std::string read_text(const std::string& path, uint64_t max_bytes);

}  // namespace moetune::engine

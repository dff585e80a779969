// The bytes of a trace file, a piece at a time, unpacked where the file is packed: files of
// gigabytes are read with the memory of one piece.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace moetune::profiler {

class ByteSource {
 public:
  ByteSource() = default;
  virtual ~ByteSource() = default;
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  /// Fills `out` with up to `size` bytes and returns how many; 0 only at the end. Throws
  /// base::UsageError, which names the file, where it cannot be read or is damaged.
  virtual size_t read(char* out, size_t size) = 0;
};

/// By the first bytes: a file packed by gzip, or one that is read as it is. Throws
/// base::UsageError for what is no readable file.
std::unique_ptr<ByteSource> open_bytes(const std::string& path);

/// The first bytes, unpacked: what tells formats apart.
std::string first_bytes(const std::string& path, size_t size);

/// Unpacks `packed`, which yields a file of gzip. For messages: `path`.
std::unique_ptr<ByteSource> unpack_gzip(std::unique_ptr<ByteSource> packed, std::string path);

}  // namespace moetune::profiler

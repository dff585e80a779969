// Opens regular files only, and reads by position with pread, so that threads share a reader.
#include "engine/checkpoint/file_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "kernels/base/error.h"
#include "kernels/base/units.h"

namespace moetune::engine {

using base::UsageError;

FileReader::FileReader(std::string path) : path_(std::move(path)) {
  // Opening a pipe for reading would wait for a writer without O_NONBLOCK.
  descriptor_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) {
    throw UsageError(fmt::format("{}: cannot be read: {}", path_, std::strerror(errno)));
  }
  struct stat status = {};
  if (fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
    close(descriptor_);
    throw UsageError(fmt::format("{}: is not a regular file", path_));
  }
  size_ = static_cast<uint64_t>(status.st_size);
}

FileReader::~FileReader() {
  if (descriptor_ >= 0) close(descriptor_);
}

FileReader::FileReader(FileReader&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_) {}

void FileReader::read(uint64_t offset, void* out, uint64_t num_bytes) const {
  constexpr uint64_t kMaxRead = uint64_t{1} << 30;  // the kernel takes no more than 2 GiB at once
  auto* to = static_cast<char*>(out);
  while (num_bytes > 0) {
    const ssize_t got =
        pread(descriptor_, to, std::min(num_bytes, kMaxRead), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw base::Error(fmt::format("{}: read failed: {}", path_, std::strerror(errno)));
    if (got == 0) {
      throw UsageError(
          fmt::format("{}: ends at byte {}, {} more are expected", path_, offset, num_bytes));
    }
    to += got;
    offset += static_cast<uint64_t>(got);
    num_bytes -= static_cast<uint64_t>(got);
  }
}

std::string read_text(const std::string& path, uint64_t max_bytes) {
  const FileReader file(path);
  if (file.size() > max_bytes) {
    throw UsageError(fmt::format("{}: has {}, expected at most {}", path,
                                 base::format_bytes(static_cast<int64_t>(file.size())),
                                 base::format_bytes(static_cast<int64_t>(max_bytes))));
  }
  std::string text(file.size(), '\0');
  file.read(0, text.data(), text.size());
  return text;
}

}  // namespace moetune::engine

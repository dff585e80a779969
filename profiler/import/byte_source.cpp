#include "profiler/import/byte_source.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "kernels/base/error.h"

namespace moetune::profiler {
namespace {

[[noreturn]] void fail_to_read(const std::string& path, int error) {
  throw base::UsageError(fmt::format("{}: cannot be read: {}", path, std::strerror(error)));
}

class FileBytes : public ByteSource {
 public:
  explicit FileBytes(std::string path) : path_(std::move(path)) {
    // A pipe that nobody writes to must not hold the program up.
    descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor_ < 0) fail_to_read(path_, errno);
    struct stat about = {};
    if (::fstat(descriptor_, &about) != 0 || !S_ISREG(about.st_mode)) {
      ::close(descriptor_);
      throw base::UsageError(fmt::format("{}: is no regular file, expected a trace", path_));
    }
    static_cast<void>(::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_SEQUENTIAL));
  }
  ~FileBytes() override { ::close(descriptor_); }

  size_t read(char* out, size_t size) override {
    while (true) {
      const ssize_t got = ::read(descriptor_, out, size);
      if (got >= 0) return static_cast<size_t>(got);
      if (errno != EINTR) fail_to_read(path_, errno);
    }
  }

 private:
  std::string path_;
  int descriptor_ = -1;
};

}  // namespace

std::unique_ptr<ByteSource> open_bytes(const std::string& path) {
  auto file = std::make_unique<FileBytes>(path);
  char magic[2] = {};
  const size_t got = file->read(magic, sizeof(magic));
  file = std::make_unique<FileBytes>(path);
  if (got == 2 && magic[0] == '\x1f' && magic[1] == '\x8b') {
    return unpack_gzip(std::move(file), path);
  }
  return file;
}

std::string first_bytes(const std::string& path, size_t size) {
  const auto source = open_bytes(path);
  std::string bytes(size, '\0');
  size_t filled = 0;
  while (filled < size) {
    const size_t got = source->read(bytes.data() + filled, size - filled);
    if (got == 0) break;
    filled += got;
  }
  bytes.resize(filled);
  return bytes;
}

}  // namespace moetune::profiler

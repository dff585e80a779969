#include "sweeps/processes/printed_output.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "kernels/base/error.h"

namespace moetune::sweeps {
namespace {

/// A file without a name: nothing is left on the disk whatever happens.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(memfd_create("moetune-output", MFD_CLOEXEC)) {
    MOETUNE_CHECK(descriptor_ >= 0, "memfd_create: {}", std::strerror(errno));
  }
  ~MemoryFile() { close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  [[nodiscard]] std::string path() const { return fmt::format("/proc/self/fd/{}", descriptor_); }
  [[nodiscard]] std::string contents() const {
    struct stat file {};
    MOETUNE_CHECK(fstat(descriptor_, &file) == 0, "fstat: {}", std::strerror(errno));
    std::string text(static_cast<size_t>(file.st_size), '\0');
    size_t at = 0;
    while (at < text.size()) {
      const ssize_t count =
          pread(descriptor_, text.data() + at, text.size() - at, static_cast<off_t>(at));
      if (count < 0 && errno == EINTR) continue;
      MOETUNE_CHECK(count > 0, "what a command printed cannot be read: {}", std::strerror(errno));
      at += static_cast<size_t>(count);
    }
    return text;
  }

 private:
  int descriptor_;
};

}  // namespace

PrintedOutput run_and_read(Command command, const Attention& attention) {
  const MemoryFile out;
  const MemoryFile err;
  command.stdout_path = out.path();
  command.stderr_path = err.path();
  const std::unique_ptr<Process> process = SystemProcessRunner().start(command);
  const AttendedEnd end = attend(*process, attention);
  return {end, out.contents(), err.contents()};
}

}  // namespace moetune::sweeps

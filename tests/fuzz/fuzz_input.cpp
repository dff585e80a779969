#include "tests/fuzz/fuzz_input.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "kernels/base/error.h"

namespace moetune::tests {
namespace {

namespace fs = std::filesystem;

/// In memory where there is such a place: an input takes microseconds.
class InputFolder {
 public:
  InputFolder() {
    const fs::path shared = "/dev/shm";
    std::error_code ignored;
    const fs::path parent = fs::is_directory(shared, ignored) ? shared : fs::temp_directory_path();
    std::string pattern = (parent / "moetune-fuzz-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) std::abort();
    path_ = pattern;
  }
  ~InputFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  InputFolder(const InputFolder&) = delete;
  InputFolder& operator=(const InputFolder&) = delete;

  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

const fs::path& folder() {
  static const InputFolder kFolder;
  return kFolder.path();
}

}  // namespace

void run_driver(FuzzDriver driver, std::string_view input) {
  try {
    driver(input);
  } catch (const base::Error&) {
    // An answer.
  }
}

std::string as_file(std::string_view input, const std::string& name) {
  const std::string path = folder() / name;
  for (const char* ending : {"", "-wal", "-shm", "-journal"}) ::unlink((path + ending).c_str());
  std::ofstream(path, std::ios::binary).write(input.data(), static_cast<int64_t>(input.size()));
  return path;
}

std::string bytes_of(const std::string& path) {
  std::stringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  return bytes.str();
}

std::string patched(const std::string& base, std::string_view input) {
  if (input.starts_with("SQLite format 3")) return std::string(input);
  std::string bytes = base;
  const auto at = [&](size_t i) { return static_cast<unsigned char>(input[i]); };
  while (input.size() >= 5 && !bytes.empty()) {
    const size_t place = (at(0) | (at(1) << 8U) | (at(2) << 16U)) % bytes.size();
    const size_t length = at(3) % 9;
    input.remove_prefix(4);
    if (length == 0) bytes.resize(place);
    for (size_t i = 0; i < length && i < input.size() && place + i < bytes.size(); ++i) {
      bytes[place + i] = input[i];
    }
    input.remove_prefix(std::min(length, input.size()));
  }
  return bytes;
}

std::string patched_database(std::string_view input, const std::string& name,
                             const std::function<void(const std::string& path)>& make) {
  static std::map<std::string, std::string> bases;
  const auto [base, is_new] = bases.try_emplace(name);
  if (is_new) {
    const std::string path = folder() / ("base-" + name);
    make(path);
    base->second = bytes_of(path);
  }
  return as_file(patched(base->second, input), name);
}

}  // namespace moetune::tests

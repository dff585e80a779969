#include "engine/last_word.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace moetune::engine {

void leave_last_word(const std::string& out_dir, int rank, spec::ExitCode code,
                     const std::string& message) noexcept {
  namespace fs = std::filesystem;
  using std::chrono::nanoseconds;
  try {
    const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
    const nlohmann::json word = {
        {"code", static_cast<int>(code)},
        {"message", message},
        {"time_ns", std::chrono::duration_cast<nanoseconds>(since_1970).count()}};
    // Where the folder is gone, so is whoever would read it. Whole or not at all: somebody may look
    // while it is written.
    const fs::path path = fs::path(out_dir) / fmt::format("last-word-{}.json", rank);
    const fs::path unfinished = path.string() + ".part";
    std::ofstream file(unfinished, std::ios::binary);
    file << word.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::flush;
    if (file) fs::rename(unfinished, path);
  } catch (...) {
    // The exit code is what remains.
  }
}

}  // namespace moetune::engine

#include "sweeps/processes/trial_folder.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "kernels/base/error.h"

namespace moetune::sweeps {

std::string find_rank_program() {
  std::filesystem::path program;
  const char* override_path = std::getenv("MOETUNE_RANK");
  if (override_path != nullptr && *override_path != '\0') {
    program = override_path;
  } else {
    std::error_code error;
    program = std::filesystem::read_symlink("/proc/self/exe", error).parent_path() / "moetune-rank";
  }
  if (access(program.c_str(), X_OK) != 0 || !std::filesystem::is_regular_file(program)) {
    throw base::UsageError(fmt::format(
        "{}: there is no such program; moetune-rank has to lie beside moetune, or name it in the "
        "environment variable MOETUNE_RANK",
        program.string()));
  }
  return std::filesystem::absolute(program);
}

Command local_command(const std::string& rank_program, const TrialFolder& folder) {
  std::vector<std::string> words = {rank_program, "--spec", folder.spec(), "--out", folder.path};
  if (!folder.saved_run.empty()) words.insert(words.end(), {"--saved-run", folder.saved_run});
  return {std::move(words), {}, folder.stdout_file(), folder.stderr_file()};
}

}  // namespace moetune::sweeps

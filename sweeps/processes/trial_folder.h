// How moetune-rank is started on this machine, and the files of a trial.
#pragma once

#include <string>

#include "sweeps/processes/process.h"

namespace moetune::sweeps {

/// What a launched trial reads and writes. moetune-rank writes its shard and `progress` into the
/// folder, one of several processes a last word, too; the programs' output lands beside them.
struct TrialFolder {
  std::string path;
  std::string saved_run{};  ///< where the run is kept on its way (engine/saved_run.h); empty: not

  [[nodiscard]] std::string spec() const { return path + "/spec.json"; }
  [[nodiscard]] std::string shard(int rank = 0) const {
    return path + "/shard-" + std::to_string(rank) + ".db";
  }
  [[nodiscard]] std::string last_word(int rank) const {
    return path + "/last-word-" + std::to_string(rank) + ".json";
  }
  [[nodiscard]] std::string progress() const { return path + "/progress"; }
  [[nodiscard]] std::string stdout_file() const { return path + "/stdout"; }
  [[nodiscard]] std::string stderr_file() const { return path + "/stderr"; }
  [[nodiscard]] std::string stdout_file(size_t rank) const {
    return stdout_file() + "-" + std::to_string(rank);
  }
  [[nodiscard]] std::string stderr_file(size_t rank) const {
    return stderr_file() + "-" + std::to_string(rank);
  }
};

/// The engine's program: MOETUNE_RANK when it is set, else moetune-rank beside this program. Throws
/// base::UsageError when it is not there.
std::string find_rank_program();

Command local_command(const std::string& rank_program, const TrialFolder& folder);

}  // namespace moetune::sweeps

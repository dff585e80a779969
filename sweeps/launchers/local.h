// Runs a trial on this machine: all ranks are threads of one moetune-rank process.
#pragma once

#include <string>

#include "sweeps/process.h"

namespace moetune::sweeps {

/// What a launched trial reads and writes. moetune-rank writes shard-0.db and `progress` into the
/// folder; the program's output lands beside them.
struct TrialFolder {
  std::string path;

  [[nodiscard]] std::string spec() const { return path + "/spec.json"; }
  [[nodiscard]] std::string shard() const { return path + "/shard-0.db"; }
  [[nodiscard]] std::string progress() const { return path + "/progress"; }
  [[nodiscard]] std::string stdout_file() const { return path + "/stdout"; }
  [[nodiscard]] std::string stderr_file() const { return path + "/stderr"; }
};

/// The engine's program: MOETUNE_RANK when it is set, else moetune-rank beside this program. Throws
/// base::UsageError when it is not there.
std::string find_rank_program();

Command local_command(const std::string& rank_program, const TrialFolder& folder);

}  // namespace moetune::sweeps

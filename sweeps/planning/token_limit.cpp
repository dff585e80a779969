#include "sweeps/planning/token_limit.h"

#include <fmt/format.h>

#include <string>

#include "kernels/base/error.h"

namespace moetune::sweeps {

void check_tokens(const tuner::planner::PlanRun& run) {
  const auto refuse = [](const std::string& what, int64_t tokens) {
    throw base::UsageError(
        fmt::format("{} is {} tokens, expected at most {}", what, tokens, kMostTokens));
  };
  if (run.seq_length > kMostTokens) refuse("a sequence", run.seq_length);
  const int64_t most_sequences = kMostTokens / run.seq_length;
  if (run.knobs.micro_batch_size > most_sequences) {
    refuse(fmt::format("a micro-batch of {} sequences", run.knobs.micro_batch_size),
           run.seq_length * run.knobs.micro_batch_size);
  }
}

}  // namespace moetune::sweeps

#include "sweeps/adapters/told_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "kernels/base/error.h"
#include "sweeps/adapters/echo_check.h"
#include "sweeps/adapters/engine_result.h"
#include "sweeps/adapters/engine_words.h"
#include "sweeps/runs/echoed_config.h"

namespace moetune::sweeps {
namespace {

using spec::dialects::Dialect;

/// An engine that starts another prints its lines, too, and a log that has lost its beginning shows
/// only these.
struct StartedEngine {
  Dialect dialect;
  Framework started;
};
constexpr std::array kStartedEngines = {
    StartedEngine{Dialect::megatron_bridge, Framework::megatron_lm},
    StartedEngine{Dialect::primus, Framework::megatron_lm},
    StartedEngine{Dialect::primus, Framework::megatron_bridge},
    StartedEngine{Dialect::primus, Framework::torchtitan},
};

/// Megatron-LM above DeepSpeed has lines of both; of how many steps only Megatron's say.
bool is_megatron_on_deepspeed(const RunFacts& facts) {
  return facts.framework == Framework::deepspeed && facts.total_steps.has_value();
}

[[noreturn]] void refuse(const std::string& log, const std::string& why) {
  throw base::UsageError(fmt::format(
      "{}: {}; nothing was stored. Pass the log of the command that --dry-run names. If this is "
      "its log, say --exit-code 1 without a log: the trial then counts as failed",
      log, why));
}

void refuse_another(const std::string& log, const std::string& wrong) {
  if (wrong.empty()) return;
  refuse(log, fmt::format("this log is of another configuration than the command ({})", wrong));
}

bool marks_end(const RunFacts& facts) {
  if (is_megatron_on_deepspeed(facts)) return true;
  const auto& rows = spec::NameTable<Framework>::kRows;
  const auto row = std::ranges::find(rows, facts.framework, &FrameworkRow::value);
  return row != rows.end() && row->marks_end;
}

/// Whether the log shows neither an end nor a failure. Of a framework that marks no end, the number
/// of steps that a trial makes is its end.
bool is_open(const RunFacts& facts, int64_t num_steps) {
  const bool has_no_end =
      facts.status == ForeignStatus::truncated || facts.status == ForeignStatus::unknown;
  return has_no_end && (marks_end(facts) || steps_made(facts) < num_steps);
}

bool is_of_a_failure(const RunFacts& facts, std::optional<int> exit_code) {
  if (exit_code.value_or(0) != 0) return true;
  return facts.status != ForeignStatus::ok && facts.status != ForeignStatus::truncated &&
         facts.status != ForeignStatus::unknown;
}

}  // namespace

std::string framework_mismatch(const UserRun& run, const RunFacts& facts) {
  if (!run.dialect || facts.framework == Framework::unknown) return {};
  const Framework seen = is_megatron_on_deepspeed(facts) ? Framework::megatron_lm : facts.framework;
  const bool may_be_its = dialect_of(seen) == run.dialect ||
                          std::ranges::any_of(kStartedEngines, [&](const StartedEngine& row) {
                            return row.dialect == *run.dialect && row.started == seen;
                          });
  if (may_be_its) return {};
  return fmt::format("this log is of {}, the sweep's engine is {}", spec::name_of(facts.framework),
                     spec::name_of(*run.dialect));
}

void check_told_run(const UserRun& run, const RunFacts& facts, const std::string& log) {
  const std::string other = framework_mismatch(run, facts);
  if (!other.empty()) refuse(log, other);
  refuse_another(log, size_mismatch(run, facts));
}

void check_told_trial(const UserRun& run, const tuner::TrialRequest& request, const RunFacts& facts,
                      const std::string& log, std::optional<int> exit_code) {
  refuse_another(log, echo_mismatch(run, request, facts));
  const int64_t asked = launched_steps(request);
  const int64_t made = steps_made(facts);
  if (asks_for_steps(run) && made > asked) {
    refuse(log, fmt::format("this run made {} steps, the command makes {}", made, asked));
  }
  if (is_of_a_failure(facts, exit_code)) return;
  if (is_open(facts, asked) && !exit_code) {
    throw base::UsageError(fmt::format(
        "{}: {}; nothing was stored. Pass all logs of the run, from its start to its end, or say "
        "with which code the command ended: --exit-code 0 where it ended well",
        log, facts.reason.empty() ? "the log shows neither an end nor a failure" : facts.reason));
  }
  const std::string early = early_end(run, request, facts);
  if (!early.empty()) refuse(log, fmt::format("this run {}", early));
}

}  // namespace moetune::sweeps

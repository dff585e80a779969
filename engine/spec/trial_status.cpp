// The table of trial statuses and the exit codes that carry them.
#include "engine/spec/trial_status.h"

#include <array>

#include "kernels/base/error.h"

namespace moetune::spec {

namespace {

constexpr std::array kRows = {
    StatusRow{TrialStatus::running, "running", std::nullopt, "started, no result yet"},
    StatusRow{TrialStatus::ok, "ok", ExitCode::ok, "ran all its steps with sound numbers"},
    StatusRow{TrialStatus::invalid, "invalid", ExitCode::usage,
              "breaks a constraint or names an input that cannot be used; nothing was run"},
    StatusRow{TrialStatus::pruned, "pruned", std::nullopt,
              "predicted not to fit or not to win; never started"},
    StatusRow{TrialStatus::oom, "oom", ExitCode::oom,
              "an allocation went past the device's capacity"},
    StatusRow{TrialStatus::wrong, "wrong", ExitCode::wrong,
              "a NaN or infinity, or a loss off the reference"},
    StatusRow{TrialStatus::failed, "failed", ExitCode::failed, "ended with an error message"},
    StatusRow{TrialStatus::crashed, "crashed", std::nullopt, "ended by a signal"},
    StatusRow{TrialStatus::hung, "hung", ExitCode::hung, "no new step within the limit"},
    StatusRow{TrialStatus::interrupted, "interrupted", ExitCode::interrupted,
              "stopped by Ctrl-C, or the tuner itself was killed"},
};

}  // namespace

std::span<const StatusRow> status_table() { return kRows; }

std::string_view name_of(TrialStatus status) {
  for (const StatusRow& row : kRows) {
    if (row.status == status) return row.name;
  }
  return "?";
}

std::optional<TrialStatus> find_status(std::string_view name) {
  for (const StatusRow& row : kRows) {
    if (row.name == name) return row.status;
  }
  return std::nullopt;
}

TrialStatus status_from_name(std::string_view name) {
  if (const auto status = find_status(name)) return *status;
  throw base::Error(fmt::format("unknown trial status '{}'", name));
}

TrialStatus status_from_exit_code(int code) {
  for (const StatusRow& row : kRows) {
    if (row.exit_code.has_value() && static_cast<int>(*row.exit_code) == code) return row.status;
  }
  return TrialStatus::failed;
}

}  // namespace moetune::spec

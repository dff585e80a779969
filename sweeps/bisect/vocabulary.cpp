#include "sweeps/bisect/vocabulary.h"

namespace moetune::sweeps {

const char* name_of(RunStatus status) {
  switch (status) {
    case RunStatus::ok:
      return "ok";
    case RunStatus::not_prepared:
      return "not_prepared";
    case RunStatus::build_failed:
      return "build_failed";
    case RunStatus::crashed:
      return "crashed";
    case RunStatus::oom:
      return "oom";
    case RunStatus::hung:
      return "hung";
    case RunStatus::no_metric:
      return "no_metric";
    case RunStatus::interrupted:
      return "interrupted";
  }
  return "?";
}

RunStatus run_status_of(spec::TrialStatus status) {
  switch (status) {
    case spec::TrialStatus::ok:
      return RunStatus::ok;
    case spec::TrialStatus::oom:
      return RunStatus::oom;
    case spec::TrialStatus::hung:
      return RunStatus::hung;
    case spec::TrialStatus::interrupted:
      return RunStatus::interrupted;
    case spec::TrialStatus::running:
    case spec::TrialStatus::invalid:
    case spec::TrialStatus::pruned:
    case spec::TrialStatus::wrong:
    case spec::TrialStatus::failed:
    case spec::TrialStatus::crashed:
      break;
  }
  return RunStatus::crashed;
}

}  // namespace moetune::sweeps

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

}  // namespace moetune::sweeps

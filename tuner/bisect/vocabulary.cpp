#include "tuner/bisect/vocabulary.h"

namespace moetune::tuner {

const char* name_of(RunPurpose purpose) {
  switch (purpose) {
    case RunPurpose::ends:
      return "ends";
    case RunPurpose::search:
      return "search";
    case RunPurpose::reference:
      return "reference";
    case RunPurpose::verify:
      return "verify";
  }
  return "?";
}

const char* name_of(HuntVerdict verdict) {
  switch (verdict) {
    case HuntVerdict::culprit:
      return "culprit";
    case HuntVerdict::no_change:
      return "no_change";
    case HuntVerdict::environment_changed:
      return "environment_changed";
    case HuntVerdict::unresolved:
      return "unresolved";
  }
  return "?";
}

}  // namespace moetune::tuner

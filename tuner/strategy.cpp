// Names of phases and evidence grades, as stored and shown.
#include "tuner/strategy.h"

namespace moetune::tuner {

const char* name_of(Phase phase) {
  switch (phase) {
    case Phase::contract:
      return "contract";
    case Phase::fit:
      return "fit";
    case Phase::scale:
      return "scale";
    case Phase::profile:
      return "profile";
    case Phase::retune:
      return "retune";
    case Phase::validate:
      return "validate";
  }
  return "?";
}

const char* name_of(Grade grade) {
  switch (grade) {
    case Grade::measured:
      return "measured";
    case Grade::calibrated:
      return "calibrated";
    case Grade::analytic:
      return "analytic";
  }
  return "?";
}

}  // namespace moetune::tuner

// Names of evidence grades and of what a trial is measured for, as stored and shown.
#include "tuner/strategy.h"

namespace moetune::tuner {

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

const char* name_of(Purpose purpose) {
  switch (purpose) {
    case Purpose::first:
      return "first";
    case Purpose::again:
      return "again";
    case Purpose::longer:
      return "longer";
    case Purpose::in_turns:
      return "in_turns";
  }
  return "?";
}

const char* words_of(Purpose purpose) {
  switch (purpose) {
    case Purpose::longer:
      return "over more steps";
    case Purpose::in_turns:
      return "in turns";
    case Purpose::first:
    case Purpose::again:
      break;
  }
  return name_of(purpose);
}

}  // namespace moetune::tuner

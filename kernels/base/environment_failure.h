// What is missing or used up around a trial: an error that says nothing about the trial itself.
#pragma once

#include "kernels/base/error.h"

namespace moetune::base {

/// A trial cannot run here and now: no GPU or driver, no launcher, a library that is missing,
/// memory of the host or the device that others hold. The same trial may run elsewhere or later, so
/// this never becomes its result. Ends in exit code `environment`.
class EnvironmentFailure : public Error {
 public:
  using Error::Error;
};

}  // namespace moetune::base

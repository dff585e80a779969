// How time passes and how much is recorded: asked for by a trial, obeyed by the recorders.
#pragma once

#include <cstdint>

namespace moetune::base {

enum class ClockMode : uint8_t {
  wall,              ///< real time; streams run one after another
  virtual_measured,  ///< an op lasts as long as its thread's CPU time
  virtual_modelled,  ///< an op lasts as long as plan::roofline_ns says: exactly repeatable
};

enum class TraceLevel : uint8_t { none, ops, all };

}  // namespace moetune::base

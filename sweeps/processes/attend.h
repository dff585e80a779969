// Stays with a process until it ends, or has to be ended.
#pragma once

#include <chrono>
#include <functional>
#include <optional>

#include "sweeps/processes/interrupt.h"
#include "sweeps/processes/process.h"

namespace moetune::sweeps {

struct Attention {
  std::chrono::milliseconds look{100};     ///< how often
  std::chrono::milliseconds grace{2'000};  ///< between SIGTERM and SIGKILL
  std::optional<std::chrono::steady_clock::time_point> deadline{};
  /// While it runs; false gives it up.
  std::function<bool()> on_look{};
  /// More of them than this end it; two more end it without grace.
  int num_interrupts_before = num_interrupts();
};

enum class WhyEnded : uint8_t { by_itself, interrupted, out_of_time, given_up };

struct AttendedEnd {
  ProcessEnd process;
  WhyEnded why = WhyEnded::by_itself;
};

AttendedEnd attend(Process& process, const Attention& attention);

}  // namespace moetune::sweeps

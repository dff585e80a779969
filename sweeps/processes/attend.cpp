#include "sweeps/processes/attend.h"

#include <algorithm>

namespace moetune::sweeps {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

AttendedEnd attend(Process& process, const Attention& attention) {
  const auto end = [&](WhyEnded why, milliseconds grace) {
    return AttendedEnd{process.end(grace), why};
  };
  while (true) {
    milliseconds pause = attention.look;
    if (attention.deadline) {
      const auto left = std::chrono::ceil<milliseconds>(*attention.deadline - steady_clock::now());
      pause = std::clamp(left, milliseconds(1), std::max(attention.look, milliseconds(1)));
    }
    if (const auto ended = process.wait(pause)) return {*ended, WhyEnded::by_itself};
    if (const int count = num_interrupts() - attention.num_interrupts_before; count > 0) {
      return end(WhyEnded::interrupted, count > 1 ? milliseconds(0) : attention.grace);
    }
    if (attention.on_look && !attention.on_look()) {
      return end(WhyEnded::given_up, attention.grace);
    }
    if (attention.deadline && steady_clock::now() >= *attention.deadline) {
      return end(WhyEnded::out_of_time, attention.grace);
    }
  }
}

}  // namespace moetune::sweeps

// Ctrl-C as a flag that loops look at, so that the running trial is ended and stored before the
// program stops.
#pragma once

namespace moetune::sweeps {

/// While one exists, SIGINT, SIGTERM and SIGHUP are counted instead of ending the program. One at a
/// time.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
};

/// How often the user has asked to stop since the guard was made, 0 without one: from the second
/// time on nothing is waited for.
int num_interrupts();

}  // namespace moetune::sweeps

// Signal handlers behind interrupt.h: they only count.
#include "sweeps/processes/interrupt.h"

#include <array>
#include <atomic>
#include <csignal>

namespace moetune::sweeps {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};

// A signal lands on any thread, so that a flag for the handler's own thread would not do.
std::atomic<int> interrupts = 0;
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler must not wait");
std::array<struct sigaction, kSignals.size()> previous;

void count_interrupt(int /*signal_number*/) { interrupts.fetch_add(1); }

}  // namespace

InterruptGuard::InterruptGuard() {
  interrupts = 0;
  struct sigaction action {};
  action.sa_handler = count_interrupt;
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &action, &previous[i]);
}

InterruptGuard::~InterruptGuard() {
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &previous[i], nullptr);
  interrupts = 0;
}

int num_interrupts() { return interrupts; }

}  // namespace moetune::sweeps

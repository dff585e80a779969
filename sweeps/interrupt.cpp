// Signal handlers behind interrupt.h: they only count.
#include "sweeps/interrupt.h"

#include <array>
#include <csignal>

namespace moetune::sweeps {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};

volatile std::sig_atomic_t interrupts = 0;
std::array<struct sigaction, kSignals.size()> previous;

void count_interrupt(int /*signal_number*/) { interrupts = interrupts + 1; }

}  // namespace

InterruptGuard::InterruptGuard() {
  interrupts = 0;
  struct sigaction action {};
  action.sa_handler = count_interrupt;
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &action, &previous[i]);
}

InterruptGuard::~InterruptGuard() {
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &previous[i], nullptr);
}

int num_interrupts() { return interrupts; }

}  // namespace moetune::sweeps

// A fixed piece of work that tells how fast the machine is while a trial runs: the same for every
// trial, whatever it trains, so that what it takes can be compared between them.
#pragma once

#include <cstdint>
#include <vector>

namespace moetune::engine {

/// One thread uses it.
class Probe {
 public:
  Probe();
  /// Two products by the experts' kernel, then a pass over more memory than the first caches hold:
  /// a plain loop would not slow down as a step does. Runs once untimed, to fill the caches.
  /// Returns the thread's CPU time.
  int64_t run();

 private:
  void work();

  std::vector<float> a_;
  std::vector<float> b_;
  std::vector<float> c_;
  std::vector<float> swept_;
  float result_ = 0;  ///< of all that was computed, so that nothing of it can be left out
};

}  // namespace moetune::engine

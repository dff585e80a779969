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
  /// Products by the kernel that the experts' use, then a pass over more memory than the first
  /// caches hold: what another load slows down more or less than those, as a plain loop, does not
  /// tell how much slower a step is. Returns the thread's CPU time. What came before has filled the
  /// caches with its own: the same work goes ahead untimed.
  int64_t run();
  /// Depends on all that was computed, so that nothing of it can be left out.
  [[nodiscard]] float result() const { return result_; }

 private:
  void work();

  std::vector<float> a_;
  std::vector<float> b_;
  std::vector<float> c_;
  std::vector<float> swept_;
  float result_ = 0;
};

}  // namespace moetune::engine

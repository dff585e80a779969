// What the tests of streams and graphs share: small kernels, and a program under many schedules.
#pragma once

#include <cstdint>
#include <functional>
#include <set>

#include "tests/cuda/simt_fixture.h"

namespace moetune::simt {

constexpr uint64_t kNumSeeds = 40;
constexpr unsigned kThreads = 64;

inline void set(int* to, int value) { to[threadIdx.x] = value; }
inline void copy(const int* from, int* to) { to[threadIdx.x] = from[threadIdx.x]; }
inline void times_3_plus(int* at, int value) { at[threadIdx.x] = at[threadIdx.x] * 3 + value; }
inline void sum_of(const int* a, const int* b, int* to) {
  to[threadIdx.x] = a[threadIdx.x] + b[threadIdx.x];
}
inline void add(const int* from, int value, int* to) {
  to[threadIdx.x] = from[threadIdx.x] + value;
}
inline void traps() { __trap(); }

/// The values that `program` returned, one for each of many schedules.
inline std::multiset<int> over_seeds(const std::function<int()>& program) {
  std::multiset<int> results;
  for (uint64_t seed = 0; seed < kNumSeeds; ++seed) {
    set_schedule(adversarial(seed));
    results.insert(program());
  }
  set_schedule(in_order());
  results.insert(program());
  return results;
}

}  // namespace moetune::simt

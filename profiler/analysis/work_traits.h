// What kinds of work a step's operations are, for the causes of its time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "profiler/analysis/replayed_run.h"

namespace moetune::profiler {

/// Name of a collective by which ranks send each other the rows of their experts, where the group's
/// name does not tell.
inline constexpr const char* kExpertExchange = "expert_exchange";
/// Name of a copy by which the program reads a number from the device, or now and then more: it
/// comes with a wait.
inline constexpr const char* kReadValue = "value";

/// Of each operation, as bits: they are looked up for every cause, and records are large.
class WorkTraits {
 public:
  enum Trait : uint16_t {
    kKernel = 1 << 0,
    kCommunication = 1 << 1,
    kMessage = 1 << 2,
    kInput = 1 << 3,
    kOffload = 1 << 4,
    kRecompute = 1 << 5,
    kSync = 1 << 6,
    kAllocator = 1 << 7,
    kLoader = 1 << 8,
    kOtherHostWork = 1 << 9,
    kCollective = 1 << 10,
    kOfLayer = 1 << 11,
    kValue = 1 << 12,
  };

  explicit WorkTraits(const ReplayedRun& run);

  [[nodiscard]] bool has(size_t op, Trait trait) const { return (by_op_[op] & trait) != 0; }
  /// Whether any operation has one of them.
  [[nodiscard]] bool any_has(unsigned traits) const { return (all_ & traits) != 0; }

 private:
  std::vector<uint16_t> by_op_;
  unsigned all_ = 0;
};

}  // namespace moetune::profiler

// A GPU made of fibers: threads of a block take turns on them, blocks run one after the other. It
// exists so that kernels can be tested, and looked at by the sanitizers, on a machine without a
// card. What would hang or be undefined on a device (a barrier that a thread misses, a shuffle that
// a lane misses) ends the launch with a message instead.
//
// Threads of even blocks run in rising order between two barriers and those of odd blocks in
// falling order (odd launches the other way round), so that a forgotten barrier shows in one of
// them.
#pragma once

#include <vector_types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <source_location>
#include <string>
#include <type_traits>

namespace moetune::simt {

inline constexpr int kWarpLanes = 32;
inline constexpr int kMaxBlockThreads = 1024;
inline constexpr size_t kMaxSharedBytes = 227 * 1024;

using Site = std::source_location;

/// What went wrong in a launch; empty when nothing did.
using Failure = std::string;

/// Runs `body` as every thread of the grid, with threadIdx and its kin set. Shared memory is filled
/// with 0xFF for each block, and bytes behind the end are guarded (poisoned for the address
/// sanitizer, else compared after the block). Calls from several host threads take turns.
Failure run(const dim3& grid, const dim3& block, size_t shared_bytes,
            const std::function<void()>& body);

/// What a collective operation of the block or the warp brings together.
enum class Collective : uint8_t { barrier, sync, shuffle, vote, match, reduce };

/// Waits until every thread of the block has come to this line. `predicate` is summed up over the
/// block and returned to each thread.
int block_barrier(bool predicate, const Site& site);

using LaneValues = std::array<uint64_t, kWarpLanes>;

/// What is made of the lanes' values when the last one has come; null: nothing.
struct Finish {
  void (*call)(LaneValues& values, const void* context) = nullptr;
  const void* context = nullptr;
};

/// Waits until every lane of `mask` has come to this line with the same mask; returns what they
/// brought, by lane. Valid until this lane's next but one collective of the warp.
const LaneValues& warp_exchange(unsigned mask, uint64_t value, Collective kind, const Site& site,
                                const Finish& finish = {});

/// The calling thread's lane in its warp.
int lane();

/// Ends the launch with `text`, naming block, thread and line.
[[noreturn]] void fail(const std::string& text, const Site& site);

/// True when the program runs under the address sanitizer.
bool has_address_sanitizer();

/// True when the address sanitizer would report an access to this byte.
bool is_poisoned(const void* address);

/// The first bytes of a value as an integer, and back.
template <typename T>
uint64_t to_bits(T value) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}
template <typename T>
T from_bits(uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

/// The value that lane `source` brought to a shuffle, once all lanes of `mask` are there.
template <typename T>
T shuffle(unsigned mask, T value, int source, const Site& site) {
  const auto& values = warp_exchange(mask, to_bits(value), Collective::shuffle, site);
  if ((mask >> source & 1U) == 0) {
    fail("shuffle reads lane " + std::to_string(source) + ", which is not in its mask", site);
  }
  return from_bits<T>(values[static_cast<size_t>(source)]);
}

}  // namespace moetune::simt

// What a call does, by its arguments alone: which operands it reads and writes, how many bytes that
// is and how many FLOPs.
#pragma once

#include "tests/fakes/recording/tape.h"

namespace moetune::recording {

/// An updated operand is read and written.
enum class Access : uint8_t { read, write, update };

struct Work {
  /// Products and attention: a multiply-add is two. -1 where there is no such count: whoever prices
  /// such a call declares a number for each element.
  int64_t flops = 0;
  int64_t bytes = 0;
  int64_t elements = 0;  ///< those of which such a call does the same with each
};

/// Bytes: the sum over the operands of what the call touches of them, each element in its own type,
/// those of updated operands twice. Where a list of rows picks from an operand, that is as many
/// rows as the list has, at most all. Attention counts the pairs that its queries see, by the
/// positions that the device was given. Throws base::Error for a call that is in no row of the
/// table.
Work work_of(const Entry& call);

/// The operands of a call that has a row, or is one of communicator or copies.
std::vector<std::pair<const Operand*, Access>> accesses_of(const Entry& call);

}  // namespace moetune::recording

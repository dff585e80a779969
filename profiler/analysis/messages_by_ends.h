// Pairs the ends of messages whose other rank no file says, as in exports of Nsight Systems: a send
// and the receive of the same message end together.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace moetune::profiler {

/// A send or a receive on some rank. Its end is on a clock that all ranks share.
struct LooseEnd {
  uint32_t trace = 0;
  uint32_t op = 0;
  int64_t end_ns = 0;
};

/// What was sent and what was received, for each message, by the end of the former. Of several ends
/// the nearest two are one message. A rank has two neighbours at most, as a stage of a pipeline
/// has: those with which it has most pairs. Empty where fewer than four fifths of the ends find
/// another one within 100 us.
std::vector<std::pair<LooseEnd, LooseEnd>> pair_by_ends(std::vector<LooseEnd> sent,
                                                        std::vector<LooseEnd> received);

}  // namespace moetune::profiler

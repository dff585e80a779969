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

using EndsTogether = std::vector<std::pair<LooseEnd, LooseEnd>>;

/// What was sent and what was received, for each message, by the end of the former. Of several ends
/// the nearest two are one message. A rank has two neighbours at most, as a stage of a pipeline
/// has: those with which it has most pairs, and of equal ones such as it sends to first and
/// receives from first. Empty where fewer than four fifths of the ends find another one within 100
/// us.
EndsTogether pair_by_ends(std::vector<LooseEnd> sent, std::vector<LooseEnd> received);

/// The kernels of two stages that send each other a message at once, first that of the earlier
/// stage. `exchanges`: kernels that send one message and receive one. `messages`: of the same
/// stages, one kernel each, by their ends. Neighbours are those that send such messages both ways;
/// the one that sends first is the earlier stage. One forward, one backward (Narayanan et al.
/// 2021): between messages of its own a stage exchanges with the next one first and last, and with
/// the one before in between. Empty where by these turns fewer than four fifths of the exchanges
/// end together with one of a neighbour: so where each stage sends to the next one and receives
/// from the one before at once.
EndsTogether pair_exchanges(std::vector<LooseEnd> exchanges, const EndsTogether& messages);

}  // namespace moetune::profiler

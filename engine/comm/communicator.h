// How ranks move data. A call enqueues the move on the backend's current stream (on the CPU it has
// happened when the call returns); when it would have ended on the emulated cluster is in the
// returned timing, which the timeline books.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/base/dtype.h"

namespace moetune::engine {

/// When communication happened on this rank's clock. It was ready at the time it passed in,
/// transfer_ns of the time until end_ns was the transfer itself, the rest waiting for the last
/// participant.
struct CommTiming {
  int64_t end_ns = 0;
  int64_t transfer_ns = 0;
  int64_t sequence = 0;    ///< number of this instance within the group
  int64_t sent_bytes = 0;  ///< by this rank
};

/// One tensor of an all-to-all: rows of row_bytes, grouped by peer in rank order.
struct AllToAllLane {
  const void* send = nullptr;
  void* recv = nullptr;
  int64_t row_bytes = 0;
};

/// A group of ranks seen by one of them. Calls must come in the same order on all members. Throws
/// base::PeerFailed when another rank has failed. `ready_ns` is when this rank's stream could
/// start.
class Communicator {
 public:
  virtual ~Communicator() = default;

  [[nodiscard]] virtual int size() const = 0;
  [[nodiscard]] virtual int rank() const = 0;  ///< index within the group

  /// recv[i] = send of rank i, bytes_per_rank each. `send` may be this rank's place in `recv`.
  virtual CommTiming all_gather(const void* send, void* recv, int64_t bytes_per_rank,
                                int64_t ready_ns) = 0;
  /// recv = sum over ranks, in rank order, of their send[rank()]. `recv` may be this rank's place
  /// in `send`.
  virtual CommTiming reduce_scatter(const void* send, void* recv, int64_t numel_per_rank,
                                    base::DType dtype, int64_t ready_ns) = 0;
  /// In place, summed in rank order.
  virtual CommTiming all_reduce(void* data, int64_t numel, base::DType dtype, int64_t ready_ns) = 0;
  /// Uneven all-to-all; the same row counts for every lane.
  virtual CommTiming all_to_all(std::span<const AllToAllLane> lanes,
                                std::span<const int64_t> send_rows,
                                std::span<const int64_t> recv_rows, int64_t ready_ns) = 0;
  /// Eager: the sender's stream is busy for the transfer, never waiting for the receiver. `data`
  /// may be overwritten by what comes later on this stream.
  virtual CommTiming send(int peer, int64_t tag, const void* data, int64_t bytes,
                          int64_t ready_ns) = 0;
  /// The oldest message of that tag.
  virtual CommTiming recv(int peer, int64_t tag, void* data, int64_t bytes, int64_t ready_ns) = 0;
};

}  // namespace moetune::engine

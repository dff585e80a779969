// How ranks move data. A call enqueues the move on the backend's current stream (on the CPU it has
// happened when the call returns); when it would have ended on the emulated cluster is in the
// returned timing, which the timeline books.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/spec/hardware_spec.h"
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

/// When this rank's stream could start, and with how many its links are shared from then on.
struct CommStart {
  CommStart(int64_t ready, const spec::LinkShare& links_in = {})  // NOLINT: a time is enough
      : ready_ns(ready), links(links_in) {}

  int64_t ready_ns = 0;
  spec::LinkShare links;
};

/// Memory in which messages to one peer lie, one behind the other, until they are read. It belongs
/// to the sender and lives as long as its communicators.
struct MessageSlots {
  void* memory = nullptr;
  int count = 1;
};

/// One tensor of an all-to-all: rows of row_bytes, grouped by peer in rank order.
struct AllToAllLane {
  const void* send = nullptr;
  void* recv = nullptr;
  int64_t row_bytes = 0;
};

/// A group of ranks seen by one of them. Calls must come in the same order on all members. Throws
/// base::PeerFailed when another rank has failed. Members whose links
/// are shared with unlike numbers all wait for the one with the most.
class Communicator {
 public:
  virtual ~Communicator() = default;

  [[nodiscard]] virtual int size() const = 0;
  [[nodiscard]] virtual int rank() const = 0;  ///< index within the group

  /// recv[i] = send of rank i, bytes_per_rank each. `send` may be this rank's place in `recv`.
  virtual CommTiming all_gather(const void* send, void* recv, int64_t bytes_per_rank,
                                const CommStart& start) = 0;
  /// recv = sum over ranks, in rank order, of their send[rank()]. `recv` may be this rank's place
  /// in `send`.
  virtual CommTiming reduce_scatter(const void* send, void* recv, int64_t numel_per_rank,
                                    base::DType dtype, const CommStart& start) = 0;
  /// In place, summed in rank order.
  virtual CommTiming all_reduce(void* data, int64_t numel, base::DType dtype,
                                const CommStart& start) = 0;
  /// Uneven all-to-all; the same row counts for every lane.
  virtual CommTiming all_to_all(std::span<const AllToAllLane> lanes,
                                std::span<const int64_t> send_rows,
                                std::span<const int64_t> recv_rows, const CommStart& start) = 0;
  /// The sender's stream waits until one of the slots has been read, then is busy for the transfer.
  /// Messages that use the same slots are received in the order of sending. `data` may be
  /// overwritten by what comes later on this stream.
  virtual CommTiming send(int peer, int64_t tag, const void* data, int64_t bytes,
                          const MessageSlots& slots, const CommStart& start) = 0;
  /// The oldest message of that tag.
  virtual CommTiming recv(int peer, int64_t tag, void* data, int64_t bytes,
                          const CommStart& start) = 0;
};

}  // namespace moetune::engine

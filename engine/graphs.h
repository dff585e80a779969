// When a part of a layer is captured into a graph, and when the graph runs in its stead. The
// engine's code for a captured part runs in every step, because it keeps the clocks, the trace and
// the places of buffers; on a device with graphs its operations first run kRunsBefore times by
// themselves, then are captured, and from then on the graph is launched.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "engine/spec/knobs.h"
#include "kernels/backend.h"

namespace moetune::engine {

/// What tells one captured part from another: the scope, where in the model, and the addresses of
/// everything that its operations touch. Only parts that are equal in all of it share a graph.
/// Buffers that are allocated inside of the scope are told by the trail of DeviceMemory.
struct GraphKey {
  int32_t scope = 0;
  int32_t layer = -1;
  int32_t label = 0;     ///< pass
  int32_t segment = 0;   ///< a part is cut wherever streams meet or ranks talk
  uint64_t buffers = 0;  ///< hash of the addresses

  auto operator<=>(const GraphKey&) const = default;
};

/// FNV-1a over addresses.
uint64_t hash_addresses(const std::vector<const void*>& addresses);

/// The graphs of one rank. On a device without graphs it never asks for anything.
class Graphs {
 public:
  explicit Graphs(kernels::Backend& backend) : backend_(backend) {}

  /// A scope begins; `key` without the segment. Scopes do not nest.
  void open(const GraphKey& key);
  void close(uint64_t trail);
  [[nodiscard]] bool is_open() const { return is_open_; }
  [[nodiscard]] bool is_of_one_layer() const { return key_.layer >= 0; }
  [[nodiscard]] bool is_capturing() const { return doing_ == Doing::capturing; }

  /// Before an operation of the scope, on stream 0: whether it is to be enqueued.
  bool begin_op();
  /// Ends the current segment, so that what comes next may wait for it; runs its graph. `trail`: of
  /// the allocations since the scope began. Throws base::Error when they are not where they were
  /// when the segment was captured.
  void end_segment(uint64_t trail);

  [[nodiscard]] int64_t num_graphs() const { return num_graphs_; }
  [[nodiscard]] int64_t num_replays() const { return num_replays_; }
  /// Segments that ran without a graph because there were too many different ones: their buffers
  /// never were where they had been before.
  [[nodiscard]] int64_t num_given_up() const { return num_given_up_; }

  /// Graphs of one part of one layer that differ in their buffers, at most; micro-batches in flight
  /// have buffers of their own.
  static constexpr int kMaxVariants = 64;
  /// Libraries choose and load their kernels at the first call, which no graph can hold; the second
  /// run shows that the buffers stay where they are.
  static constexpr int64_t kRunsBefore = 2;

 private:
  enum class Doing : uint8_t { nothing, running, capturing, replaying };
  struct Known {
    int graph = -1;        ///< -1: has only run by itself
    int64_t num_runs = 0;  ///< by itself, with the same trail
    uint64_t trail = 0;
  };

  kernels::Backend& backend_;
  std::map<GraphKey, Known> known_;
  std::map<GraphKey, int> num_variants_;  ///< by key without buffers
  bool is_open_ = false;
  GraphKey key_;
  Doing doing_ = Doing::nothing;
  int64_t num_graphs_ = 0;
  int64_t num_replays_ = 0;
  int64_t num_given_up_ = 0;
};

}  // namespace moetune::engine

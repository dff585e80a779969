// One event of Chrome JSON as text, and which of its members importers look at.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "profiler/import/json_fields.h"

namespace moetune::profiler {

/// What tells whether an event is read at all: looked up without reading the rest of it.
struct KinetoHead {
  std::string_view phase;     ///< "ph"
  std::string_view category;  ///< "cat"
};
/// Head of an event from JsonStream::value. Members are empty if the event lacks them or is no
/// object.
KinetoHead head_of_event(std::string_view event);

/// Members as text, empty where they are missing. Those of "args" by their names there.
struct KinetoEvent : JsonFieldSink {
  std::string_view name, ts, dur, pid, tid;
  std::string_view device, stream, correlation, bytes;
  std::string_view graph, graph_node;
  std::string_view collective, group, description, members, dtype, group_size;
  std::string_view in_nelems, out_nelems, sequence, source_rank, destination_rank;
  std::string_view sync_kind, wait_stream, wait_correlation, wait_event;
  std::string_view device_type, total_allocated, total_reserved;
  std::string_view external_id;
  std::string_view autograd_sequence, forward_thread;  ///< of operators
  /// Of kernels in files that we have written.
  std::string_view flops, least_bytes, eight_bit, recomputed;
  std::array<std::string_view, 3> grid, block;

  void clear() { *this = KinetoEvent(); }
  void take(const JsonField& field) override;

 private:
  size_t num_grid_ = 0;
  size_t num_block_ = 0;
};

}  // namespace moetune::profiler

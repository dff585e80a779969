// The kinds of device work, copies and waits that tracing interfaces distinguish. Used by our own
// recorder (device/device_activity.h) and for traces of other tools (imported_trace.h).
#pragma once

#include <cstdint>

namespace moetune::profiler {

enum class ActivityKind : uint8_t {
  kernel,
  copy,
  fill,
  graph,  ///< a whole replay, where its nodes are not traced
};

enum class CopyPath : uint8_t { other, to_device, to_host, on_device, peer, on_host };

/// Who waits for what. With stream_wait a stream waits, with all others the host.
enum class SyncKind : uint8_t { event, stream_wait, stream, device, other };

}  // namespace moetune::profiler

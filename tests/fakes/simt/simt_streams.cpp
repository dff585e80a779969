// Streams, events and captured graphs of the fake device, and the order in which it runs what they
// hold.
#include "tests/fakes/simt/simt_streams.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace moetune::simt {

CUstream_st* find_stream(cudaStream_t handle) {
  World& w = world();
  if (handle == nullptr || handle == cudaStreamLegacy) {
    auto& legacy = w.legacy_streams[current_device()];
    if (!legacy) {
      legacy = std::make_unique<CUstream_st>();
      legacy->device = current_device();
      legacy->lane = w.num_lanes++;
    }
    return legacy.get();
  }
  return w.streams.contains(handle) ? handle : nullptr;
}

cudaError_t prepare(CUstream_st& stream) {
  World& w = world();
  if (stream.capture) {
    if (!stream.capture->is_invalid) return cudaSuccess;
    return refuse(cudaErrorStreamCaptureInvalidated,
                  "the capture was invalidated by an earlier call");
  }
  const auto found = w.legacy_streams.find(stream.device);
  CUstream_st* legacy = found == w.legacy_streams.end() ? nullptr : found->second.get();
  if (&stream != legacy) {
    if (legacy != nullptr && stream.is_blocking()) join(stream.frontier, legacy->frontier);
    return cudaSuccess;
  }
  for (CUstream_st* other : w.streams) {
    if (other->device != stream.device || !other->is_blocking()) continue;
    if (other->capture) {
      return invalidate(*other->capture, cudaErrorStreamCaptureImplicit,
                        "the legacy stream would wait for a stream that is captured");
    }
    join(stream.frontier, other->frontier);
  }
  return cudaSuccess;
}

cudaError_t submit(CUstream_st& stream, Work work, const Operation& what) {
  const Operation here = placed(what, stream);
  if (stream.capture) return capture_node(stream, std::move(work), here);
  if (!world().schedule.is_deferred) return run_now(work, here);
  stream.frontier = {
      defer(std::make_shared<const Work>(std::move(work)), here, stream.frontier, stream.lane)};
  return cudaSuccess;
}

namespace {

cudaError_t enqueue_as(WorkKind kind, cudaStream_t handle, const std::function<void()>& work) {
  CUstream_st* stream = find_stream(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (const cudaError_t status = prepare(*stream); status != cudaSuccess) return status;
  Operation what;
  what.kind = kind;
  const auto run = [work] {
    work();
    return Failure();
  };
  return submit(*stream, run, what);
}

}  // namespace

cudaError_t enqueue(cudaStream_t handle, const std::function<void()>& work) {
  return call("enqueue", [&] { return enqueue_as(WorkKind::library_kernel, handle, work); });
}

namespace {

/// Waits by `wait`, and tells who watches.
template <typename Wait>
cudaError_t observed_wait(WaitReport report, const Wait& wait) {
  Observer* watching = observer();
  if (watching != nullptr) report.start_ns = watching->now_ns();
  report.status = wait();
  if (watching != nullptr) watching->waited(report, current_call());
  return report.status;
}

WaitReport wait_for(const CUevent_st& event) {
  return {WaitKind::event, event.device, event.lane, event.record};
}
WaitReport wait_for(const CUstream_st& stream) {
  return {WaitKind::stream, stream.device, stream.lane};
}

cudaError_t make_stream(cudaStream_t* handle, unsigned flags, int priority) {
  if ((flags & ~static_cast<unsigned>(cudaStreamNonBlocking)) != 0) return cudaErrorInvalidValue;
  World& w = world();
  auto stream = std::make_unique<CUstream_st>();
  stream->device = current_device();
  stream->flags = flags;
  stream->priority = priority;
  stream->lane = w.num_lanes++;
  *handle = stream.release();
  w.streams.insert(*handle);
  return cudaSuccess;
}

/// For functions that ask how far a stream is.
cudaError_t check_waitable(CUstream_st* stream, const char* function) {
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (stream->capture) {
    return invalidate(*stream->capture, cudaErrorStreamCaptureUnsupported,
                      fmt::format("{} on a stream that is captured", function));
  }
  if (const cudaError_t status = refuse_while_capturing(function); status != cudaSuccess) {
    return status;
  }
  return prepare(*stream);
}

/// For functions that ask how far an event is.
cudaError_t check_waitable(cudaEvent_t event, const char* function) {
  if (!world().events.contains(event)) return cudaErrorInvalidResourceHandle;
  if (event->capture) {
    const std::string text =
        fmt::format("{} on an event that was last recorded in a captured stream", function);
    if (event->capture->is_over) return refuse(cudaErrorCapturedEvent, text);
    return invalidate(*event->capture, cudaErrorCapturedEvent, text);
  }
  return refuse_while_capturing(function);
}

cudaError_t wait_for_captured(CUstream_st& stream, CUevent_st& event) {
  const std::shared_ptr<Capture> capture = event.capture;
  if (capture->is_over) {
    constexpr auto kText = "the event was last recorded in a capture that has ended";
    if (stream.capture) {
      return invalidate(*stream.capture, cudaErrorStreamCaptureIsolation, kText);
    }
    return refuse(cudaErrorStreamCaptureIsolation, kText);
  }
  if (capture->is_invalid) {
    return refuse(cudaErrorStreamCaptureInvalidated, "the event's capture was invalidated");
  }
  if (!stream.capture) {
    if (!world().streams.contains(&stream)) {
      return invalidate(*capture, cudaErrorStreamCaptureImplicit,
                        "the legacy stream cannot join a capture");
    }
    stream.capture = capture;
    stream.frontier_before = std::exchange(stream.frontier, {});
    capture->streams.push_back(&stream);
  } else if (stream.capture != capture) {
    invalidate(*stream.capture, cudaErrorStreamCaptureMerge, "");
    return invalidate(*capture, cudaErrorStreamCaptureMerge,
                      "a stream of one capture waits for an event of another");
  }
  join(stream.frontier, event.after);
  return cudaSuccess;
}

/// When the event happened, on the device's clock.
uint64_t time_of(const CUevent_st& event) {
  uint64_t time = event.recorded_at;
  for (const auto& node : event.after) time = std::max(time, node->done_at);
  return time;
}

}  // namespace
}  // namespace moetune::simt

using namespace moetune::simt;

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return call("cudaStreamCreateWithPriority", [&] { return make_stream(stream, flags, priority); });
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return call("cudaStreamCreateWithFlags", [&] { return make_stream(stream, flags, 0); });
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return call("cudaStreamCreate", [&] { return make_stream(stream, 0, 0); });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return call("cudaStreamDestroy", [&] {
    World& w = world();
    if (!w.streams.contains(stream)) return cudaErrorInvalidResourceHandle;
    if (const auto capture = stream->capture) {
      invalidate(*capture, cudaErrorStreamCaptureInvalidated, "");
      if (capture->origin == stream) {
        end(capture);
      } else {
        std::erase(capture->streams, stream);
        stream->frontier = stream->frontier_before;
      }
    }
    join(w.orphans[stream->device], stream->frontier);  // its work runs to the end
    w.streams.erase(stream);
    delete stream;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
  return call("cudaStreamGetPriority", [&] {
    const CUstream_st* stream = find_stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    *priority = stream->priority;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned* flags) {
  return call("cudaStreamGetFlags", [&] {
    const CUstream_st* stream = find_stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    *flags = stream->flags;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return call("cudaStreamSynchronize", [&] {
    CUstream_st* stream = find_stream(handle);
    const cudaError_t status = check_waitable(stream, "cudaStreamSynchronize");
    if (status != cudaSuccess) return status;
    return observed_wait(wait_for(*stream), [&] { return finish(stream->frontier); });
  });
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return call("cudaStreamQuery", [&] {
    CUstream_st* stream = find_stream(handle);
    const cudaError_t status = check_waitable(stream, "cudaStreamQuery");
    if (status != cudaSuccess) return status;
    return observed_wait(wait_for(*stream), [&] { return advance(stream->frontier); });
  });
}

cudaError_t cudaDeviceSynchronize() {
  return call("cudaDeviceSynchronize", [] {
    const cudaError_t status = refuse_device_capture(current_device());
    if (status != cudaSuccess) return status;
    return observed_wait({WaitKind::device, current_device()},
                         [] { return finish_device(current_device()); });
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned flags) {
  return call("cudaStreamWaitEvent", [&] {
    CUstream_st* stream = find_stream(handle);
    if (stream == nullptr || !world().events.contains(event)) return cudaErrorInvalidResourceHandle;
    if (flags != 0) return refuse(cudaErrorInvalidValue, "simt: events have no external waits");
    if (const cudaError_t status = prepare(*stream); status != cudaSuccess) return status;
    if (!event->is_recorded) return cudaSuccess;
    if (event->capture) return wait_for_captured(*stream, *event);
    if (stream->capture) {
      return invalidate(*stream->capture, cudaErrorStreamCaptureIsolation,
                        "a captured stream waits for an event that was recorded outside of the "
                        "capture");
    }
    return observed_wait({WaitKind::stream_for_event, stream->device, stream->lane, event->record},
                         [&] { return join(stream->frontier, event->after), cudaSuccess; });
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
  return call("cudaLaunchHostFunc",
              [&] { return enqueue_as(WorkKind::host, handle, [=] { function(data); }); });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return call("cudaEventCreateWithFlags", [&] {
    *event = new CUevent_st;
    (*event)->device = current_device();
    (*event)->has_time = (flags & cudaEventDisableTiming) == 0;
    world().events.insert(*event);
    return cudaSuccess;
  });
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return call("cudaEventDestroy", [&] {
    if (world().events.erase(event) == 0) return cudaErrorInvalidResourceHandle;
    delete event;
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
  return call("cudaEventRecord", [&] {
    CUstream_st* stream = find_stream(handle);
    if (stream == nullptr || !world().events.contains(event)) return cudaErrorInvalidResourceHandle;
    if (stream->device != event->device) {
      return refuse(cudaErrorInvalidResourceHandle, "event and stream are of different devices");
    }
    if (const cudaError_t status = prepare(*stream); status != cudaSuccess) return status;
    event->is_recorded = true;
    event->after = stream->frontier;
    event->capture = stream->capture;
    event->recorded_at = world().clock;
    event->record = ++world().last_record;
    event->lane = stream->lane;
    if (Observer* watching = observer(); watching != nullptr && !stream->capture) {
      watching->recorded(stream->device, stream->lane, event->record, current_call());
    }
    return cudaSuccess;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return call("cudaEventSynchronize", [&] {
    const cudaError_t status = check_waitable(event, "cudaEventSynchronize");
    if (status != cudaSuccess) return status;
    return observed_wait(wait_for(*event), [&] { return finish(event->after); });
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return call("cudaEventQuery", [&] {
    const cudaError_t status = check_waitable(event, "cudaEventQuery");
    if (status != cudaSuccess) return status;
    return observed_wait(wait_for(*event), [&] { return advance(event->after); });
  });
}

// A microsecond for each operation that ran in between, on whatever stream.
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t stop) {
  return call("cudaEventElapsedTime", [&] {
    for (cudaEvent_t event : {start, stop}) {
      if (const cudaError_t status = check_waitable(event, "cudaEventElapsedTime");
          status != cudaSuccess) {
        return status;
      }
      if (!event->has_time || !event->is_recorded) return cudaErrorInvalidResourceHandle;
      if (const cudaError_t status = advance(event->after); status != cudaSuccess) return status;
    }
    *ms = (static_cast<float>(time_of(*stop)) - static_cast<float>(time_of(*start))) * 1e-3F;
    return cudaSuccess;
  });
}

}  // extern "C"

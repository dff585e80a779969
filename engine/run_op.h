// The context of one rank and the one way to run work on it: every operation passes run_op, which
// launches it on the rank's timeline, measures it and labels it.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/comm/world.h"
#include "engine/graphs.h"
#include "engine/memory/device_memory.h"
#include "engine/spec/buffers.h"
#include "engine/spec/layout.h"
#include "engine/spec/ops.h"
#include "engine/spec/precision.h"
#include "engine/spec/trial_spec.h"
#include "kernels/backend.h"
#include "profiler/cupti_recorder.h"
#include "profiler/nvtx.h"
#include "profiler/timeline.h"

namespace moetune::engine {

/// A point on a stream of this rank: on the timeline's clock and on the device.
struct Event {
  profiler::Event time;
  kernels::DeviceEvent device;
};

using spec::Op;
using spec::Pass;
using spec::Stream;

/// The communicators of a rank. Groups of one rank are there, too; the engine skips their calls.
struct RankComms {
  std::unique_ptr<Communicator> world;
  std::unique_ptr<Communicator> dp_cp;
  std::unique_ptr<Communicator> cp;
  std::unique_ptr<Communicator> ep;
  std::unique_ptr<Communicator> edp;
  std::unique_ptr<Communicator> pp;
  std::unique_ptr<Communicator> embedding;  ///< null on ranks outside the first and last stage
};

/// Where in the model the rank is; labels the trace.
struct Place {
  int32_t layer = -1;
  int32_t micro_batch = -1;
};

/// Everything one rank works with. One thread uses it.
struct RankContext {
  RankContext(const spec::TrialSpec& trial_in, int rank_in, kernels::Backend& backend_in)
      : trial(trial_in),
        layout(spec::layout_of(trial_in.knobs)),
        rank(rank_in),
        precision(spec::precision_of(trial_in.dtype)),
        element_bytes(base::size_of(precision.element)),
        backend(backend_in),
        memory(backend_in, rank_in, trial_in.hardware.memory_bytes),
        graphs(backend_in),
        timeline(clock_mode(trial_in.clock), rank_in, static_cast<int>(Stream::count),
                 {trial_in.hardware.launch_ns, trial_in.hardware.graph_launch_ns,
                  trial_in.hardware.sync_ns}) {}

  static profiler::ClockMode clock_mode(const std::string& name) {
    if (name == "wall") return profiler::ClockMode::wall;
    return name == "virtual_modelled" ? profiler::ClockMode::virtual_modelled
                                      : profiler::ClockMode::virtual_measured;
  }

  /// One of the step's sums, a double in device memory.
  [[nodiscard]] double* scalar(spec::Scalar which) const {
    return static_cast<double*>(scalars.data) + static_cast<int>(which);
  }

  /// Whom to tell which op is launched: of the steps that are traced, and whenever a graph is
  /// captured, whose replays will be traced later.
  [[nodiscard]] profiler::DeviceRecorder* labels() const {
    return is_traced || graphs.is_capturing() ? recorder : nullptr;
  }

  [[nodiscard]] bool is_first_stage() const { return layout.pp_rank(rank) == 0; }
  [[nodiscard]] bool is_last_stage() const { return layout.pp_rank(rank) == layout.pp - 1; }

  const spec::TrialSpec& trial;
  spec::Layout layout;
  int rank;
  spec::Precision precision;
  int64_t element_bytes;
  kernels::Backend& backend;
  DeviceMemory memory;
  Graphs graphs;
  profiler::Timeline timeline;
  World* world = nullptr;
  profiler::DeviceRecorder* recorder = nullptr;  ///< on a device that is to be traced
  bool is_traced = false;                        ///< this step
  RankComms comms;
  Place place;
  kernels::Tensor scalars;  ///< f64 [1, Scalar::count]
};

inline int stream_of(Op op) { return static_cast<int>(spec::op_row(op).stream); }

inline profiler::OpTag tag_of(const RankContext& rank, Op op, Pass pass, const spec::OpCost& cost) {
  return {
      spec::op_label(op, pass), rank.place.layer, rank.place.micro_batch, cost.flops, cost.bytes, 0,
      pass == Pass::recompute};
}

inline profiler::DeviceOp device_op(const RankContext& rank, const profiler::OpTag& tag, Op op,
                                    profiler::RecordKind kind, const char* group = "") {
  return {tag, kind, rank.rank, stream_of(op), group, -1};
}

/// Ends what is being captured or replayed, before anything that cannot be part of it.
inline void leave_graph(RankContext& rank) {
  if (!rank.graphs.is_open()) return;
  // A whole iteration's graph holds work of many places, each of which was captured with its own.
  const bool is_of_one_place = !spec::has_graph(rank.trial.knobs, spec::GraphScope::full_iteration);
  const Place place = is_of_one_place ? rank.place : Place{};
  const profiler::OpTag tag{"graph", place.layer, place.micro_batch};
  const profiler::DeviceOpScope scope(rank.labels(),
                                      {tag, profiler::RecordKind::kernel, rank.rank, 0, "", -1});
  rank.graphs.end_segment(rank.memory.trail());
}

/// Runs `body` (backend calls) as one launch of `op`.
template <typename Body>
void run_op(RankContext& rank, Op op, Pass pass, const spec::OpCost& cost, Body&& body) {
  profiler::OpTag tag = tag_of(rank, op, pass, cost);
  const int stream = stream_of(op);
  const profiler::NvtxRange range(tag.name);
  const int64_t start = rank.timeline.launch(stream);
  const bool is_wall = rank.timeline.mode() == profiler::ClockMode::wall;
  const int64_t begin = is_wall ? profiler::wall_ns() : profiler::thread_cpu_ns();
  rank.backend.use_stream(stream);
  if (rank.graphs.begin_op()) {
    const profiler::DeviceOpScope scope(rank.labels(),
                                        device_op(rank, tag, op, profiler::RecordKind::kernel));
    body();
  }
  int64_t duration = (is_wall ? profiler::wall_ns() : profiler::thread_cpu_ns()) - begin;
  if (rank.timeline.mode() == profiler::ClockMode::virtual_modelled) {
    duration = spec::roofline_ns(rank.trial.hardware, cost);
  }
  rank.timeline.finish(stream, profiler::RecordKind::kernel, tag, start, duration);
}

/// Runs `body`, a communicator call taking the ready time and returning CommTiming, as one launch
/// of `op`.
template <typename Body>
void run_comm(RankContext& rank, Op op, Pass pass, spec::Group group, Body&& body) {
  leave_graph(rank);
  profiler::OpTag tag = tag_of(rank, op, pass, {});
  const int stream = stream_of(op);
  const profiler::NvtxRange range(tag.name);
  const int64_t ready = rank.timeline.launch(stream);
  const auto kind = spec::op_row(op).kind == spec::OpKind::p2p ? profiler::RecordKind::p2p
                                                               : profiler::RecordKind::collective;
  rank.backend.use_stream(stream);
  CommTiming timing;
  {
    profiler::DeviceOpScope scope(rank.labels(),
                                  device_op(rank, tag, op, kind, spec::name_of(group)));
    timing = body(ready);
    scope.set_communication(timing.sent_bytes, timing.sequence);
  }
  tag.bytes = timing.sent_bytes;
  rank.timeline.finish_communication(stream, kind, tag, spec::name_of(group), timing.sequence,
                                     ready, timing.end_ns, timing.transfer_ns);
}

/// The end of everything launched on `stream` so far.
inline Event record_event(RankContext& rank, Stream stream) {
  leave_graph(rank);
  rank.backend.use_stream(static_cast<int>(stream));
  return {rank.timeline.record_event(static_cast<int>(stream)), rank.backend.record_event()};
}

inline void wait_event(RankContext& rank, Stream stream, const Event& event) {
  leave_graph(rank);
  rank.timeline.wait_event(static_cast<int>(stream), event.time);
  rank.backend.use_stream(static_cast<int>(stream));
  rank.backend.wait_event(event.device);
}

/// `stream` waits for everything launched on `other` so far.
inline void join_streams(RankContext& rank, Stream stream, Stream other) {
  wait_event(rank, stream, record_event(rank, other));
}

/// Orders two streams on the device only. The emulated cluster has buffers of their own for what
/// comes in and goes out; on a device the same memory is used again and has to be free by then.
inline void reuse_after(RankContext& rank, Stream stream, Stream other) {
  leave_graph(rank);
  rank.backend.use_stream(static_cast<int>(other));
  const kernels::DeviceEvent end = rank.backend.record_event();
  rank.backend.use_stream(static_cast<int>(stream));
  rank.backend.wait_event(end);
}

/// Runs `body`, copies from the host and fills, on the copy stream: beside all that is launched
/// until finish_uploads. Their targets belong to `user`. Virtual time has no such copies.
template <typename Body>
void begin_uploads(RankContext& rank, Stream user, Body&& body) {
  reuse_after(rank, Stream::copy, user);
  {
    const profiler::OpTag tag{"upload", rank.place.layer, rank.place.micro_batch};
    const profiler::DeviceOpScope scope(
        rank.labels(),
        {tag, profiler::RecordKind::memcpy, rank.rank, static_cast<int32_t>(Stream::copy), "", -1});
    rank.backend.use_stream(static_cast<int>(Stream::copy));
    body();
  }
  rank.backend.use_stream(static_cast<int>(user));
}

/// What is launched on `user` from here on finds all uploads done.
inline void finish_uploads(RankContext& rank, Stream user) {
  reuse_after(rank, user, Stream::copy);
}

/// Copies to the host what has been computed on `stream`; the host waits for it, and for nothing
/// else.
inline void fetch(RankContext& rank, Stream stream, Pass pass, void* host, const void* device,
                  int64_t bytes) {
  leave_graph(rank);
  const profiler::OpTag tag = tag_of(rank, Op::host_sync, pass, {});
  rank.timeline.synchronize(rank.timeline.record_event(static_cast<int>(stream)), tag);
  rank.backend.use_stream(static_cast<int>(stream));
  const profiler::DeviceOpScope scope(
      rank.labels(),
      {tag, profiler::RecordKind::host_sync, rank.rank, static_cast<int32_t>(stream), "", -1});
  rank.backend.copy_to_host(host, device, bytes);
  // Communication that was ended half-way lets the stream go on, with anything in its buffers.
  rank.world->check();
}

/// A captured graph for its lifetime, when the knobs ask for the scope. buffers() gives the
/// addresses of everything that the operations of the scope read or write and that may lie
/// elsewhere the next time; it is called only where there are graphs.
class GraphCapture {
 public:
  template <typename Buffers>
  GraphCapture(RankContext& rank, spec::GraphScope scope, Pass label, Buffers&& buffers)
      : rank_(rank), is_open_(spec::has_graph(rank.trial.knobs, scope)) {
    if (!is_open_) return;
    rank_.timeline.begin_graph();
    if (!rank_.backend.has_graphs()) return;
    rank_.memory.begin_trail();
    rank_.graphs.open({static_cast<int32_t>(scope), rank.place.layer, static_cast<int32_t>(label),
                       0, hash_addresses(buffers())});
  }
  // Not in the destructor: running the graph may throw.
  void close() {
    if (!is_open_) return;
    is_open_ = false;
    rank_.timeline.end_graph();
    leave_graph(rank_);
    rank_.graphs.close(rank_.memory.trail());
  }
  ~GraphCapture() {
    if (is_open_) rank_.timeline.end_graph();
  }
  GraphCapture(const GraphCapture&) = delete;
  GraphCapture& operator=(const GraphCapture&) = delete;

 private:
  RankContext& rank_;
  bool is_open_;
};

}  // namespace moetune::engine

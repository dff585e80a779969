// The context of one rank and the one way to run work on it: every operation passes run_op, which
// launches it on the rank's timeline, measures it and labels it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/comm/world.h"
#include "engine/graphs.h"
#include "engine/memory/device_memory.h"
#include "engine/plan/buffers.h"
#include "engine/plan/layout.h"
#include "engine/plan/program.h"
#include "engine/spec/precision.h"
#include "engine/spec/trial_spec.h"
#include "kernels/backend.h"
#include "profiler/device/cupti_recorder.h"
#include "profiler/nvtx.h"
#include "profiler/timeline.h"

namespace moetune::engine {

/// A point on a stream of this rank: on the timeline's clock and on the device.
struct Event {
  profiler::Event time;
  kernels::DeviceEvent device;
};

using plan::Op;
using plan::Pass;
using plan::Stream;

/// The communicators of a rank, by group; null where the rank is in no such group (embedding, in
/// the middle of a pipeline).
class RankComms {
 public:
  void make(World& world, int rank, kernels::Backend& backend) {
    for (size_t i = 0; i < comms_.size(); ++i) {
      comms_[i] = world.communicator(static_cast<plan::Group>(i), rank, backend);
    }
  }
  [[nodiscard]] Communicator& of(plan::Group group) const {
    return *comms_[static_cast<size_t>(group)];
  }

 private:
  std::array<std::unique_ptr<Communicator>, static_cast<size_t>(plan::Group::count)> comms_;
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
        layout(plan::layout_of(trial_in.knobs)),
        rank(rank_in),
        precision(spec::precision_of(trial_in.dtype, trial_in.knobs)),
        backend(backend_in),
        memory(backend_in, rank_in, trial_in.hardware.memory_bytes),
        graphs(backend_in),
        timeline(trial_in.clock, rank_in, static_cast<int>(Stream::count),
                 {trial_in.hardware.launch_ns, trial_in.hardware.graph_launch_ns,
                  trial_in.hardware.sync_ns},
                 static_cast<int>(trial_in.hardware.local_device_of(rank_in))) {}

  /// Whom to tell which op is launched: of the steps that are traced, and whenever a graph is
  /// captured, whose replays will be traced later.
  [[nodiscard]] profiler::DeviceRecorder* labels() const {
    return is_traced || graphs.is_capturing() ? recorder : nullptr;
  }

  /// With whom `instr` communicates.
  [[nodiscard]] profiler::Partners partners_of(const plan::Instr& instr) {
    std::vector<int>& ranks = group_ranks[static_cast<size_t>(instr.group)];
    if (ranks.empty()) ranks = layout.group_ranks(instr.group, rank);
    return {ranks.front(), instr.peer < 0 ? -1 : ranks.at(static_cast<size_t>(instr.peer))};
  }

  const spec::TrialSpec& trial;
  plan::Layout layout;
  int rank;
  spec::Precision precision;
  kernels::Backend& backend;
  DeviceMemory memory;
  Graphs graphs;
  profiler::Timeline timeline;
  World* world = nullptr;
  profiler::DeviceRecorder* recorder = nullptr;  ///< on a device that is to be traced
  bool is_traced = false;                        ///< this step
  RankComms comms;
  /// Of the groups that have been asked for.
  std::array<std::vector<int>, static_cast<size_t>(plan::Group::count)> group_ranks;
  Place place;
  kernels::Tensor scalars;  ///< f64 [1, Scalar::count]
};

inline profiler::OpTag tag_of(const RankContext& rank, Op op, Pass pass, const plan::OpCost& cost) {
  return {
      plan::op_label(op, pass), rank.place.layer, rank.place.micro_batch, cost.flops, cost.bytes,
      pass == Pass::recompute};
}

inline profiler::DeviceOp device_op(const RankContext& rank, const profiler::OpTag& tag,
                                    Stream stream, profiler::RecordKind kind,
                                    const char* group = "") {
  return {tag, kind, rank.rank, static_cast<int32_t>(stream), group, -1};
}

/// Ends what is being captured or replayed, before anything that cannot be part of it.
inline void leave_graph(RankContext& rank) {
  rank.timeline.cut_graph();
  if (!rank.graphs.is_open()) return;
  // A graph of one layer is labelled with its layer and micro-batch. A graph of a whole iteration
  // has many of them and gets no label; its operations got theirs when they were captured.
  const Place place = rank.graphs.is_of_one_layer() ? rank.place : Place{};
  const profiler::OpTag tag{"graph", place.layer, place.micro_batch};
  const profiler::DeviceOpScope scope(rank.labels(),
                                      {tag, profiler::RecordKind::kernel, rank.rank, 0, "", -1});
  rank.graphs.end_segment(rank.memory.trail());
}

/// Runs `body` (backend calls) as one launch of `op`. In virtual time collectives beside it take
/// their part of the device.
template <typename Body>
void run_op(RankContext& rank, Op op, Pass pass, Stream on, const plan::OpCost& cost,
            const plan::Sharing& sharing, Body&& body) {
  profiler::OpTag tag = tag_of(rank, op, pass, cost);
  const auto stream = static_cast<int>(on);
  const profiler::NvtxRange range(tag.name);
  const int64_t start = rank.timeline.launch(stream);
  const bool is_wall = rank.timeline.mode() == profiler::ClockMode::wall;
  const int64_t begin = is_wall ? profiler::wall_ns() : profiler::thread_cpu_ns();
  rank.backend.use_stream(stream);
  if (rank.graphs.begin_op()) {
    const profiler::DeviceOpScope scope(rank.labels(),
                                        device_op(rank, tag, on, profiler::RecordKind::kernel));
    body();
  }
  int64_t duration = (is_wall ? profiler::wall_ns() : profiler::thread_cpu_ns()) - begin;
  if (rank.timeline.mode() == profiler::ClockMode::virtual_modelled) {
    duration = plan::roofline_ns(rank.trial.hardware, op, cost);
  }
  if (!is_wall) {
    duration = plan::slowed_ns(rank.trial.hardware, duration, sharing.num_collectives);
  }
  rank.timeline.finish(stream, profiler::RecordKind::kernel, tag, start, duration);
}

/// Runs `body`, a communicator call taking the ready time and returning CommTiming, as one launch
/// of `instr`.
template <typename Body>
void run_comm(RankContext& rank, const plan::Instr& instr, Body&& body) {
  profiler::OpTag tag = tag_of(rank, instr.op, instr.pass, {});
  const auto stream = static_cast<int>(instr.stream);
  const profiler::NvtxRange range(tag.name);
  const int64_t ready = rank.timeline.launch(stream, false);
  const auto kind = plan::op_row(instr.op).kind == plan::OpKind::p2p
                        ? profiler::RecordKind::p2p
                        : profiler::RecordKind::collective;
  const profiler::Partners partners = rank.partners_of(instr);
  rank.backend.use_stream(stream);
  CommTiming timing;
  {
    profiler::DeviceOp labelled =
        device_op(rank, tag, instr.stream, kind, plan::name_of(instr.group));
    labelled.partners = partners;
    profiler::DeviceOpScope scope(rank.labels(), labelled);
    timing = body(ready);
    scope.set_communication(timing.sent_bytes, timing.sequence);
  }
  tag.bytes = timing.sent_bytes;
  rank.timeline.finish_communication(stream, kind, tag, plan::name_of(instr.group), timing.sequence,
                                     ready, timing.end_ns, timing.transfer_ns, partners);
}

/// Runs `body`, work of the host that the device needs.
template <typename Body>
void run_on_host(RankContext& rank, Op op, Pass pass, const plan::OpCost& cost, Body&& body) {
  const profiler::OpTag tag = tag_of(rank, op, pass, cost);
  const profiler::NvtxRange range(tag.name);
  const int64_t start = rank.timeline.begin_host_work();
  const bool is_wall = rank.timeline.mode() == profiler::ClockMode::wall;
  const auto now = [&] { return is_wall ? profiler::wall_ns() : profiler::thread_cpu_ns(); };
  const int64_t begin = now();
  body();
  int64_t duration = now() - begin;
  if (rank.timeline.mode() == profiler::ClockMode::virtual_modelled) {
    duration = plan::host_work_ns(cost);
  }
  rank.timeline.finish_host_work(tag, start, duration);
}

/// The end of everything launched on `stream` so far.
inline Event record_event(RankContext& rank, Stream stream) {
  rank.backend.use_stream(static_cast<int>(stream));
  return {rank.timeline.record_event(static_cast<int>(stream)), rank.backend.record_event()};
}

/// When the message launched last on `stream` had its slot; on the device the end of the copy
/// there.
inline Event record_slot(RankContext& rank, Stream stream) {
  rank.backend.use_stream(static_cast<int>(stream));
  return {rank.timeline.record_slot(static_cast<int>(stream)), rank.backend.record_event()};
}

inline void wait_event(RankContext& rank, Stream stream, const Event& event) {
  rank.timeline.wait_event(static_cast<int>(stream), event.time);
  rank.backend.use_stream(static_cast<int>(stream));
  rank.backend.wait_event(event.device);
}

// The same on the device only. The emulated cluster has buffers of their own for what comes in and
// goes out; on a device the same memory is used again and has to be free by then.
inline Event record_device_event(RankContext& rank, Stream stream) {
  rank.backend.use_stream(static_cast<int>(stream));
  return {{}, rank.backend.record_event()};
}

inline void wait_device_event(RankContext& rank, Stream stream, const Event& event) {
  rank.backend.use_stream(static_cast<int>(stream));
  rank.backend.wait_event(event.device);
}

/// Runs `body`, copies from the host and fills, on `stream`. Virtual time has no such copies.
template <typename Body>
void upload_on(RankContext& rank, Stream stream, Body&& body) {
  const profiler::OpTag tag{"upload", rank.place.layer, rank.place.micro_batch};
  const profiler::DeviceOpScope scope(rank.labels(),
                                      device_op(rank, tag, stream, profiler::RecordKind::memcpy));
  rank.backend.use_stream(static_cast<int>(stream));
  body();
}

/// Runs `body`, copies to the host for whom nobody pays: an observer looks.
template <typename Body>
void look_at(RankContext& rank, Body&& body) {
  leave_graph(rank);
  rank.backend.use_stream(static_cast<int>(Stream::compute));
  const profiler::DeviceOpScope scope(
      rank.labels(), device_op(rank, tag_of(rank, Op::host_sync, Pass::forward, {}),
                               Stream::compute, profiler::RecordKind::host_sync));
  body();
}

/// Copies to the host what has been computed on `stream`; the host waits for it, and for nothing
/// else.
inline void fetch(RankContext& rank, Stream stream, Pass pass, void* host, const void* device,
                  int64_t bytes) {
  const profiler::OpTag tag = tag_of(rank, Op::host_sync, pass, {});
  rank.timeline.synchronize(rank.timeline.record_event(static_cast<int>(stream)), tag);
  rank.backend.use_stream(static_cast<int>(stream));
  const profiler::DeviceOpScope scope(
      rank.labels(), device_op(rank, tag, stream, profiler::RecordKind::host_sync));
  rank.backend.copy_to_host(host, device, bytes);
  // Communication that was ended half-way lets the stream go on, with anything in its buffers.
  rank.world->check();
}

}  // namespace moetune::engine

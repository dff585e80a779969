#include "kernels/cuda/streams.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "kernels/base/error.h"
#include "kernels/cuda/runtime_check.h"

namespace moetune::kernels::cuda {

Streams::Streams() { use(0); }

Streams::~Streams() {
  for (const Line& line : lines_) {
    if (line.stream != nullptr) static_cast<void>(cudaStreamSynchronize(line.stream));
  }
  for (const Graph& graph : graphs_) {
    static_cast<void>(cudaGraphExecDestroy(graph.instance));
    static_cast<void>(cudaGraphDestroy(graph.graph));
  }
  for (const Line& line : lines_) {
    for (CUevent_st* event : line.events) static_cast<void>(cudaEventDestroy(event));
    if (line.stream != nullptr) static_cast<void>(cudaStreamDestroy(line.stream));
  }
}

void Streams::use(int stream) {
  MOETUNE_CHECK(stream >= 0 && stream < Backend::kMaxStreams, "there is no stream {}", stream);
  current_ = stream;
  Stream& made = lines_[static_cast<size_t>(stream)].stream;
  if (made != nullptr) return;
  // What moves data is short and others wait for it: its blocks go first where both could run.
  int lowest = 0;
  int highest = 0;
  check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "priorities of streams");
  check(cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, stream == 0 ? lowest : highest),
        "making a stream");
}

DeviceEvent Streams::record() {
  Line& line = lines_[static_cast<size_t>(current_)];
  if (line.events.size() < kNumEvents) {
    CUevent_st* event = nullptr;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
    line.events.push_back(event);
    line.next_event = line.events.size() - 1;
  }
  CUevent_st* event = line.events[line.next_event];
  line.next_event = (line.next_event + 1) % kNumEvents;
  check(cudaEventRecord(event, line.stream), "recording an event");
  return {event};
}

void Streams::wait(const DeviceEvent& event) {
  if (event.native == nullptr) return;
  check(cudaStreamWaitEvent(current(), static_cast<CUevent_st*>(event.native), 0),
        "waiting for an event");
}

void Streams::synchronize() {
  for (const Line& line : lines_) {
    if (line.stream != nullptr) check(cudaStreamSynchronize(line.stream), "work on the device");
  }
}

void Streams::begin_capture() {
  // Other threads of this process go on allocating and waiting; only this one must not.
  check(cudaStreamBeginCapture(current(), cudaStreamCaptureModeThreadLocal),
        "beginning to capture a graph");
  is_capturing_ = true;
}

int Streams::end_capture() {
  is_capturing_ = false;
  Graph made;
  check(cudaStreamEndCapture(current(), &made.graph), "capturing a graph");
  const std::scoped_lock lock(measuring_mutex());
  const int64_t before = used_device_bytes();
  const cudaError_t status = cudaGraphInstantiate(&made.instance, made.graph, 0);
  if (status != cudaSuccess) static_cast<void>(cudaGraphDestroy(made.graph));
  check(status, "instantiating a graph");
  graph_bytes_ += std::max<int64_t>(0, used_device_bytes() - before);
  graphs_.push_back(made);
  return static_cast<int>(graphs_.size()) - 1;
}

void Streams::launch_graph(int graph) {
  check(cudaGraphLaunch(graphs_.at(static_cast<size_t>(graph)).instance, current()),
        "launching a graph");
}

}  // namespace moetune::kernels::cuda

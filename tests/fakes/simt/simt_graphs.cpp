// Stream capture and graphs of the fake device. What a card refuses while a stream is captured is
// refused here with the same error, and spoils the capture as it does there. See simt_streams.h.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "tests/fakes/simt/simt_streams.h"

namespace moetune::simt {
namespace {

thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

/// A chain of operations is as long as a step; destroyed link by link it would need as deep a
/// stack.
void unlink(const Nodes& nodes) {
  for (const auto& node : nodes) node->after.clear();
}

/// True when the calling thread must leave alone what could disturb this capture.
bool forbids_unsafe_calls(const Capture& capture) {
  if (thread_mode == cudaStreamCaptureModeRelaxed) return false;
  if (capture.thread == std::this_thread::get_id()) {
    return capture.mode != cudaStreamCaptureModeRelaxed;
  }
  return capture.mode == cudaStreamCaptureModeGlobal && thread_mode == cudaStreamCaptureModeGlobal;
}

}  // namespace

Capture::~Capture() { unlink(nodes); }

cudaError_t invalidate(Capture& capture, cudaError_t status, const std::string& text) {
  capture.is_invalid = true;
  return refuse(status, text);
}

cudaError_t refuse_while_capturing(const char* function) {
  cudaError_t status = cudaSuccess;
  for (const auto& capture : world().captures) {
    if (!forbids_unsafe_calls(*capture)) continue;
    status = invalidate(*capture, cudaErrorStreamCaptureUnsupported,
                        fmt::format("{} in a thread that captures a stream", function));
  }
  return status;
}

cudaError_t refuse_device_capture(int device) {
  cudaError_t status = cudaSuccess;
  for (const auto& capture : world().captures) {
    if (capture->origin->device != device) continue;
    status = invalidate(*capture, cudaErrorStreamCaptureUnsupported,
                        "waiting for a device of which a stream is captured");
  }
  return status;
}

cudaError_t capture_node(CUstream_st& stream, Work work, const Operation& what) {
  auto node = std::make_shared<Node>();
  node->work = std::make_shared<const Work>(std::move(work));
  node->after = std::exchange(stream.frontier, {});
  node->what = what;
  node->lane = stream.lane;
  if (Observer* watching = observer()) {
    watching->created_node(node.get());
    for (const auto& earlier : node->after) watching->depends(node.get(), earlier.get());
  }
  stream.frontier.push_back(node);
  stream.capture->nodes.push_back(std::move(node));
  return cudaSuccess;
}

void end(const std::shared_ptr<Capture>& capture) {
  capture->is_over = true;
  for (CUstream_st* stream : capture->streams) {
    stream->capture.reset();
    stream->frontier = std::exchange(stream->frontier_before, {});
  }
  capture->streams.clear();
  std::erase(world().captures, capture);
}

}  // namespace moetune::simt

using namespace moetune::simt;

struct CUgraph_st {
  ~CUgraph_st() { unlink(nodes); }
  Nodes nodes;  ///< in the order of capture
};

struct CUgraphExec_st {
  struct Step {
    std::shared_ptr<const Work> work;
    Operation what;
    std::vector<size_t> after;
    bool is_last = true;
    unsigned lane = 0;
  };
  std::vector<Step> steps;
  int device = 0;
  Nodes last_launch;  ///< a graph does not run beside itself
};

namespace {

std::unordered_set<cudaGraph_t>& graphs() {
  static auto* all = new std::unordered_set<cudaGraph_t>;
  return *all;
}
std::unordered_set<cudaGraphExec_t>& instances() {
  static auto* all = new std::unordered_set<cudaGraphExec_t>;
  return *all;
}

/// Since the program began.
uint32_t& num_instances() {
  static uint32_t count = 0;
  return count;
}

/// True when everything captured comes before the end of the stream that began.
bool is_joined(const Capture& capture) {
  std::unordered_set<const Node*> seen;
  std::vector<const Node*> open;
  for (const auto& node : capture.origin->frontier) open.push_back(node.get());
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    if (!seen.insert(node).second) continue;
    for (const auto& earlier : node->after) open.push_back(earlier.get());
  }
  return seen.size() == capture.nodes.size();
}

cudaError_t instantiate(cudaGraphExec_t* instance, cudaGraph_t graph) {
  if (!graphs().contains(graph)) return cudaErrorInvalidValue;
  auto made = std::make_unique<CUgraphExec_st>();
  made->device = current_device();
  const uint32_t number = ++num_instances();
  made->steps.reserve(graph->nodes.size());  // a step's address is its handle
  std::unordered_map<const Node*, size_t> places;
  for (const auto& node : graph->nodes) {
    CUgraphExec_st::Step step{node->work, node->what, {}, true, node->lane};
    for (const auto& earlier : node->after) {
      step.after.push_back(places.at(earlier.get()));
      made->steps[step.after.back()].is_last = false;
    }
    places[node.get()] = made->steps.size();
    made->steps.push_back(std::move(step));
    CUgraphExec_st::Step& kept = made->steps.back();
    kept.what.node = &kept;
    if (Observer* watching = observer()) watching->cloned_node(node.get(), &kept, number);
  }
  *instance = made.release();
  instances().insert(*instance);
  return cudaSuccess;
}

/// What a node is when its graph is launched on `stream`: there, or on a stream of the device's own
/// where it was captured beside the first.
Operation launched(const CUgraphExec_st& instance, const CUgraphExec_st::Step& step,
                   const CUstream_st& stream) {
  Operation what = placed(step.what, stream);
  if (step.lane != instance.steps.front().lane) what.stream = step.lane;
  return what;
}

cudaError_t launch_deferred(CUgraphExec_st& instance, CUstream_st& stream) {
  Nodes before = stream.frontier;
  join(before, instance.last_launch);
  Nodes made;
  Nodes last;
  for (const CUgraphExec_st::Step& step : instance.steps) {
    Nodes after;
    for (const size_t place : step.after) after.push_back(made[place]);
    if (after.empty()) after = before;
    made.push_back(defer(step.work, launched(instance, step, stream), after, step.lane));
    if (step.is_last) last.push_back(made.back());
  }
  if (last.empty()) last = before;
  stream.frontier = last;
  instance.last_launch = std::move(last);
  return cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return call("cudaThreadExchangeStreamCaptureMode", [&] {
    std::swap(*mode, thread_mode);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  return call("cudaStreamBeginCapture", [&] {
    CUstream_st* stream = find_stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (!world().streams.contains(stream)) {
      return refuse(cudaErrorStreamCaptureUnsupported, "the legacy stream cannot be captured");
    }
    if (stream->capture) return refuse(cudaErrorIllegalState, "the stream is captured already");
    const auto capture = std::make_shared<Capture>();
    capture->origin = stream;
    capture->mode = mode;
    capture->thread = std::this_thread::get_id();
    capture->streams.push_back(stream);
    stream->capture = capture;
    stream->frontier_before = std::exchange(stream->frontier, {});
    world().captures.push_back(capture);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  return call("cudaStreamEndCapture", [&] {
    *graph = nullptr;
    const CUstream_st* stream = find_stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    const std::shared_ptr<Capture> capture = stream->capture;
    if (!capture) return refuse(cudaErrorIllegalState, "the stream is not captured");
    if (capture->origin != stream) {
      return invalidate(*capture, cudaErrorStreamCaptureUnmatched,
                        "the capture began in another stream");
    }
    if (capture->mode != cudaStreamCaptureModeRelaxed &&
        capture->thread != std::this_thread::get_id()) {
      return invalidate(*capture, cudaErrorStreamCaptureWrongThread,
                        "the capture began in another thread");
    }
    const bool has_all = is_joined(*capture);
    end(capture);
    if (capture->is_invalid) {
      return refuse(cudaErrorStreamCaptureInvalidated,
                    "the capture was invalidated by an earlier call");
    }
    if (!has_all) {
      return refuse(cudaErrorStreamCaptureUnjoined,
                    "the stream did not wait for the last work of another that joined");
    }
    *graph = new CUgraph_st;
    (*graph)->nodes = std::exchange(capture->nodes, {});
    graphs().insert(*graph);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return call("cudaStreamIsCapturing", [&] {
    const CUstream_st* stream = find_stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    *status = cudaStreamCaptureStatusNone;
    if (stream->capture) {
      *status = stream->capture->is_invalid ? cudaStreamCaptureStatusInvalidated
                                            : cudaStreamCaptureStatusActive;
    }
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* instance, cudaGraph_t graph, unsigned long long) {
  return call("cudaGraphInstantiate", [&] { return instantiate(instance, graph); });
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* instance, cudaGraph_t graph,
                                          unsigned long long) {
  return call("cudaGraphInstantiateWithFlags", [&] { return instantiate(instance, graph); });
}

cudaError_t cudaGraphUpload(cudaGraphExec_t instance, cudaStream_t) {
  return call("cudaGraphUpload",
              [&] { return instances().contains(instance) ? cudaSuccess : cudaErrorInvalidValue; });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t instance, cudaStream_t handle) {
  return call("cudaGraphLaunch", [&] {
    CUstream_st* stream = find_stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (!instances().contains(instance)) return cudaErrorInvalidValue;
    if (const cudaError_t status = prepare(*stream); status != cudaSuccess) return status;
    if (stream->capture) {
      return invalidate(*stream->capture, cudaErrorStreamCaptureUnsupported,
                        "simt: a graph within a graph");
    }
    if (stream->device != instance->device) {
      return refuse(cudaErrorInvalidResourceHandle, "graph and stream are of different devices");
    }
    if (world().schedule.is_deferred) return launch_deferred(*instance, *stream);
    for (const CUgraphExec_st::Step& step : instance->steps) {
      const cudaError_t status = run_now(*step.work, launched(*instance, step, *stream));
      if (status != cudaSuccess) return status;
    }
    return cudaSuccess;
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t instance) {
  return call("cudaGraphExecDestroy", [&] {
    if (instances().erase(instance) == 0) return cudaErrorInvalidValue;
    delete instance;  // what was launched of it is on its stream
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return call("cudaGraphDestroy", [&] {
    if (graphs().erase(graph) == 0) return cudaErrorInvalidValue;
    delete graph;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  return call("cudaGraphGetNodes", [&] {
    if (!graphs().contains(graph)) return cudaErrorInvalidValue;
    if (nodes != nullptr) {
      for (size_t i = 0; i < *count; ++i) {
        Node* node = i < graph->nodes.size() ? graph->nodes[i].get() : nullptr;
        nodes[i] = reinterpret_cast<cudaGraphNode_t>(node);
      }
      *count = std::min(*count, graph->nodes.size());
    } else {
      *count = graph->nodes.size();
    }
    return cudaSuccess;
  });
}

}  // extern "C"

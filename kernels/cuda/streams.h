// The streams of one rank on its device, the points on them that others wait for, and the graphs
// that were captured from them.
#pragma once

#include <array>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/ops.h"

struct CUevent_st;
struct CUgraph_st;
struct CUgraphExec_st;

namespace moetune::kernels::cuda {

/// Belongs to one thread, like the backend that has it. Throws base::Error with the runtime's text.
class Streams {
 public:
  Streams();
  ~Streams();
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  void use(int stream);
  [[nodiscard]] int current_index() const { return current_; }
  [[nodiscard]] Stream current() const { return lines_[static_cast<size_t>(current_)].stream; }

  DeviceEvent record();
  void wait(const DeviceEvent& event);
  void synchronize();

  void begin_capture();
  int end_capture();
  void launch_graph(int graph);
  [[nodiscard]] bool is_capturing() const { return is_capturing_; }
  [[nodiscard]] bool has_graphs() const { return !graphs_.empty(); }
  /// Device memory that the driver took for the graphs.
  [[nodiscard]] int64_t graph_bytes() const { return graph_bytes_; }

 private:
  struct Graph {
    CUgraph_st* graph = nullptr;
    CUgraphExec_st* instance = nullptr;
  };

  /// A stream and its events, made as they are first needed and then used in turn: one that is
  /// recorded again stands for a later point of the same stream, which is safe to wait for.
  struct Line {
    Stream stream = nullptr;
    std::vector<CUevent_st*> events;
    size_t next_event = 0;
  };
  static constexpr size_t kNumEvents = 256;

  std::array<Line, Backend::kMaxStreams> lines_{};
  int current_ = 0;
  std::vector<Graph> graphs_;
  bool is_capturing_ = false;
  int64_t graph_bytes_ = 0;
};

}  // namespace moetune::kernels::cuda

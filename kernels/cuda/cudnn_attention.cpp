// Graphs of fused attention by cudnn-frontend, kept by shape. This is the only file that includes
// cudnn headers.
#include "kernels/cuda/cudnn_attention.h"

#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <cudnn_frontend.h>
#include <dlfcn.h>
#include <link.h>
#include <nvrtc.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/base/environment_failure.h"
#include "kernels/base/error.h"
#include "kernels/cuda/attention_plan.h"
#include "kernels/cuda/lse_layout.h"
#include "kernels/cuda/runtime_check.h"

namespace moetune::kernels::cuda {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Tensor_attributes;
using TensorHandle = std::shared_ptr<Tensor_attributes>;

// The tensors of a graph by number: what execute() maps to pointers.
enum TensorId : int64_t { kQ = 1, kK, kV, kOut, kStats, kDout, kDq, kDk, kDv };

constexpr cudnnStatus_t kOutOfMemory = CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;

void check(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw_library_error(fmt::format("cuDNN: {} failed: {}", what, cudnnGetErrorString(status)),
                      status == kOutOfMemory);
}

void check(fe::error_t status, const char* what) {
  if (status.is_good()) return;
  const std::string text =
      fmt::format("cuDNN attention: {} failed: {}", what, status.get_message());
  // The frontend has codes of its own and passes the library's on as a name in the text.
  throw_library_error(text, text.find(cudnnGetErrorString(kOutOfMemory)) != std::string::npos);
}

/// A tensor [batch, heads, rows, width] lying in memory as rows of all heads.
Tensor_attributes by_rows(TensorId id, const char* name, int64_t batch, int64_t heads, int64_t rows,
                          int64_t width, int64_t ld, int64_t rows_per_sequence) {
  return Tensor_attributes()
      .set_name(name)
      .set_uid(id)
      .set_dim({batch, heads, rows, width})
      .set_stride({rows_per_sequence * ld, width, ld, 1})
      .set_data_type(fe::DataType_t::BFLOAT16);
}

struct Graph {
  std::unique_ptr<fe::graph::Graph> graph = std::make_unique<fe::graph::Graph>();
  int64_t workspace_bytes = 0;
};

/// Keys up to the row's own position: the diagonal ends at the last key of the last row, because
/// num_keys is the segment's end. A window keeps position - key < window.
template <typename Attributes>
void set_mask(Attributes& attributes, const AttentionGraphKey& key) {
  attributes.set_diagonal_alignment(key.num_queries == key.num_keys
                                        ? fe::DiagonalAlignment_t::TOP_LEFT
                                        : fe::DiagonalAlignment_t::BOTTOM_RIGHT);
  attributes.set_diagonal_band_right_bound(0);
  if (key.window > 0) attributes.set_diagonal_band_left_bound(static_cast<int>(key.window));
}

void describe(fe::graph::Graph& graph, const AttentionGraphKey& key, bool is_deterministic) {
  graph.set_io_data_type(fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  const auto queries = [&](TensorId id, const char* name, int64_t ld) {
    return by_rows(id, name, key.batch, key.heads, key.num_queries, key.width, ld,
                   key.queries_per_sequence);
  };
  const auto keys = [&](TensorId id, const char* name, int64_t ld, int64_t per_sequence) {
    return by_rows(id, name, key.batch, key.kv_heads, key.num_keys, key.width, ld, per_sequence);
  };
  const Tensor_attributes stats_like =
      Tensor_attributes()
          .set_name("stats")
          .set_uid(kStats)
          .set_dim({key.batch, key.heads, key.num_queries, 1})
          .set_stride({key.heads * key.num_queries, key.num_queries, 1, 1})
          .set_data_type(fe::DataType_t::FLOAT);
  const TensorHandle q = graph.tensor(queries(kQ, "q", key.ld_q));
  const TensorHandle k = graph.tensor(keys(kK, "k", key.ld_k, key.keys_per_sequence));
  const TensorHandle v = graph.tensor(keys(kV, "v", key.ld_v, key.keys_per_sequence));
  const auto scale = static_cast<float>(key.scale);
  const auto become_output = [](const TensorHandle& tensor, const Tensor_attributes& like) {
    tensor->set_output(true)
        .set_uid(like.get_uid())
        .set_dim(like.get_dim())
        .set_stride(like.get_stride())
        .set_data_type(like.get_data_type());
  };
  if (!key.is_backward) {
    auto attributes = fe::graph::SDPA_attributes()
                          .set_name("attention")
                          .set_generate_stats(true)
                          .set_attn_scale(scale);
    set_mask(attributes, key);
    auto [out, stats] = graph.sdpa(q, k, v, attributes);
    become_output(out, queries(kOut, "out", key.ld_out));
    become_output(stats, stats_like);
    return;
  }
  const TensorHandle out = graph.tensor(queries(kOut, "out", key.ld_out));
  const TensorHandle dout = graph.tensor(queries(kDout, "dout", key.ld_dout));
  const TensorHandle stats = graph.tensor(stats_like);
  auto attributes = fe::graph::SDPA_backward_attributes()
                        .set_name("attention_backward")
                        .set_attn_scale(scale)
                        .set_deterministic_algorithm(is_deterministic);
  set_mask(attributes, key);
  auto [dq, dk, dv] = graph.sdpa_backward(q, k, v, out, dout, stats, attributes);
  become_output(dq, queries(kDq, "dq", key.ld_dq));
  become_output(dk, keys(kDk, "dk", key.ld_dk, key.dk_per_sequence));
  become_output(dv, keys(kDv, "dv", key.ld_dv, key.dk_per_sequence));
}

/// cuDNN makes its attention kernels with NVRTC, which loads a second library by its bare name. A
/// program's run path does not count for what a library loads, and NVIDIA's wheels give NVRTC none,
/// so that the library is found only when it is there already: it lies beside NVRTC.
void load_nvrtc_builtins() {
  static const bool is_done = [] {
    int major = 0;
    int minor = 0;
    if (nvrtcVersion(&major, &minor) != NVRTC_SUCCESS) return false;
    void* const nvrtc =
        dlopen(fmt::format("libnvrtc.so.{}", major).c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (nvrtc == nullptr) return false;  // linked statically
    link_map* where = nullptr;
    const bool is_known = dlinfo(nvrtc, RTLD_DI_LINKMAP, &where) == 0;
    const std::string name = fmt::format("libnvrtc-builtins.so.{}.{}", major, minor);
    const auto beside = std::filesystem::path(is_known ? where->l_name : "").parent_path() / name;
    dlclose(nvrtc);
    // Never closed: the loader then knows it by its name.
    return dlopen(beside.c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr;
  }();
  static_cast<void>(is_done);  // without it NVRTC looks for itself
}

char* rows_from(const Tensor& tensor, int64_t row) {
  return static_cast<char*>(tensor.data) + row * tensor.ld * base::size_of(tensor.dtype);
}

bool is_aligned(const Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.data) % 16 == 0 && tensor.ld % 8 == 0;
}

}  // namespace

struct CudnnAttention::Impl {
  cudnnHandle_t handle = nullptr;  ///< null where the device is only described
  std::shared_ptr<fe::DeviceProperties> described;
  int described_capability = 0;
  Options options;
  std::map<AttentionGraphKey, Graph> graphs;
  std::map<AttentionGraphKey, std::string> refusals;
  std::string last_refusal;

  ~Impl() {
    if (handle != nullptr) cudnnDestroy(handle);
  }

  Graph& graph_for(const AttentionGraphKey& key) {
    const auto found = graphs.find(key);
    if (found != graphs.end()) return found->second;
    Graph made;
    if (described) {
      made.graph->set_device_properties(described);
      made.graph->set_sm_version(described_capability);
    }
    describe(*made.graph, key, options.use_deterministic_backward);
    check(made.graph->validate(), "describing the graph");
    check(made.graph->build_operation_graph(handle), "building the graph");
    check(made.graph->create_execution_plans({fe::HeurMode_t::A}), "looking for a kernel");
    check(made.graph->check_support(), "looking for a kernel");
    check(made.graph->build_plans(), "building the kernel");
    check(made.graph->get_workspace_size(made.workspace_bytes), "asking for the workspace's size");
    made.workspace_bytes = align_workspace(made.workspace_bytes);
    return graphs.emplace(key, std::move(made)).first->second;
  }

  /// Like graph_for, but false with the reason kept; a shape is tried once.
  bool has_graph_for(const AttentionGraphKey& key) {
    const auto refused = refusals.find(key);
    if (refused == refusals.end()) {
      try {
        graph_for(key);
        return true;
      } catch (const base::OutOfMemory&) {
        throw;
      } catch (const base::EnvironmentFailure&) {
        throw;
      } catch (const base::DeviceFailed&) {
        throw;
      } catch (const std::exception& error) {
        last_refusal = error.what();
        refusals.emplace(key, last_refusal);
        return false;
      }
    }
    last_refusal = refused->second;
    return false;
  }

  void execute(Stream stream, Graph& graph, std::unordered_map<int64_t, void*>& tensors,
               void* workspace) const {
    MOETUNE_CHECK(handle != nullptr, "cuDNN attention: the device is only described");
    check(cudnnSetStream(handle, stream), "choosing the stream");
    check(graph.graph->execute(handle, tensors, workspace), "a launch");
  }

  int64_t forward_bytes(const AttentionArgs& args, std::span<const AttentionSegment> segments) {
    int64_t bytes = 0;
    for (const AttentionSegment& segment : segments) {
      const AttentionGraphKey key = graph_key_of(args, segment);
      bytes = std::max(bytes, stats_bytes(key) + graph_for(key).workspace_bytes);
    }
    return bytes;
  }

  int64_t backward_bytes(const AttentionBackwardArgs& args,
                         std::span<const AttentionSegment> segments) {
    int64_t bytes = 0;
    for (const AttentionBackwardPart& part : backward_parts(args, segments)) {
      bytes = std::max(bytes, stats_bytes(part.key) + 2 * part.packed_bytes() +
                                  graph_for(part.key).workspace_bytes);
    }
    return bytes;
  }
};

namespace {

template <typename Args>
void require_supported(const Args& args, std::span<const AttentionSegment> segments) {
  const std::string reason = CudnnAttention::why_unsupported(args, segments);
  MOETUNE_CHECK(reason.empty(), "attention through cuDNN: {}", reason);
}

/// Keys that no segment sees get no gradient.
void clear_unseen(Stream stream, const Tensor& gradient, int64_t batch, int64_t num_seen) {
  const int64_t per_sequence = gradient.rows / batch;
  const auto pitch = static_cast<size_t>(gradient.ld * base::size_of(gradient.dtype));
  const auto width = static_cast<size_t>(gradient.cols * base::size_of(gradient.dtype));
  for (int64_t sequence = 0; sequence < batch && num_seen < per_sequence; ++sequence) {
    const cudaError_t status =
        cudaMemset2DAsync(rows_from(gradient, sequence * per_sequence + num_seen), pitch, 0, width,
                          static_cast<size_t>(per_sequence - num_seen), stream);
    MOETUNE_CHECK(status == cudaSuccess, "attention: clearing a gradient failed: {}",
                  cudaGetErrorString(status));
  }
}

void add_packed(Stream stream, const Tensor& gradient, int64_t batch, void* packed,
                int64_t num_keys) {
  const int64_t per_sequence = gradient.rows / batch;
  const Tensor source = Tensor::matrix(packed, gradient.dtype, batch * num_keys, gradient.cols);
  for (int64_t sequence = 0; sequence < batch; ++sequence) {
    copy(stream, {.x = source.row_range(sequence * num_keys, num_keys),
                  .y = gradient.row_range(sequence * per_sequence, num_keys),
                  .accumulate = true});
  }
}

}  // namespace

bool CudnnAttention::is_available() { return true; }

std::string CudnnAttention::version() {
  return cudnn_version_text(static_cast<int64_t>(cudnnGetVersion()));
}

bool CudnnAttention::can_compile() {
  load_nvrtc_builtins();
  nvrtcProgram program = nullptr;
  if (nvrtcCreateProgram(&program, "__global__ void nothing() {}", "nothing.cu", 0, nullptr,
                         nullptr) != NVRTC_SUCCESS) {
    return false;
  }
  const nvrtcResult result = nvrtcCompileProgram(program, 0, nullptr);
  static_cast<void>(nvrtcDestroyProgram(&program));
  return result == NVRTC_SUCCESS;
}

CudnnAttention::CudnnAttention(int device) : CudnnAttention(device, Options{}) {}

CudnnAttention::CudnnAttention(int device, Options options) : impl_(std::make_unique<Impl>()) {
  const cudaError_t status = cudaSetDevice(device);
  MOETUNE_CHECK(status == cudaSuccess, "cuDNN: CUDA device {} cannot be used: {}", device,
                cudaGetErrorString(status));
  impl_->options = options;
  load_nvrtc_builtins();
  check(cudnnCreate(&impl_->handle), "starting the library");
}

CudnnAttention::CudnnAttention(const DeviceDescription& device, Options options)
    : impl_(std::make_unique<Impl>()) {
  impl_->options = options;
  impl_->described = std::make_shared<fe::DeviceProperties>();
  impl_->described_capability = device.compute_capability;
  load_nvrtc_builtins();
  check(impl_->described->deserialize({device.properties.begin(), device.properties.end()}),
        "reading the description of a device");
}

CudnnAttention::~CudnnAttention() = default;

const std::string& CudnnAttention::last_refusal() const { return impl_->last_refusal; }

int64_t CudnnAttention::num_cached() const { return static_cast<int64_t>(impl_->graphs.size()); }

std::string CudnnAttention::why_unsupported(const AttentionArgs& args,
                                            std::span<const AttentionSegment> segments) {
  const std::string why_not = why_not_cudnn(static_cast<int64_t>(cudnnGetVersion()));
  if (!why_not.empty()) return why_not;
  if (args.q.dtype != DType::bf16) return "elements have to be bf16";
  if (args.batch <= 0 || args.heads <= 0 || args.kv_heads <= 0 || args.heads % args.kv_heads != 0) {
    return fmt::format("{} heads cannot share {} key heads", args.heads, args.kv_heads);
  }
  const int64_t width = args.q.cols / args.heads;
  if (width % 8 != 0 || width > 256) {
    return fmt::format("a head of {} columns, which is not a multiple of 8 up to 256", width);
  }
  if (args.k.cols != args.kv_heads * width || args.v.cols != args.k.cols) {
    return "keys and values have to be as wide as queries";
  }
  if (!is_aligned(args.q) || !is_aligned(args.k) || !is_aligned(args.v) || !is_aligned(args.out)) {
    return "rows have to begin at multiples of 16 bytes";
  }
  // The library takes one row for a step of decoding: it has no backward pass of one key, and says
  // of its forward pass that it may be wrong with a causal mask and shared keys.
  if (std::any_of(segments.begin(), segments.end(),
                  [](const AttentionSegment& segment) { return segment.num_rows == 1; })) {
    return "a run of one row";
  }
  return why_not_segments_of(args, segments);
}

std::string CudnnAttention::why_unsupported(const AttentionBackwardArgs& args,
                                            std::span<const AttentionSegment> segments) {
  if (!is_aligned(args.dout) || !is_aligned(args.dq) || !is_aligned(args.dk) ||
      !is_aligned(args.dv)) {
    return "rows of gradients have to begin at multiples of 16 bytes";
  }
  return why_unsupported(args.forward, segments);
}

bool CudnnAttention::is_supported(const AttentionArgs& args,
                                  std::span<const AttentionSegment> segments) {
  impl_->last_refusal = why_unsupported(args, segments);
  return impl_->last_refusal.empty() &&
         std::all_of(segments.begin(), segments.end(), [&](const AttentionSegment& segment) {
           return impl_->has_graph_for(graph_key_of(args, segment));
         });
}

bool CudnnAttention::is_supported(const AttentionBackwardArgs& args,
                                  std::span<const AttentionSegment> segments) {
  impl_->last_refusal = why_unsupported(args, segments);
  if (!impl_->last_refusal.empty()) return false;
  const auto parts = backward_parts(args, segments);
  return std::all_of(parts.begin(), parts.end(), [&](const AttentionBackwardPart& part) {
    return impl_->has_graph_for(part.key);
  });
}

int64_t CudnnAttention::forward_workspace_bytes(const AttentionArgs& args,
                                                std::span<const AttentionSegment> segments) {
  require_supported(args, segments);
  return impl_->forward_bytes(args, segments);
}

int64_t CudnnAttention::backward_workspace_bytes(const AttentionBackwardArgs& args,
                                                 std::span<const AttentionSegment> segments) {
  require_supported(args, segments);
  return impl_->backward_bytes(args, segments);
}

void CudnnAttention::forward(Stream stream, const AttentionArgs& args,
                             std::span<const AttentionSegment> segments,
                             const Workspace& workspace) {
  if (args.q.rows == 0) return;
  require_supported(args, segments);
  auto* memory = static_cast<char*>(workspace(impl_->forward_bytes(args, segments)));
  for (const AttentionSegment& segment : segments) {
    const AttentionGraphKey key = graph_key_of(args, segment);
    auto* stats = reinterpret_cast<float*>(memory);
    std::unordered_map<int64_t, void*> tensors = {{kQ, rows_from(args.q, segment.first_row)},
                                                  {kK, args.k.data},
                                                  {kV, args.v.data},
                                                  {kOut, rows_from(args.out, segment.first_row)},
                                                  {kStats, stats}};
    impl_->execute(stream, impl_->graph_for(key), tensors, memory + stats_bytes(key));
    lse_layout(stream, {args.lse, stats, args.batch, segment.first_row, segment.num_rows, true});
  }
}

void CudnnAttention::backward(Stream stream, const AttentionBackwardArgs& args,
                              std::span<const AttentionSegment> segments,
                              const Workspace& workspace) {
  const AttentionArgs& forward = args.forward;
  if (forward.q.rows == 0) {
    clear_unseen(stream, args.dk, forward.batch, 0);
    clear_unseen(stream, args.dv, forward.batch, 0);
    return;
  }
  require_supported(args, segments);
  auto* memory = static_cast<char*>(workspace(impl_->backward_bytes(args, segments)));
  for (const AttentionBackwardPart& part : backward_parts(args, segments)) {
    const int64_t row = part.segment.first_row;
    auto* stats = reinterpret_cast<float*>(memory);
    char* packed_dk = memory + stats_bytes(part.key);
    char* packed_dv = packed_dk + part.packed_bytes();
    lse_layout(stream, {forward.lse, stats, forward.batch, row, part.segment.num_rows, false});
    if (!part.is_added) {
      clear_unseen(stream, args.dk, forward.batch, part.key.num_keys);
      clear_unseen(stream, args.dv, forward.batch, part.key.num_keys);
    }
    std::unordered_map<int64_t, void*> tensors = {{kQ, rows_from(forward.q, row)},
                                                  {kK, forward.k.data},
                                                  {kV, forward.v.data},
                                                  {kOut, rows_from(forward.out, row)},
                                                  {kStats, stats},
                                                  {kDout, rows_from(args.dout, row)},
                                                  {kDq, rows_from(args.dq, row)},
                                                  {kDk, part.is_added ? packed_dk : args.dk.data},
                                                  {kDv, part.is_added ? packed_dv : args.dv.data}};
    impl_->execute(stream, impl_->graph_for(part.key), tensors, packed_dv + part.packed_bytes());
    if (part.is_added) {
      add_packed(stream, args.dk, forward.batch, packed_dk, part.key.num_keys);
      add_packed(stream, args.dv, forward.batch, packed_dv, part.key.num_keys);
    }
  }
}

}  // namespace moetune::kernels::cuda

// What a device can do. One pure virtual per operation: a backend that lacks one does not compile.
// `cpu` is the definition of correct; faster backends are compared with it op by op.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/op_args.h"

namespace moetune::kernels {

/// A point in the work of a stream; see Backend::record_event. Null where every call has finished
/// when it returns.
struct DeviceEvent {
  void* native = nullptr;
};

/// Device memory that is used beside what allocate() has handed out.
struct DeviceMemoryAccount {
  struct Line {
    std::string name;  ///< such as "workspaces of the libraries"
    int64_t bytes = 0;
  };
  std::vector<Line> lines;
  /// What the driver says is used, by this and by other programs; 0 where there is no driver.
  int64_t driver_used_bytes = 0;
};

/// Device memory that grows at its end and never moves.
class DeviceRange {
 public:
  virtual ~DeviceRange() = default;

  [[nodiscard]] char* base() const { return base_; }
  [[nodiscard]] int64_t usable_bytes() const { return usable_bytes_; }
  /// Makes at least `bytes` from the base on usable. Throws base::OutOfMemory.
  virtual void grow(int64_t bytes) = 0;

 protected:
  char* base_ = nullptr;
  int64_t usable_bytes_ = 0;
};

/// A device of one rank. Not thread-safe: each rank owns one. What is enqueued on one stream runs
/// in program order; on the CPU every call has finished when it returns, and streams, events and
/// graphs are empty words.
class Backend {
 public:
  virtual ~Backend() = default;

  [[nodiscard]] virtual std::string_view name() const = 0;
  /// Whether a large product is best given a few rows at a time, so that what it reads and writes
  /// stays in a cache. One that has to fill many processors wants all rows at once.
  [[nodiscard]] virtual bool prefers_small_products() const = 0;

  /// Raw device memory, 256-byte aligned, contents undefined. Accounting is the ledger's job
  /// (profiler/memory_ledger.h), which every engine allocation passes first.
  virtual void* allocate(int64_t bytes) = 0;
  virtual void free(void* pointer) noexcept = 0;
  /// An empty range that can grow to `most_bytes`; 0: to all that the device has. Must not outlive
  /// the backend.
  virtual std::unique_ptr<DeviceRange> make_range(int64_t most_bytes) = 0;
  virtual void fill_zero(void* pointer, int64_t bytes) = 0;
  /// `host` may be used again when the call returns; the copy itself is on the stream.
  virtual void copy_to_device(void* device, const void* host, int64_t bytes) = 0;
  /// Waits for the current stream and no other.
  virtual void copy_to_host(void* host, const void* device, int64_t bytes) = 0;
  /// Between two places of device memory, which may belong to another rank of this process.
  virtual void copy_on_device(void* to, const void* from, int64_t bytes) = 0;

  /// The stream that everything after goes to, from 0 to kMaxStreams - 1; 0 at first.
  virtual void use_stream(int stream) = 0;
  static constexpr int kMaxStreams = 8;
  /// The end of what is on the current stream so far. An old event may stand for a later point of
  /// its stream.
  virtual DeviceEvent record_event() = 0;
  /// What comes later on the current stream waits; the event may come from another rank's backend
  /// of this process.
  virtual void wait_event(const DeviceEvent& event) = 0;
  /// The host waits for all streams.
  virtual void synchronize() = 0;
  /// The current stream in the vendor's own type (a CUstream_st*), for libraries of communication.
  [[nodiscard]] virtual void* native_stream() = 0;

  /// Whether work can be captured into graphs; without, the calls below are errors.
  [[nodiscard]] virtual bool has_graphs() const = 0;
  /// From here on the current stream's work is noted down instead of run. Nothing may wait for it
  /// meanwhile.
  virtual void begin_capture() = 0;
  /// Ends the capture. Returns the graph's number; it lives as long as the backend.
  virtual int end_capture() = 0;
  /// Runs a captured graph on the current stream, with the arguments of capture time.
  virtual void launch_graph(int graph) = 0;

  /// Which kernels did the products and attention so far, and why where it was not a library: a
  /// plain kernel in a library's place is many times slower. Empty on the CPU.
  [[nodiscard]] virtual std::string kernels_note() const = 0;

  /// Empty on the CPU.
  [[nodiscard]] virtual DeviceMemoryAccount memory_account() = 0;

  /// Called with the bytes that the backend is about to take for workspaces of its own, beyond what
  /// it holds for them; what it throws stops that. They are kept to the end. Never on the CPU.
  virtual void set_workspace_booking(std::function<void(int64_t bytes)> book) = 0;

  virtual void gemm(const GemmArgs& args) = 0;
  virtual void grouped_gemm(const GroupedGemmArgs& args) = 0;
  virtual void rms_norm(const RmsNormArgs& args) = 0;
  virtual void rms_norm_backward(const RmsNormBackwardArgs& args) = 0;
  virtual void rope(const RopeArgs& args) = 0;
  virtual void attention(const AttentionArgs& args) = 0;
  virtual void attention_backward(const AttentionBackwardArgs& args) = 0;
  virtual void attention_merge(const AttentionMergeArgs& args) = 0;
  virtual void gated_act(const GatedActArgs& args) = 0;
  virtual void gated_act_backward(const GatedActBackwardArgs& args) = 0;
  virtual void router(const RouterArgs& args) = 0;
  virtual void router_backward(const RouterBackwardArgs& args) = 0;
  virtual void aux_loss(const AuxLossArgs& args) = 0;
  virtual void route_plan(const RoutePlanArgs& args) = 0;
  virtual void expand_experts(const ExpandExpertsArgs& args) = 0;
  virtual void gather_rows(const GatherRowsArgs& args) = 0;
  virtual void scatter_rows(const ScatterRowsArgs& args) = 0;
  virtual void combine_rows(const CombineRowsArgs& args) = 0;
  virtual void embedding(const EmbeddingArgs& args) = 0;
  virtual void embedding_backward(const EmbeddingBackwardArgs& args) = 0;
  virtual void cross_entropy(const CrossEntropyArgs& args) = 0;
  virtual void cross_entropy_stats(const CrossEntropyStatsArgs& args) = 0;
  virtual void copy(const CopyArgs& args) = 0;
  virtual void bias_backward(const BiasBackwardArgs& args) = 0;
  virtual void adamw(const AdamWArgs& args) = 0;
  virtual void squared_norm(const SquaredNormArgs& args) = 0;
  virtual void sum(const SumArgs& args) = 0;
};

/// Which GPU of this machine, and what the build lacks for it.
struct CudaDeviceInfo {
  std::string name;
  int64_t memory_bytes = 0;
  int compute_major = 0;
  int compute_minor = 0;
};

/// The reference backend: real numbers on the host, one thread per rank.
std::unique_ptr<Backend> make_cpu_backend();

/// Whether this build contains the CUDA backend.
bool has_cuda();

/// The CUDA backend, or null in a build without it (kernels/cuda_stub.cpp, chosen by the linker).
/// Throws base::Error in words for users where there is no driver, no such device, or an older one
/// than compute capability 8.0.
std::unique_ptr<Backend> make_cuda_backend(int device);

/// Devices that the driver shows; empty without a driver or in a build without CUDA, with the
/// reason in `why_none`.
std::vector<CudaDeviceInfo> cuda_devices(std::string& why_none);

}  // namespace moetune::kernels

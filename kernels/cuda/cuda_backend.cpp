// Device memory, the choice between libraries and own kernels, and the device's errors in words for
// users.
#include "kernels/cuda/cuda_backend.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "kernels/base/error.h"
#include "kernels/cuda/compact_rows.h"
#include "kernels/cuda/runtime_check.h"
#include "kernels/cuda/scratch.h"
#include "kernels/cuda/vmm_range.h"

namespace moetune::kernels {
namespace {

using cuda::check;

constexpr int kFewestMajor = 8;  // bf16 arithmetic
constexpr int64_t kAlignment = 256;

CudaDeviceInfo info_of(int device) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "device properties");
  return {properties.name, static_cast<int64_t>(properties.totalGlobalMem), properties.major,
          properties.minor};
}

std::string no_devices_text(cudaError_t status) {
  if (status == cudaErrorInsufficientDriver) {
    return "no NVIDIA driver, or one that is older than this build's CUDA";
  }
  return fmt::format("{} ({})", cudaGetErrorString(status), cudaGetErrorName(status));
}

}  // namespace

std::vector<CudaDeviceInfo> cuda_devices(std::string& why_none) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    why_none = status == cudaSuccess ? "the driver shows no device" : no_devices_text(status);
    static_cast<void>(cudaGetLastError());
    return {};
  }
  std::vector<CudaDeviceInfo> devices;
  for (int i = 0; i < count; ++i) devices.push_back(info_of(i));
  return devices;
}

namespace {

// Throws where the device cannot be used.
void check_device(int device) {
  std::string why_none;
  const std::vector<CudaDeviceInfo> devices = cuda_devices(why_none);
  if (devices.empty()) {
    int count = 0;
    const bool has_driver = cudaGetDeviceCount(&count) != cudaErrorInsufficientDriver;
    throw base::NoDevice(
        has_driver ? base::NoDevice::Why::no_device : base::NoDevice::Why::no_driver,
        fmt::format("no GPU to use: {}", why_none));
  }
  if (device < 0 || device >= static_cast<int>(devices.size())) {
    throw base::NoDevice(base::NoDevice::Why::no_device,
                         fmt::format("there is no GPU {}: the driver shows {}, counted from 0",
                                     device, devices.size()));
  }
  const CudaDeviceInfo& info = devices[static_cast<size_t>(device)];
  if (info.compute_major < kFewestMajor) {
    throw base::NoDevice(
        base::NoDevice::Why::too_old,
        fmt::format("GPU {} ({}) has compute capability {}.{}, needed is {}.0 or "
                    "later",
                    device, info.name, info.compute_major, info.compute_minor, kFewestMajor));
  }
}

int checked(int device) {
  check_device(device);
  return device;
}

void* device_memory(int device, int64_t bytes) {
  void* pointer = nullptr;
  const cudaError_t status = cudaMalloc(&pointer, static_cast<size_t>(std::max<int64_t>(bytes, 1)));
  if (status == cudaErrorMemoryAllocation) cuda::throw_allocation_failed(device, bytes);
  check(status, "allocation");
  return pointer;
}

}  // namespace

CudaBackend::CudaBackend(int device) : device_(device), use_(checked(device)) {
  const std::scoped_lock lock(cuda::measuring_mutex());
  const int64_t before = cuda::used_device_bytes();
  if (cuda::CublasLtGemm::is_available()) gemm_ = std::make_unique<cuda::CublasLtGemm>(device);
  if (cuda::GroupedGemm::is_available()) {
    grouped_ = std::make_unique<cuda::GroupedGemm>(device);
    if (!grouped_->runs_on_device()) grouped_.reset();
  }
  if (cuda::CudnnAttention::is_available()) {
    attention_ = std::make_unique<cuda::CudnnAttention>(device);
  }
  library_bytes_ = std::max<int64_t>(0, cuda::used_device_bytes() - before);
}

CudaBackend::~CudaBackend() {
  static_cast<void>(cudaDeviceSynchronize());
  for (const Workspace& workspace : workspaces_) static_cast<void>(cudaFree(workspace.data));
  for (const Workspace& workspace : retired_) static_cast<void>(cudaFree(workspace.data));
}

void* CudaBackend::allocate(int64_t bytes) {
  void* pointer = device_memory(device_, bytes);
  allocated_bytes_[pointer] = bytes;
  return pointer;
}

void CudaBackend::free(void* pointer) noexcept {
  const auto found = allocated_bytes_.find(pointer);
  if (found != allocated_bytes_.end()) {
    segments_.forget(pointer, found->second);
    allocated_bytes_.erase(found);
  }
  static_cast<void>(cudaFree(pointer));
}

std::unique_ptr<DeviceRange> CudaBackend::make_range(int64_t most_bytes) {
  return std::make_unique<cuda::VmmRange>(device_, most_bytes);
}

void CudaBackend::fill_zero(void* pointer, int64_t bytes) {
  if (bytes <= 0) return;
  check(cudaMemsetAsync(pointer, 0, static_cast<size_t>(bytes), stream()), "memset");
}

void CudaBackend::copy_to_device(void* device, const void* host, int64_t bytes) {
  staging_.upload(stream(), device, host, bytes);
}

void CudaBackend::copy_to_host(void* host, const void* device, int64_t bytes) {
  if (bytes <= 0) return;
  check(cudaMemcpyAsync(host, device, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, stream()),
        "copy to the host");
  check(cudaStreamSynchronize(stream()), "work on the device");
}

void CudaBackend::copy_on_device(void* to, const void* from, int64_t bytes) {
  if (bytes <= 0 || to == from) return;
  check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, stream()),
        "copy on the device");
}

CudaBackend::Workspace& CudaBackend::workspace(int64_t bytes, Need need) {
  Workspace& held = workspaces_[static_cast<size_t>(streams_.current_index())];
  if (bytes <= held.bytes) return held;
  MOETUNE_CHECK(!streams_.is_capturing(), "a workspace of {} bytes is needed inside a graph",
                bytes);
  // Sizes that follow the routing grow by little and little: some more saves the next time. The
  // others grow a few times at most, and what is more than they need counts against the capacity.
  if (need == Need::routed && held.bytes > 0) bytes += bytes / 4;
  bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const bool is_captured = streams_.has_graphs();
  if (book_workspace_) book_workspace_(is_captured ? bytes : bytes - held.bytes);
  if (!is_captured) {
    streams_.synchronize();
    check(cudaFree(held.data), "freeing a workspace");
  } else if (held.data != nullptr) {
    retired_.push_back(held);
  }
  held = {};
  held.data = device_memory(device_, bytes);
  held.bytes = bytes;
  return held;
}

DeviceMemoryAccount CudaBackend::memory_account() {
  DeviceMemoryAccount account;
  account.lines = {{"context and other programs", use_.bytes_before()},
                   {"handles of the libraries", library_bytes_},
                   {"graphs", streams_.graph_bytes()}};
  account.driver_used_bytes = cuda::used_device_bytes();
  return account;
}

std::span<const cuda::AttentionSegment> CudaBackend::segments(const Tensor& positions) {
  return segments_.get(positions.data, positions.rows, [&] {
    std::vector<int32_t> host(static_cast<size_t>(positions.rows));
    copy_to_host(host.data(), positions.data, positions.rows * 4);
    return host;
  });
}

void CudaBackend::gemm(const GemmArgs& args) {
  if (args.c.numel() == 0) return cuda::gemm(stream(), args);
  if (!gemm_) {
    gemm_uses_.plain("cuBLASLt is not in this build, or cannot be loaded");
    return cuda::gemm(stream(), args);
  }
  // Always as large as it asks for, never all that is there: its choice of kernel depends on it.
  const int64_t bytes = gemm_->workspace_bytes();
  const Workspace& scratch = workspace(bytes);
  if (!args.bias.is_null() && !gemm_->has_kernel(args, bytes)) {
    GemmArgs product = args;
    product.bias = {};
    gemm(product);
    return cuda::add_bias(stream(), args.c, args.bias);
  }
  if (!gemm_->has_kernel(args, bytes)) {
    gemm_uses_.plain(fmt::format("cuBLASLt has no kernel for {} x {} x {}", args.c.rows,
                                 args.c.cols, args.trans_a ? args.a.rows : args.a.cols));
    return cuda::gemm(stream(), args);
  }
  ++gemm_uses_.num_library;
  gemm_->run(stream(), args, scratch.data, bytes);
}

void CudaBackend::grouped_gemm(const GroupedGemmArgs& args) {
  const bool has_list = !args.rows.is_null() && args.mode != GroupedGemmMode::wgrad;
  GroupedGemmArgs whole = args;
  if (has_list) whole.rows = {};
  const std::string why = grouped_ ? cuda::GroupedGemm::why_unsupported(whole)
                                   : "CUTLASS is not in this build, or not for this GPU";
  if (!why.empty()) {
    grouped_uses_.plain(why);
    return cuda::grouped_gemm(stream(), args);
  }
  ++grouped_uses_.num_library;
  if (has_list) return grouped_gemm_of_rows(args);
  const Workspace& scratch = workspace(grouped_->workspace_bytes(args.offsets.rows - 1));
  grouped_->run(stream(), args, scratch.data, scratch.bytes);
}

// The library's kernels know no row lists, and are so much faster that moving the rows pays.
void CudaBackend::grouped_gemm_of_rows(const GroupedGemmArgs& args) {
  if (args.rows.rows == 0) return;
  const int64_t rows_bytes = cuda::compact_rows_bytes(args);
  const int64_t own_bytes = grouped_->workspace_bytes(args.offsets.rows - 1);
  const Workspace& scratch = workspace(rows_bytes + own_bytes, Need::routed);
  cuda::run_compact(stream(), args, scratch.data, [&](const GroupedGemmArgs& compact) {
    grouped_->run(stream(), compact, static_cast<char*>(scratch.data) + rows_bytes,
                  scratch.bytes - rows_bytes);
  });
}

void CudaBackend::attention(const AttentionArgs& args) {
  const auto runs = attention_segments_for(args, false);
  if (!runs || !attention_->is_supported(args, *runs)) {
    if (runs) attention_uses_.plain(attention_->last_refusal());
    return cuda::attention(stream(), args);
  }
  ++attention_uses_.num_library;
  attention_->forward(stream(), args, *runs,
                      [this](int64_t bytes) { return workspace(bytes).data; });
}

void CudaBackend::attention_backward(const AttentionBackwardArgs& args) {
  const auto runs = attention_segments_for(args.forward, args.accumulate);
  if (!runs || !attention_->is_supported(args, *runs)) {
    if (runs) attention_uses_.plain(attention_->last_refusal());
    return cuda::attention_backward(stream(), args);
  }
  ++attention_uses_.num_library;
  attention_->backward(stream(), args, *runs,
                       [this](int64_t bytes) { return workspace(bytes).data; });
}

std::optional<std::span<const cuda::AttentionSegment>> CudaBackend::attention_segments_for(
    const AttentionArgs& args, bool accumulates) {
  const auto plain = [&](const char* why) {
    attention_uses_.plain(why);
    return std::nullopt;
  };
  if (!attention_) return plain("cuDNN is not in this build");
  if (args.q.dtype != DType::bf16) return plain("cuDNN's attention is for bf16");
  if (!args.key_positions.is_null()) return plain("cuDNN's keys have no positions of their own");
  if (accumulates) return plain("cuDNN's gradients are not added to what is there");
  return segments(args.positions);
}

std::string CudaBackend::kernels_note() const {
  const auto text = [](const char* name, const char* library, const Uses& uses) {
    const std::string why = uses.num_plain > 0 ? fmt::format(" ({})", uses.why_plain) : "";
    return fmt::format("{}: {} {}, plain {}{}", name, library, uses.num_library, uses.num_plain,
                       why);
  };
  return fmt::format("{}; {}; {}", text("GEMM", "cuBLASLt", gemm_uses_),
                     text("grouped GEMM", "CUTLASS", grouped_uses_),
                     text("attention", "cuDNN", attention_uses_));
}

void CudaBackend::rms_norm_backward(const RmsNormBackwardArgs& args) {
  const int64_t bytes = cuda::rms_norm_backward_scratch_bytes(args.weight.cols);
  cuda::rms_norm_backward(stream(), args, {static_cast<float*>(workspace(bytes).data), bytes});
}

void CudaBackend::rms_norm(const RmsNormArgs& args) { cuda::rms_norm(stream(), args); }
void CudaBackend::rope(const RopeArgs& args) { cuda::rope(stream(), args); }
void CudaBackend::attention_merge(const AttentionMergeArgs& args) {
  cuda::attention_merge(stream(), args);
}
void CudaBackend::gated_act(const GatedActArgs& args) { cuda::gated_act(stream(), args); }
void CudaBackend::gated_act_backward(const GatedActBackwardArgs& args) {
  cuda::gated_act_backward(stream(), args);
}
void CudaBackend::router(const RouterArgs& args) { cuda::router(stream(), args); }
void CudaBackend::router_backward(const RouterBackwardArgs& args) {
  cuda::router_backward(stream(), args);
}
void CudaBackend::aux_loss(const AuxLossArgs& args) { cuda::aux_loss(stream(), args); }
void CudaBackend::route_plan(const RoutePlanArgs& args) { cuda::route_plan(stream(), args); }
void CudaBackend::expand_experts(const ExpandExpertsArgs& args) {
  cuda::expand_experts(stream(), args);
}
void CudaBackend::gather_rows(const GatherRowsArgs& args) { cuda::gather_rows(stream(), args); }
void CudaBackend::scatter_rows(const ScatterRowsArgs& args) { cuda::scatter_rows(stream(), args); }
void CudaBackend::combine_rows(const CombineRowsArgs& args) { cuda::combine_rows(stream(), args); }
void CudaBackend::embedding(const EmbeddingArgs& args) { cuda::embedding(stream(), args); }
void CudaBackend::embedding_backward(const EmbeddingBackwardArgs& args) {
  cuda::embedding_backward(stream(), args);
}
void CudaBackend::cross_entropy(const CrossEntropyArgs& args) {
  cuda::cross_entropy(stream(), args);
}
void CudaBackend::cross_entropy_stats(const CrossEntropyStatsArgs& args) {
  cuda::cross_entropy_stats(stream(), args);
}
void CudaBackend::copy(const CopyArgs& args) { cuda::copy(stream(), args); }
void CudaBackend::bias_backward(const BiasBackwardArgs& args) {
  cuda::bias_backward(stream(), args);
}
void CudaBackend::adamw(const AdamWArgs& args) { cuda::adamw(stream(), args); }
void CudaBackend::squared_norm(const SquaredNormArgs& args) { cuda::squared_norm(stream(), args); }
void CudaBackend::sum(const SumArgs& args) { cuda::sum(stream(), args); }

bool has_cuda() { return true; }

std::unique_ptr<Backend> make_cuda_backend(int device) {
  return std::make_unique<CudaBackend>(device);
}

}  // namespace moetune::kernels

// Device memory, the choice between libraries and own kernels, and the device's errors in words for
// users; see cuda_backend.h.
#include "kernels/cuda/cuda_backend.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>

#include "kernels/base/error.h"
#include "kernels/cuda/scratch.h"

namespace moetune::kernels {
namespace {

constexpr int kFewestMajor = 8;  // bf16 arithmetic

void check(cudaError_t status, const char* what) {
  MOETUNE_CHECK(status == cudaSuccess, "CUDA, {}: {} ({})", what, cudaGetErrorString(status),
                cudaGetErrorName(status));
}

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

CudaBackend::CudaBackend(int device) : device_(device) {
  std::string why_none;
  const std::vector<CudaDeviceInfo> devices = cuda_devices(why_none);
  if (devices.empty()) throw base::Error(fmt::format("no GPU to use: {}", why_none));
  if (device < 0 || device >= static_cast<int>(devices.size())) {
    throw base::Error(fmt::format("there is no GPU {}: the driver shows {}, counted from 0", device,
                                  devices.size()));
  }
  const CudaDeviceInfo& info = devices[static_cast<size_t>(device)];
  if (info.compute_major < kFewestMajor) {
    throw base::Error(
        fmt::format("GPU {} ({}) has compute capability {}.{}, needed is {}.0 or "
                    "later",
                    device, info.name, info.compute_major, info.compute_minor, kFewestMajor));
  }
  check(cudaSetDevice(device), "making the device current");
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
  if (cuda::CublasLtGemm::is_available()) gemm_ = std::make_unique<cuda::CublasLtGemm>(device);
  if (cuda::GroupedGemm::is_available()) {
    grouped_ = std::make_unique<cuda::GroupedGemm>(device);
    if (!grouped_->runs_on_device()) grouped_.reset();
  }
  if (cuda::CudnnAttention::is_available()) {
    attention_ = std::make_unique<cuda::CudnnAttention>(device);
  }
  if (gemm_) workspace(gemm_->workspace_bytes());
}

CudaBackend::~CudaBackend() {
  cudaStreamSynchronize(stream_);
  cudaFree(workspace_);
  cudaStreamDestroy(stream_);
}

void* CudaBackend::allocate(int64_t bytes) {
  void* pointer = nullptr;
  const cudaError_t status = cudaMalloc(&pointer, static_cast<size_t>(std::max<int64_t>(bytes, 1)));
  if (status == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    check(cudaMemGetInfo(&free_bytes, &total_bytes), "memory information");
    const auto total = static_cast<int64_t>(total_bytes);
    throw base::OutOfMemory("of the device", "driver", bytes,
                            total - static_cast<int64_t>(free_bytes), total, device_);
  }
  check(status, "allocation");
  return pointer;
}

void CudaBackend::free(void* pointer) noexcept { static_cast<void>(cudaFree(pointer)); }

void CudaBackend::fill_zero(void* pointer, int64_t bytes) {
  if (bytes <= 0) return;
  check(cudaMemsetAsync(pointer, 0, static_cast<size_t>(bytes), stream_), "memset");
}

void CudaBackend::copy_to_device(void* device, const void* host, int64_t bytes) {
  if (bytes <= 0) return;
  check(cudaMemcpyAsync(device, host, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream_),
        "copy to the device");
  synchronize();
}

void CudaBackend::copy_to_host(void* host, const void* device, int64_t bytes) {
  if (bytes <= 0) return;
  check(cudaMemcpyAsync(host, device, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, stream_),
        "copy to the host");
  synchronize();
}

void CudaBackend::synchronize() { check(cudaStreamSynchronize(stream_), "work on the device"); }

void* CudaBackend::workspace(int64_t bytes) {
  if (bytes <= workspace_size_) return workspace_;
  synchronize();
  check(cudaFree(workspace_), "freeing a workspace");
  workspace_ = nullptr;
  workspace_size_ = 0;
  workspace_ = allocate(bytes);
  workspace_size_ = bytes;
  return workspace_;
}

std::span<const cuda::AttentionSegment> CudaBackend::segments(const Tensor& positions) {
  const auto key = std::pair<const void*, int64_t>(positions.data, positions.rows);
  auto found = segments_.find(key);
  if (found == segments_.end()) {
    std::vector<int32_t> host(static_cast<size_t>(positions.rows));
    copy_to_host(host.data(), positions.data, positions.rows * 4);
    found = segments_.emplace(key, cuda::segments_of(host)).first;
  }
  return found->second;
}

void CudaBackend::gemm(const GemmArgs& args) {
  if (!gemm_ || args.c.numel() == 0) return cuda::gemm(stream_, args);
  gemm_->run(stream_, args, workspace_, workspace_size_);
}

void CudaBackend::grouped_gemm(const GroupedGemmArgs& args) {
  if (!grouped_ || !cuda::GroupedGemm::why_unsupported(args).empty()) {
    return cuda::grouped_gemm(stream_, args);
  }
  const int64_t bytes = grouped_->workspace_bytes(args.offsets.rows - 1);
  grouped_->run(stream_, args, workspace(bytes), workspace_size_);
}

void CudaBackend::attention(const AttentionArgs& args) {
  if (!attention_ || args.q.dtype != DType::bf16) return cuda::attention(stream_, args);
  const auto runs = segments(args.positions);
  if (!attention_->is_supported(args, runs)) return cuda::attention(stream_, args);
  attention_->forward(stream_, args, runs, [this](int64_t bytes) { return workspace(bytes); });
}

void CudaBackend::attention_backward(const AttentionBackwardArgs& args) {
  if (!attention_ || args.forward.q.dtype != DType::bf16) {
    return cuda::attention_backward(stream_, args);
  }
  const auto runs = segments(args.forward.positions);
  if (!attention_->is_supported(args, runs)) return cuda::attention_backward(stream_, args);
  attention_->backward(stream_, args, runs, [this](int64_t bytes) { return workspace(bytes); });
}

void CudaBackend::rms_norm_backward(const RmsNormBackwardArgs& args) {
  const int64_t bytes = cuda::rms_norm_backward_scratch_bytes(args.weight.cols);
  cuda::rms_norm_backward(stream_, args, {static_cast<float*>(workspace(bytes)), bytes});
}

void CudaBackend::rms_norm(const RmsNormArgs& args) { cuda::rms_norm(stream_, args); }
void CudaBackend::rope(const RopeArgs& args) { cuda::rope(stream_, args); }
void CudaBackend::gated_act(const GatedActArgs& args) { cuda::gated_act(stream_, args); }
void CudaBackend::gated_act_backward(const GatedActBackwardArgs& args) {
  cuda::gated_act_backward(stream_, args);
}
void CudaBackend::router(const RouterArgs& args) { cuda::router(stream_, args); }
void CudaBackend::router_backward(const RouterBackwardArgs& args) {
  cuda::router_backward(stream_, args);
}
void CudaBackend::aux_loss(const AuxLossArgs& args) { cuda::aux_loss(stream_, args); }
void CudaBackend::route_plan(const RoutePlanArgs& args) { cuda::route_plan(stream_, args); }
void CudaBackend::gather_rows(const GatherRowsArgs& args) { cuda::gather_rows(stream_, args); }
void CudaBackend::scatter_rows(const ScatterRowsArgs& args) { cuda::scatter_rows(stream_, args); }
void CudaBackend::combine_rows(const CombineRowsArgs& args) { cuda::combine_rows(stream_, args); }
void CudaBackend::embedding(const EmbeddingArgs& args) { cuda::embedding(stream_, args); }
void CudaBackend::embedding_backward(const EmbeddingBackwardArgs& args) {
  cuda::embedding_backward(stream_, args);
}
void CudaBackend::cross_entropy(const CrossEntropyArgs& args) {
  cuda::cross_entropy(stream_, args);
}
void CudaBackend::copy(const CopyArgs& args) { cuda::copy(stream_, args); }
void CudaBackend::add_bias(const AddBiasArgs& args) { cuda::add_bias(stream_, args); }
void CudaBackend::bias_backward(const BiasBackwardArgs& args) {
  cuda::bias_backward(stream_, args);
}
void CudaBackend::adamw(const AdamWArgs& args) { cuda::adamw(stream_, args); }
void CudaBackend::squared_norm(const SquaredNormArgs& args) { cuda::squared_norm(stream_, args); }

bool has_cuda() { return true; }

std::unique_ptr<Backend> make_cuda_backend(int device) {
  return std::make_unique<CudaBackend>(device);
}

}  // namespace moetune::kernels

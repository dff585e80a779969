// Three instances of CUTLASS's pointer-array grouped GEMM for sm_90a, one per mode; see the header.
// Compiled for 90a only: the instances are Hopper code (warp-specialised, fed by the tensor memory
// accelerator), and each costs most of a minute.
#include <cuda_runtime_api.h>
#include <cutlass/cutlass.h>
#include <cutlass/gemm/device/gemm_universal_adapter.h>

#include <algorithm>
#include <cstring>
#include <cute/tensor.hpp>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/dispatch_policy.hpp>
#include <cutlass/gemm/group_array_problem_shape.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>
#include <type_traits>

#include "kernels/base/error.h"
#include "kernels/cuda/cutlass_grouped_gemm.h"
#include "kernels/cuda/grouped_gemm_setup.h"
#include "kernels/cuda/runtime_check.h"

namespace moetune::kernels::cuda {
namespace {

using cute::_1;
using cute::_128;
using cute::_2;
using cute::_256;
using cute::_64;
using cute::Shape;
using cutlass::layout::ColumnMajor;
using cutlass::layout::RowMajor;

using Element = cutlass::bfloat16_t;
using Problem = cutlass::gemm::GroupProblemShape<Shape<int, int, int>>;

/// Two groups of warps share a tile of 128 x 256: few rows are wasted at an expert's end, and the
/// two blocks of a cluster lie side by side along n, so that they share the activations' tile.
struct RowsSchedule {
  using Tile = Shape<_128, _256, _64>;
  using Cluster = Shape<_1, _2, _1>;
  using Kernel = cutlass::gemm::KernelPtrArrayTmaWarpSpecializedCooperative;
  using Epilogue = cutlass::epilogue::PtrArrayTmaWarpSpecializedCooperative;
};

/// A weight gradient has few steps along k and an epilogue that reads and writes fp32: the two
/// groups of warps take turns, one storing its tile while the other multiplies.
struct WeightSchedule {
  using Tile = Shape<_128, _128, _64>;
  using Cluster = Shape<_2, _1, _1>;
  using Kernel = cutlass::gemm::KernelPtrArrayTmaWarpSpecializedPingpong;
  using Epilogue = cutlass::epilogue::PtrArrayTmaWarpSpecializedPingpong;
};

/// d = a * b, or d += a * b where Source is not void. The pointer types of the layouts select
/// CUTLASS's pointer-array variants.
template <typename LayoutA, typename LayoutB, typename Source, typename Output, typename Schedule>
struct Instance {
  static constexpr int kAlign = 16 / sizeof(Element);
  static constexpr int kAlignOutput = 16 / sizeof(Output);
  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, typename Schedule::Tile,
      typename Schedule::Cluster, cutlass::epilogue::collective::EpilogueTileAuto, float, float,
      Source, RowMajor*, kAlignOutput, Output, RowMajor*, kAlignOutput, typename Schedule::Epilogue,
      cutlass::epilogue::fusion::LinearCombination<Output, float, Source>>::CollectiveOp;
  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, LayoutA*, kAlign, Element,
      LayoutB*, kAlign, float, typename Schedule::Tile, typename Schedule::Cluster,
      cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(
          sizeof(typename Epilogue::SharedStorage))>,
      typename Schedule::Kernel>::CollectiveOp;
  using Kernel = cutlass::gemm::kernel::GemmUniversal<Problem, Mainloop, Epilogue>;
  using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;
  static constexpr bool kAccumulates = !std::is_void_v<Source>;
};

// "Row major" a has k side by side in memory, "row major" b has n.
using Forward = Instance<RowMajor, ColumnMajor, void, Element, RowsSchedule>;
using Dgrad = Instance<RowMajor, RowMajor, void, Element, RowsSchedule>;
using Wgrad = Instance<ColumnMajor, RowMajor, float, float, WeightSchedule>;

/// CUTLASS reads the setup kernel's arrays as its own types.
template <typename Stride>
Stride* as_strides(int64_t* strides) {
  static_assert(sizeof(Stride) == sizeof(int64_t));
  return reinterpret_cast<Stride*>(strides);
}

template <typename Kind>
typename Kind::Gemm::Arguments arguments_of(const GroupedProblems& problems, int num_experts,
                                            const cutlass::KernelHardwareInfo& hardware) {
  using Gemm = typename Kind::Gemm;
  using Kernel = typename Gemm::GemmKernel;
  using Output = typename Kind::Epilogue::ElementD;
  static_assert(sizeof(Problem::UnderlyingProblemShape) == sizeof(GroupedProblem));
  typename Gemm::Arguments arguments{};
  arguments.mode = cutlass::gemm::GemmUniversalMode::kGrouped;
  arguments.problem_shape = {
      num_experts, reinterpret_cast<Problem::UnderlyingProblemShape*>(problems.shapes), nullptr};
  arguments.mainloop = {reinterpret_cast<const Element**>(problems.a),
                        as_strides<typename Kernel::InternalStrideA>(problems.stride_a),
                        reinterpret_cast<const Element**>(problems.b),
                        as_strides<typename Kernel::InternalStrideB>(problems.stride_b)};
  arguments.epilogue.ptr_D = reinterpret_cast<Output**>(problems.d);
  arguments.epilogue.dD = as_strides<typename Kernel::InternalStrideD>(problems.stride_d);
  arguments.epilogue.thread.alpha = 1.0F;
  arguments.epilogue.thread.beta = 0.0F;
  if constexpr (Kind::kAccumulates) {
    arguments.epilogue.ptr_C = const_cast<const Output**>(arguments.epilogue.ptr_D);
    arguments.epilogue.dC = as_strides<typename Kernel::InternalStrideC>(problems.stride_d);
    arguments.epilogue.thread.beta = 1.0F;
  }
  arguments.hw_info = hardware;
  return arguments;
}

void check(cutlass::Status status, const char* what) {
  if (status == cutlass::Status::kSuccess) return;
  throw_library_error(fmt::format("CUTLASS: the grouped GEMM's {} failed: {}", what,
                                  cutlassGetStatusString(status)),
                      status == cutlass::Status::kErrorMemoryAllocation);
}

/// Three ints in a row: what the setup kernel writes.
void check_shape_layout() {
  const Problem::UnderlyingProblemShape shape{1, 2, 3};
  GroupedProblem problem{};
  std::memcpy(&problem, &shape, sizeof problem);
  MOETUNE_CHECK(problem.m == 1 && problem.n == 2 && problem.k == 3,
                "CUTLASS orders the extents of a problem as {}, {}, {}", problem.m, problem.n,
                problem.k);
}

template <typename Kind>
GroupedGemm::Requirements requirements_of(std::span<const GroupedProblem> problems, int num_sms) {
  using Kernel = typename Kind::Gemm::GemmKernel;
  cutlass::KernelHardwareInfo hardware;
  hardware.sm_count = num_sms;
  void* not_read = nullptr;
  GroupedProblems arrays;
  arrays.d = &not_read;
  auto arguments = arguments_of<Kind>(arrays, static_cast<int>(problems.size()), hardware);
  // At run time the shapes are on the device, and CUTLASS tests nothing about them.
  arguments.problem_shape.host_problem_shapes =
      reinterpret_cast<const Problem::UnderlyingProblemShape*>(problems.data());
  const cutlass::Status status = Kind::Gemm::can_implement(arguments);
  return {Kernel::SharedStorageSize, Kernel::MaxThreadsPerBlock,
          static_cast<int64_t>(Kind::Gemm::get_workspace_size(arguments)),
          status == cutlass::Status::kSuccess ? "" : cutlassGetStatusString(status)};
}

bool is_loadable(const Tensor& tensor) {
  const int64_t elements = 16 / base::size_of(tensor.dtype);
  return reinterpret_cast<uintptr_t>(tensor.data) % 16 == 0 && tensor.ld % elements == 0;
}

}  // namespace

struct GroupedGemm::Impl {
  cutlass::KernelHardwareInfo hardware;
  int capability = 0;
  int64_t kernel_bytes = 0;

  template <typename Kind>
  int64_t kernel_bytes_of() const {
    const auto arguments = arguments_of<Kind>({}, 1, hardware);
    return static_cast<int64_t>(Kind::Gemm::get_workspace_size(arguments));
  }

  template <typename Kind>
  void run(Stream stream, const GroupedProblems& problems, int num_experts, void* workspace) const {
    const auto arguments = arguments_of<Kind>(problems, num_experts, hardware);
    check(Kind::Gemm::can_implement(arguments), "test of its arguments");
    typename Kind::Gemm gemm;
    check(gemm.initialize(arguments, workspace, stream), "preparation");
    check(gemm.run(stream), "launch");
  }
};

bool GroupedGemm::is_available() { return true; }

GroupedGemm::GroupedGemm(int device, int sm_limit) : impl_(std::make_unique<Impl>()) {
  check_shape_layout();
  const auto attribute = [&](cudaDeviceAttr which) {
    int value = 0;
    const cudaError_t status = cudaDeviceGetAttribute(&value, which, device);
    MOETUNE_CHECK(status == cudaSuccess, "grouped GEMM: CUDA device {} cannot be used: {}", device,
                  cudaGetErrorString(status));
    return value;
  };
  impl_->capability = 10 * attribute(cudaDevAttrComputeCapabilityMajor) +
                      attribute(cudaDevAttrComputeCapabilityMinor);
  const int num_sms = attribute(cudaDevAttrMultiProcessorCount);
  impl_->hardware.device_id = device;
  impl_->hardware.sm_count = sm_limit > 0 && sm_limit < num_sms ? sm_limit : num_sms;
  if (!runs_on_device()) return;
  impl_->kernel_bytes =
      std::max({impl_->kernel_bytes_of<Forward>(), impl_->kernel_bytes_of<Dgrad>(),
                impl_->kernel_bytes_of<Wgrad>()});
}

GroupedGemm::~GroupedGemm() = default;

bool GroupedGemm::runs_on_device() const { return impl_->capability == 90; }

std::string GroupedGemm::why_unsupported(const GroupedGemmArgs& args) {
  const DType weight_dtype = args.mode == GroupedGemmMode::wgrad ? DType::f32 : DType::bf16;
  if (!args.rows.is_null()) return "a row list is given: gather the rows first";
  if (args.x.dtype != DType::bf16 || args.y.dtype != DType::bf16) {
    return "activations have to be bf16";
  }
  if (args.w.dtype != weight_dtype) {
    return fmt::format("weights have to be {} here", base::name_of(weight_dtype));
  }
  if (args.x.cols % 8 != 0 || args.y.cols % 8 != 0) {
    return fmt::format("widths {} and {} have to be multiples of 8", args.x.cols, args.y.cols);
  }
  if (!is_loadable(args.x) || !is_loadable(args.y) || !is_loadable(args.w)) {
    return "rows have to begin at multiples of 16 bytes";
  }
  return {};
}

GroupedGemm::Requirements GroupedGemm::requirements(GroupedGemmMode mode,
                                                    std::span<const GroupedProblem> problems,
                                                    int num_sms) {
  check_shape_layout();
  switch (mode) {
    case GroupedGemmMode::forward:
      return requirements_of<Forward>(problems, num_sms);
    case GroupedGemmMode::dgrad:
      return requirements_of<Dgrad>(problems, num_sms);
    case GroupedGemmMode::wgrad:
      return requirements_of<Wgrad>(problems, num_sms);
  }
  return {};
}

int64_t GroupedGemm::workspace_bytes(int64_t num_experts) const {
  return grouped_problems_bytes(num_experts) + impl_->kernel_bytes;
}

void GroupedGemm::run(Stream stream, const GroupedGemmArgs& args, void* workspace,
                      int64_t workspace_size) {
  const std::string reason = why_unsupported(args);
  MOETUNE_CHECK(reason.empty(), "grouped GEMM through CUTLASS: {}", reason);
  MOETUNE_CHECK(runs_on_device(),
                "grouped GEMM through CUTLASS is made for compute capability 9.0, this device has "
                "{}.{}",
                impl_->capability / 10, impl_->capability % 10);
  const int64_t num_experts = args.offsets.rows - 1;
  if (num_experts <= 0 || args.x.rows == 0 || args.x.cols == 0 || args.y.cols == 0) return;
  MOETUNE_CHECK(workspace_size >= workspace_bytes(num_experts),
                "grouped GEMM: a workspace of {} bytes is given, {} are needed", workspace_size,
                workspace_bytes(num_experts));
  const GroupedProblems problems = carve_grouped_problems(workspace, num_experts);
  setup_grouped_problems(stream, args, problems);
  void* rest = static_cast<char*>(workspace) + grouped_problems_bytes(num_experts);
  const auto count = static_cast<int>(num_experts);
  switch (args.mode) {
    case GroupedGemmMode::forward:
      return impl_->run<Forward>(stream, problems, count, rest);
    case GroupedGemmMode::dgrad:
      return impl_->run<Dgrad>(stream, problems, count, rest);
    case GroupedGemmMode::wgrad:
      return impl_->run<Wgrad>(stream, problems, count, rest);
  }
}

}  // namespace moetune::kernels::cuda

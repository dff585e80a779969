// Chooses what CUPTI records, hands it the ids of ops, and turns the buffers of a step into
// records.
#include "profiler/device/cupti_recorder.h"

#include <cuda_runtime_api.h>
#include <cupti.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>

#include "profiler/device/activity_buffers.h"
#include "profiler/device/cupti_decode.h"
#include "profiler/device/cupti_session.h"

namespace moetune::profiler {
namespace {

constexpr size_t kReservedBuffers = 4;
constexpr CUpti_ExternalCorrelationKind kOpIds = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;

/// Driver calls that enqueue or await work: what libraries call past the runtime.
constexpr std::array kDriverCalls = {
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch,
    CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyAsync,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyAsync_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoDAsync_v2,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoDAsync_v2_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoHAsync_v2,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoHAsync_v2_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoDAsync_v2,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoDAsync_v2_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyPeerAsync,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyPeerAsync_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyBatchAsync,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyBatchAsync_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyBatchAsync_v2,
    CUPTI_DRIVER_TRACE_CBID_cuMemcpyBatchAsync_v2_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuMemsetD8Async,
    CUPTI_DRIVER_TRACE_CBID_cuMemsetD8Async_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuMemsetD16Async,
    CUPTI_DRIVER_TRACE_CBID_cuMemsetD16Async_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuMemsetD32Async,
    CUPTI_DRIVER_TRACE_CBID_cuMemsetD32Async_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuEventRecord,
    CUPTI_DRIVER_TRACE_CBID_cuEventRecord_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuStreamWaitEvent,
    CUPTI_DRIVER_TRACE_CBID_cuStreamWaitEvent_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuStreamSynchronize,
    CUPTI_DRIVER_TRACE_CBID_cuStreamSynchronize_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuEventSynchronize,
};

/// Runtime calls that are made often and say nothing about the step.
constexpr std::array kIdleRuntimeCalls = {
    CUPTI_RUNTIME_TRACE_CBID_cudaGetDevice_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaSetDevice_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaGetLastError_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaPeekAtLastError_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaDeviceGetAttribute_v5000,
    CUPTI_RUNTIME_TRACE_CBID_cudaFuncSetAttribute_v9000,
    CUPTI_RUNTIME_TRACE_CBID_cudaFuncGetAttributes_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaPointerGetAttributes_v4000,
    CUPTI_RUNTIME_TRACE_CBID_cudaEventQuery_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaStreamIsCapturing_v10000,
    CUPTI_RUNTIME_TRACE_CBID_cudaStreamGetCaptureInfo_v2_v11030,
    CUPTI_RUNTIME_TRACE_CBID_cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags_v7000,
};

class CuptiRecorder final : public DeviceRecorder {
 public:
  explicit CuptiRecorder(DeviceRecorderOptions options)
      : options_(std::move(options)), session_(CuptiSession::instance()) {
    const std::string reason = session_.attach();
    is_active_ = reason.empty();
    if (!is_active_) note_ = fmt::format("GPU activity is not traced: {}.", reason);
  }

  ~CuptiRecorder() override {
    if (!is_active_) return;
    session_.is_recording = false;
    pause();  // buffers come back before the subscription ends
    session_.detach();
  }

  [[nodiscard]] bool is_active() const override { return is_active_; }

  [[nodiscard]] std::string note() const override {
    std::string text = note_;
    const std::scoped_lock lock(session_.mutex);
    if (is_active_ && !session_.fatal_note.empty()) {
      text += fmt::format("{}GPU activity is no longer traced: {}.", text.empty() ? "" : " ",
                          session_.fatal_note);
    }
    return text;
  }

  void begin_step(int step) override {
    window_ = StepWindow{step, 0, 0, options_.ranks};
    if (is_active_ && enabled_.empty()) enable();
    if (is_active_) {
      discard();  // what ran since the last step
      take_num_dropped();
      session_.buffers.reserve(kReservedBuffers);
      const std::scoped_lock lock(session_.mutex);
      session_.ops = OpTable{session_.next_op, {}};
      session_.is_recording = session_.fatal_note.empty();
    }
    window_.start_ns = wall_ns();
  }

  DeviceStep end_step() override {
    if (!is_active_ || !session_.is_recording) {
      window_.end_ns = wall_ns();
      return convert_step({}, {}, {}, window_);
    }
    cuptiActivityPushExternalCorrelationId(kOpIds, kRecorderOp);
    // An error of the device stays until the caller's next call, which reports it.
    cudaDeviceSynchronize();
    cuptiActivityPopExternalCorrelationId(kOpIds, nullptr);
    window_.end_ns = wall_ns();
    session_.is_recording = false;
    cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);

    DeviceActivities raw;
    std::vector<ActivityBuffers::Buffer> buffers = session_.buffers.take_full();
    for (const ActivityBuffers::Buffer& buffer : buffers) {
      decode_cupti_buffer(buffer.data.get(), buffer.valid_bytes, raw);
      free_cupti_attachments(buffer.data.get(), buffer.valid_bytes);
    }
    raw.num_dropped = take_num_dropped();
    DeviceStep result;
    {
      const std::scoped_lock lock(session_.mutex);
      result = convert_step(raw, session_.ops, session_.labels, window_);
    }
    session_.buffers.recycle(std::move(buffers));
    return result;
  }

  void pause() override {
    if (!is_active_ || enabled_.empty()) return;
    for (const CUpti_ActivityKind kind : enabled_) cuptiActivityDisable(kind);
    enabled_.clear();
    if (!is_alive()) return;
    // Before a flush the device is idle, or its last records have no times.
    cudaDeviceSynchronize();
    cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    discard();
  }

  OpId push_op(const DeviceOp& op) override {
    if (!is_active_) return kNoOp;
    OpenOp open;
    open.op = op;
    {
      const std::scoped_lock lock(session_.mutex);
      open.id = session_.next_op++;
      open.is_pushed = session_.is_recording;
      if (open.is_pushed) session_.ops.ops.push_back(op);
    }
    if (open.is_pushed) cuptiActivityPushExternalCorrelationId(kOpIds, open.id);
    open_ops().push_back(open);
    return open.id;
  }

  void pop_op() override {
    std::vector<OpenOp>& ops = open_ops();
    if (!is_active_ || ops.empty()) return;
    if (ops.back().is_pushed) cuptiActivityPopExternalCorrelationId(kOpIds, nullptr);
    ops.pop_back();
  }

  void set_communication(OpId op, int64_t bytes, int64_t sequence) override {
    if (is_active_) session_.set_communication(op, bytes, sequence);
  }

  [[nodiscard]] int64_t device_buffer_bytes() const override {
    if (!is_active_) return 0;
    size_t bytes = 0;
    size_t count = 0;
    size_t size = sizeof(size_t);
    if (cuptiActivityGetAttribute(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE, &size, &bytes) !=
            CUPTI_SUCCESS ||
        cuptiActivityGetAttribute(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_PRE_ALLOCATE_VALUE, &size,
                                  &count) != CUPTI_SUCCESS) {
      return 0;
    }
    return static_cast<int64_t>(bytes * count);
  }

 private:
  /// CUPTI has not given up.
  [[nodiscard]] bool is_alive() const {
    const std::scoped_lock lock(session_.mutex);
    return session_.fatal_note.empty();
  }

  void discard() {
    std::vector<ActivityBuffers::Buffer> buffers = session_.buffers.take_full();
    for (const ActivityBuffers::Buffer& buffer : buffers) {
      free_cupti_attachments(buffer.data.get(), buffer.valid_bytes);
    }
    session_.buffers.recycle(std::move(buffers));
  }

  /// Since the last call.
  static int64_t take_num_dropped() {
    size_t count = 0;
    if (cuptiActivityGetNumDroppedRecords(nullptr, 0, &count) != CUPTI_SUCCESS) return 0;
    return static_cast<int64_t>(count);
  }

  /// Kinds in the order of their importance: without kernels there is no trace.
  void enable() {
    session_.buffers.reserve(kReservedBuffers);
    std::vector<CUpti_ActivityKind> kinds = {
        CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
        CUPTI_ACTIVITY_KIND_MEMCPY2, CUPTI_ACTIVITY_KIND_MEMSET};
    if (options_.use_whole_graphs) kinds.push_back(CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
    if (options_.detail >= DeviceDetail::launches) {
      kinds.push_back(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION);
      kinds.push_back(CUPTI_ACTIVITY_KIND_RUNTIME);
      kinds.push_back(CUPTI_ACTIVITY_KIND_DRIVER);
      // Without them nobody knows what a kernel waited for, and no communication blocks.
      kinds.push_back(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION);
      kinds.push_back(CUPTI_ACTIVITY_KIND_CUDA_EVENT);
    }
    if (options_.detail >= DeviceDetail::all) kinds.push_back(CUPTI_ACTIVITY_KIND_OVERHEAD);
    std::vector<std::string> failures;
    for (const CUpti_ActivityKind kind : kinds) {
      const CUptiResult result = cuptiActivityEnable(kind);
      if (result == CUPTI_SUCCESS) {
        enabled_.push_back(kind);
        continue;
      }
      failures.push_back(
          fmt::format("kind {}: {}", static_cast<int>(kind), cupti_error_text(result)));
      if (kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
      note_ = fmt::format("GPU activity is not traced: {}.", failures.back());
      is_active_ = false;
      session_.detach();
      return;
    }
    if (!failures.empty()) {
      note_ = fmt::format("GPU activity is traced in part: {}.", fmt::join(failures, ", "));
    }
    if (options_.detail >= DeviceDetail::launches) choose_calls();
  }

  /// Switches off what says nothing about the step. A refusal costs a little time only. The other
  /// way, calls switched on without their kind, loses the launches of cuBLASLt and cuDNN (seen on
  /// an H100 with driver 580).
  void choose_calls() const {
    for (const CUpti_runtime_api_trace_cbid_enum id : kIdleRuntimeCalls) {
      cuptiActivityEnableRuntimeApi(id, 0);
    }
    for (int id = 1; id < CUPTI_DRIVER_TRACE_CBID_SIZE; ++id) {
      if (std::ranges::find(kDriverCalls, id) != kDriverCalls.end()) continue;
      // The choice stays with the process: an earlier recorder may have made another.
      cuptiActivityEnableDriverApi(static_cast<CUpti_CallbackId>(id),
                                   options_.use_all_driver_calls ? 1 : 0);
    }
  }

  DeviceRecorderOptions options_;
  CuptiSession& session_;
  bool is_active_ = false;
  std::string note_;
  StepWindow window_;
  std::vector<CUpti_ActivityKind> enabled_;
};

}  // namespace

bool has_cupti() { return true; }

std::unique_ptr<DeviceRecorder> make_cupti_recorder(const DeviceRecorderOptions& options) {
  return std::make_unique<CuptiRecorder>(options);
}

std::unique_ptr<DeviceRecorder> make_cupti_recorder(int rank) {
  DeviceRecorderOptions options;
  options.ranks = {rank};
  return make_cupti_recorder(options);
}

}  // namespace moetune::profiler

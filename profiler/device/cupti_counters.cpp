// Takes the counters by CUPTI's PM sampling: the hardware writes samples into a buffer at a fixed
// rate without a word to the host; they are read when the step is over.
#include <cuda_runtime_api.h>
#include <cupti.h>
#include <cupti_pmsampling.h>
#include <cupti_profiler_target.h>
#include <cupti_target.h>
#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <utility>

#include "profiler/device/cupti_metrics.h"
#include "profiler/device/cupti_session.h"
#include "profiler/device/device_counters.h"
#include "profiler/timeline.h"

namespace moetune::profiler {
namespace {

/// Nothing that CUPTI asks memory for is near it.
constexpr size_t kMaxImageBytes = size_t{1} << 30;
/// Of a step; past it, reading stops.
constexpr size_t kMaxSamples = size_t{1} << 22;

std::string failure(const char* what, CUptiResult result) {
  return fmt::format("{}: {}", what, cupti_error_text(result));
}

/// CUPTI does not count how often its profiler was initialised: the first to come and the last to
/// go do it for all. Devices are sampled by one at a time.
class ProfilerUse {
 public:
  /// Empty when the device is ours, otherwise why not.
  static std::string take(int32_t device) {
    const std::scoped_lock lock(mutex());
    if (devices().contains(device)) {
      return fmt::format("device {} is already counted in this process", device);
    }
    if (devices().empty()) {
      CUpti_Profiler_Initialize_Params params{CUpti_Profiler_Initialize_Params_STRUCT_SIZE};
      const CUptiResult result = cuptiProfilerInitialize(&params);
      // After a failure, calls into the profiler crash, the one that undoes it included.
      if (result != CUPTI_SUCCESS) return failure("initialising CUPTI's profiler failed", result);
    }
    devices().insert(device);
    return {};
  }
  static void give_back(int32_t device) {
    const std::scoped_lock lock(mutex());
    devices().erase(device);
    if (!devices().empty()) return;
    CUpti_Profiler_DeInitialize_Params params{CUpti_Profiler_DeInitialize_Params_STRUCT_SIZE};
    cuptiProfilerDeInitialize(&params);
  }

 private:
  static std::mutex& mutex() {
    static std::mutex mutex;
    return mutex;
  }
  static std::set<int32_t>& devices() {
    static auto* devices = new std::set<int32_t>;  // outlives counters that are destroyed at exit
    return *devices;
  }
};

class CuptiCounters final : public DeviceCounters {
 public:
  explicit CuptiCounters(const CounterOptions& options) : options_(options) {
    const std::string reason = set_up();
    if (!reason.empty()) {
      close();
      note_ = fmt::format("GPU counters are not sampled: {}.", reason);
    } else if (!metrics_.left_out().empty()) {
      note_ = fmt::format("GPU counters are sampled in part: {}.", metrics_.left_out());
    }
  }

  ~CuptiCounters() override { close(); }

  [[nodiscard]] std::string note() const override { return note_; }
  [[nodiscard]] bool is_active() const override { return sampler_ != nullptr; }

  [[nodiscard]] std::vector<std::string> metrics() const override {
    if (!is_active()) return {};
    return {metrics_.names().begin(), metrics_.names().end()};
  }
  [[nodiscard]] int64_t buffer_bytes() const override {
    return is_active() ? options_.hardware_buffer_bytes : 0;
  }

  void begin_step() override {
    if (is_sampling_) end_step();  // whatever went wrong in that step, it is not part of this one
    if (is_active() && must_restart_) restart();
    sampling_start_ns_ = wall_ns();
    if (is_active()) {
      CUpti_PmSampling_Start_Params params{CUpti_PmSampling_Start_Params_STRUCT_SIZE};
      params.pPmSamplingObject = sampler_;
      const CUptiResult result = cuptiPmSamplingStart(&params);
      is_sampling_ = result == CUPTI_SUCCESS;
      if (!is_sampling_) give_up(failure("starting failed", result));
    }
    start_ns_ = wall_ns();
  }

  CounterStep end_step() override {
    CounterStep step;
    // An error of the device stays until the caller's next call, which reports it.
    if (is_sampling_) cudaDeviceSynchronize();
    step.window = {start_ns_, wall_ns()};
    if (!is_sampling_) return step;
    const CUptiResult result = stop();
    if (result != CUPTI_SUCCESS) {
      step.is_truncated = true;
      give_up(failure("stopping failed", result));
      return step;
    }
    const CounterWindow sampled = {sampling_start_ns_, wall_ns()};
    read(step);
    step.is_on_wall_clock = step.samples.empty() || any_sample_in(step.samples, sampled);
    static_cast<CounterSums&>(step) =
        sum_counters(step.samples, step.is_on_wall_clock ? step.window : CounterWindow{});
    if (step.num_samples == 0 && step.num_rejected > 0 && !has_empty_note_) {
      has_empty_note_ = true;
      add_note(fmt::format("The {} samples of a step have no values.", step.num_rejected));
    }
    return step;
  }

 private:
  std::string set_up() {
    int driver_version = 0;
    int num_devices = 0;
    if (cudaDriverGetVersion(&driver_version) != cudaSuccess || driver_version == 0) {
      return "there is no NVIDIA driver";
    }
    if (cudaGetDeviceCount(&num_devices) != cudaSuccess || num_devices == 0) {
      return fmt::format("there is no usable GPU: {}", cudaGetErrorString(cudaGetLastError()));
    }
    uint32_t version = 0;
    if (cuptiGetVersion(&version) != CUPTI_SUCCESS || version < CUPTI_API_VERSION) {
      return fmt::format("libcupti has version {}, this build needs {} or newer", version,
                         CUPTI_API_VERSION);
    }
    int device = options_.device;
    if (device < 0 && cudaGetDevice(&device) != cudaSuccess) return "no device is current";
    if (device >= num_devices) {
      return fmt::format("there is no device {}, only {}", device, num_devices);
    }
    if (options_.sampling_interval_ns <= 0 || options_.hardware_buffer_bytes <= 0 ||
        options_.samples_per_read <= 0 || options_.samples_per_read > int64_t{1} << 20) {
      return "the options make no sense";
    }
    std::string reason = ProfilerUse::take(device);
    if (!reason.empty()) return reason;
    device_ = device;

    // The same clock as the recorder's. A callback that is already there is replaced by its equal.
    CUptiResult result = cuptiActivityRegisterTimestampCallback(&cupti_now);
    if (result != CUPTI_SUCCESS) return failure("setting the clock failed", result);
    CUpti_Device_GetChipName_Params name{CUpti_Device_GetChipName_Params_STRUCT_SIZE};
    name.deviceIndex = static_cast<size_t>(device_);
    result = cuptiDeviceGetChipName(&name);
    if (result != CUPTI_SUCCESS || name.pChipName == nullptr) {
      return failure("asking for the chip failed", result);
    }
    chip_ = name.pChipName;
    std::vector<uint8_t> availability;
    reason = ask_availability(availability);
    if (reason.empty()) reason = metrics_.choose(chip_, std::move(availability));
    if (reason.empty()) reason = enable();
    return reason;
  }

  /// Which counters the device lets us have; needs the permission to count.
  std::string ask_availability(std::vector<uint8_t>& image) const {
    constexpr const char* kWhat = "asking which counters there are failed";
    CUpti_PmSampling_GetCounterAvailability_Params params{
        CUpti_PmSampling_GetCounterAvailability_Params_STRUCT_SIZE};
    params.deviceIndex = static_cast<size_t>(device_);
    CUptiResult result = cuptiPmSamplingGetCounterAvailability(&params);
    if (result != CUPTI_SUCCESS) return failure(kWhat, result);
    const size_t size = params.counterAvailabilityImageSize;
    if (size == 0 || size > kMaxImageBytes) return fmt::format("{}: {} bytes", kWhat, size);
    image.assign(size, 0);
    params.pCounterAvailabilityImage = image.data();
    result = cuptiPmSamplingGetCounterAvailability(&params);
    return result == CUPTI_SUCCESS ? std::string() : failure(kWhat, result);
  }

  /// From here on the device's counters are ours, and `sampler_` says so.
  std::string enable() {
    CUpti_PmSampling_Enable_Params enable{CUpti_PmSampling_Enable_Params_STRUCT_SIZE};
    enable.deviceIndex = static_cast<size_t>(device_);
    CUptiResult result = cuptiPmSamplingEnable(&enable);
    if (result == CUPTI_ERROR_INVALID_OPERATION || result == CUPTI_ERROR_HARDWARE_BUSY) {
      return failure("another profiler has the counters", result);
    }
    if (result != CUPTI_SUCCESS) return failure("getting hold of the counters failed", result);
    if (enable.pPmSamplingObject == nullptr) return "CUPTI returned no sampler";
    sampler_ = enable.pPmSamplingObject;

    // Turing and GA100 have no trigger of fixed rate, and Turing no ring.
    const bool is_turing = chip_.starts_with("TU");
    CUpti_PmSampling_SetConfig_Params config{CUpti_PmSampling_SetConfig_Params_STRUCT_SIZE};
    config.pPmSamplingObject = sampler_;
    config.configSize = metrics_.config_image().size();
    config.pConfig = metrics_.config_image().data();
    config.hardwareBufferSize = static_cast<size_t>(options_.hardware_buffer_bytes);
    config.samplingInterval = static_cast<uint64_t>(options_.sampling_interval_ns);
    config.triggerMode = is_turing || chip_ == "GA100"
                             ? CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_SYSCLK_INTERVAL
                             : CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_TIME_INTERVAL;
    config.hwBufferAppendMode = is_turing
                                    ? CUPTI_PM_SAMPLING_HARDWARE_BUFFER_APPEND_MODE_KEEP_OLDEST
                                    : CUPTI_PM_SAMPLING_HARDWARE_BUFFER_APPEND_MODE_KEEP_LATEST;
    result = cuptiPmSamplingSetConfig(&config);
    if (result != CUPTI_SUCCESS) return failure("setting up the sampling failed", result);

    std::vector<const char*> names = metrics_.names();
    CUpti_PmSampling_GetCounterDataSize_Params size{
        CUpti_PmSampling_GetCounterDataSize_Params_STRUCT_SIZE};
    size.pPmSamplingObject = sampler_;
    size.pMetricNames = names.data();
    size.numMetrics = names.size();
    size.maxSamples = static_cast<uint32_t>(options_.samples_per_read);
    result = cuptiPmSamplingGetCounterDataSize(&size);
    if (result != CUPTI_SUCCESS) return failure("asking for the size of samples failed", result);
    if (size.counterDataSize == 0 || size.counterDataSize > kMaxImageBytes) {
      return fmt::format("the samples of one reading take {} bytes", size.counterDataSize);
    }
    image_.assign(size.counterDataSize, 0);
    result = clear_image();
    return result == CUPTI_SUCCESS ? std::string()
                                   : failure("preparing for samples failed", result);
  }

  CUptiResult clear_image() {
    CUpti_PmSampling_CounterDataImage_Initialize_Params params{
        CUpti_PmSampling_CounterDataImage_Initialize_Params_STRUCT_SIZE};
    params.pPmSamplingObject = sampler_;
    params.counterDataSize = image_.size();
    params.pCounterData = image_.data();
    return cuptiPmSamplingCounterDataImageInitialize(&params);
  }

  CUptiResult stop() {
    is_sampling_ = false;
    CUpti_PmSampling_Stop_Params params{CUpti_PmSampling_Stop_Params_STRUCT_SIZE};
    params.pPmSamplingObject = sampler_;
    return cuptiPmSamplingStop(&params);
  }

  /// Empties the hardware's buffer into the step, one image after the other.
  void read(CounterStep& step) {
    for (bool is_done = false; !is_done;) {
      CUpti_PmSampling_DecodeData_Params decode{CUpti_PmSampling_DecodeData_Params_STRUCT_SIZE};
      decode.pPmSamplingObject = sampler_;
      decode.pCounterDataImage = image_.data();
      decode.counterDataImageSize = image_.size();
      CUptiResult result = cuptiPmSamplingDecodeData(&decode);
      // So CUPTI says that the hardware's buffer overflowed; it samples no more until restarted.
      const bool is_lost = result == CUPTI_ERROR_OUT_OF_MEMORY;
      if (is_lost) must_restart_ = true;
      if (is_lost || decode.overflow != 0) step.is_truncated = true;
      const size_t num_before = step.samples.size();
      if (result == CUPTI_SUCCESS) result = append_samples(step.samples);
      if (result == CUPTI_SUCCESS) result = clear_image();
      if (result != CUPTI_SUCCESS) {
        step.is_truncated = true;
        if (!is_lost) give_up(failure("reading the samples failed", result));
        return;
      }
      // For the reason OTHER there may be more to come, and for FULL there is. What is left when
      // it does not get on is thrown away with the sampler.
      is_done = decode.decodeStopReason == CUPTI_PM_SAMPLING_DECODE_STOP_REASON_END_OF_RECORDS;
      const bool is_stuck = step.samples.size() == num_before || step.samples.size() > kMaxSamples;
      if (!is_done && is_stuck) {
        const bool is_full =
            decode.decodeStopReason == CUPTI_PM_SAMPLING_DECODE_STOP_REASON_COUNTER_DATA_FULL;
        step.is_truncated = step.is_truncated || is_full || step.samples.size() > kMaxSamples;
        if (step.is_truncated) must_restart_ = true;
        is_done = true;
      }
    }
  }

  /// Those that the image holds.
  CUptiResult append_samples(std::vector<CounterSample>& samples) const {
    CUpti_PmSampling_GetCounterDataInfo_Params info{
        CUpti_PmSampling_GetCounterDataInfo_Params_STRUCT_SIZE};
    info.pCounterDataImage = image_.data();
    info.counterDataImageSize = image_.size();
    CUptiResult result = cuptiPmSamplingGetCounterDataInfo(&info);
    if (result != CUPTI_SUCCESS) return result;
    const size_t num_samples =
        std::min(info.numCompletedSamples, static_cast<size_t>(options_.samples_per_read));
    for (size_t i = 0; i < num_samples; ++i) {
      CUpti_PmSampling_CounterData_GetSampleInfo_Params times{
          CUpti_PmSampling_CounterData_GetSampleInfo_Params_STRUCT_SIZE};
      times.pPmSamplingObject = sampler_;
      times.pCounterDataImage = image_.data();
      times.counterDataImageSize = image_.size();
      times.sampleIndex = i;
      result = cuptiPmSamplingCounterDataGetSampleInfo(&times);
      if (result != CUPTI_SUCCESS) return result;
      // A time stamp past the range becomes negative: a sample of no length, or far outside.
      samples.push_back({static_cast<int64_t>(times.startTimestamp),
                         static_cast<int64_t>(times.endTimestamp), metrics_.evaluate(image_, i)});
    }
    return CUPTI_SUCCESS;
  }

  void disable() {
    if (sampler_ == nullptr) return;
    if (is_sampling_) stop();
    CUpti_PmSampling_Disable_Params params{CUpti_PmSampling_Disable_Params_STRUCT_SIZE};
    params.pPmSamplingObject = sampler_;
    cuptiPmSamplingDisable(&params);
    sampler_ = nullptr;
  }

  void restart() {
    must_restart_ = false;
    disable();
    const std::string reason = enable();
    if (!reason.empty()) give_up(reason);
  }

  void give_up(const std::string& reason) {
    close();
    add_note(fmt::format("GPU counters are no longer sampled: {}.", reason));
  }

  void add_note(const std::string& sentence) { note_ += (note_.empty() ? "" : " ") + sentence; }

  void close() {
    disable();
    image_ = {};
    if (device_ >= 0) ProfilerUse::give_back(device_);
    device_ = -1;
  }

  CounterOptions options_;
  int32_t device_ = -1;  ///< that is ours; -1: none
  std::string chip_;
  std::string note_;
  CuptiMetrics metrics_;  // before the sampler in life, after it in death: it holds its images
  CUpti_PmSampling_Object* sampler_ = nullptr;
  std::vector<uint8_t> image_;  ///< what CUPTI decodes samples into
  bool is_sampling_ = false;
  bool must_restart_ = false;
  bool has_empty_note_ = false;
  int64_t sampling_start_ns_ = 0;  ///< before the sampling began
  int64_t start_ns_ = 0;
};

}  // namespace

std::unique_ptr<DeviceCounters> make_device_counters(const CounterOptions& options) {
  return std::make_unique<CuptiCounters>(options);
}

}  // namespace moetune::profiler

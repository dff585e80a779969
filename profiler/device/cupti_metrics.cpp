// Asks CUPTI's host library what a chip can count in one pass, and turns raw samples into values.
#include "profiler/device/cupti_metrics.h"

#include <cupti.h>
#include <cupti_profiler_host.h>
#include <fmt/format.h>

#include <limits>
#include <utility>

#include "profiler/device/cupti_session.h"

namespace moetune::profiler {
namespace {

/// A metric, what it stands for, and its unit in ours.
struct Candidate {
  Counter counter;
  const char* metric;
  double unit;
};

/// By importance; of one counter, the best first. The names are those of CUPTI 13.0: all chips from
/// Ampere on have the first two; the memory is counted under the first name up to Hopper and
/// Blackwell's data centre chips, under the second on its others. The number of tensor instructions
/// (sm__inst_executed_pipe_tensor) is no candidate: on Hopper it takes two passes, and one of its
/// instructions can be long work.
constexpr std::array kCandidates = {
    Candidate{Counter::sm_active, "sm__cycles_active.avg.pct_of_peak_sustained_elapsed", 0.01},
    Candidate{Counter::tensor_active,
              "sm__pipe_tensor_cycles_active_realtime.avg.pct_of_peak_sustained_elapsed", 0.01},
    Candidate{Counter::tensor_active,
              "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed", 0.01},
    Candidate{Counter::dram_read, "dram__bytes_read.sum", 1},
    Candidate{Counter::dram_read, "dram__bytes_op_read.sum", 1},
    Candidate{Counter::dram_write, "dram__bytes_write.sum", 1},
    Candidate{Counter::dram_write, "dram__bytes_op_write.sum", 1},
};
constexpr std::array<const char*, kNumCounters> kCounterNames = {"SM activity", "tensor activity",
                                                                 "memory reads", "memory writes"};

/// Nothing that CUPTI asks memory for is near it: a size past it is an error of ours or of CUPTI.
constexpr size_t kMaxConfigImageBytes = size_t{1} << 28;

using Host = CUpti_Profiler_Host_Object;

void close_host(Host* host) {
  if (host == nullptr) return;
  CUpti_Profiler_Host_Deinitialize_Params params{
      CUpti_Profiler_Host_Deinitialize_Params_STRUCT_SIZE};
  params.pHostObject = host;
  cuptiProfilerHostDeinitialize(&params);
}

CUptiResult open_host(const std::string& chip, const std::vector<uint8_t>& availability,
                      Host*& host) {
  CUpti_Profiler_Host_Initialize_Params params{CUpti_Profiler_Host_Initialize_Params_STRUCT_SIZE};
  params.profilerType = CUPTI_PROFILER_TYPE_PM_SAMPLING;
  params.pChipName = chip.c_str();
  params.pCounterAvailabilityImage = availability.empty() ? nullptr : availability.data();
  const CUptiResult result = cuptiProfilerHostInitialize(&params);
  host = result == CUPTI_SUCCESS ? params.pHostObject : nullptr;
  return result;
}

bool has_metric(Host* host, const char* metric) {
  CUpti_Profiler_Host_GetMetricProperties_Params params{
      CUpti_Profiler_Host_GetMetricProperties_Params_STRUCT_SIZE};
  params.pHostObject = host;
  params.pMetricName = metric;
  return cuptiProfilerHostGetMetricProperties(&params) == CUPTI_SUCCESS;
}

/// The image that makes the hardware count `metrics`, and in how many passes. The host must be new:
/// it only ever adds metrics.
CUptiResult configure(Host* host, std::vector<const char*>& metrics, std::vector<uint8_t>& image,
                      size_t& num_passes) {
  CUpti_Profiler_Host_ConfigAddMetrics_Params add{
      CUpti_Profiler_Host_ConfigAddMetrics_Params_STRUCT_SIZE};
  add.pHostObject = host;
  add.ppMetricNames = metrics.data();
  add.numMetrics = metrics.size();
  CUptiResult result = cuptiProfilerHostConfigAddMetrics(&add);
  if (result != CUPTI_SUCCESS) return result;

  CUpti_Profiler_Host_GetConfigImageSize_Params size{
      CUpti_Profiler_Host_GetConfigImageSize_Params_STRUCT_SIZE};
  size.pHostObject = host;
  result = cuptiProfilerHostGetConfigImageSize(&size);
  if (result != CUPTI_SUCCESS) return result;
  if (size.configImageSize == 0 || size.configImageSize > kMaxConfigImageBytes) {
    return CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT;
  }

  image.assign(size.configImageSize, 0);
  CUpti_Profiler_Host_GetConfigImage_Params get{
      CUpti_Profiler_Host_GetConfigImage_Params_STRUCT_SIZE};
  get.pHostObject = host;
  get.configImageSize = image.size();
  get.pConfigImage = image.data();
  result = cuptiProfilerHostGetConfigImage(&get);
  if (result != CUPTI_SUCCESS) return result;

  CUpti_Profiler_Host_GetNumOfPasses_Params passes{
      CUpti_Profiler_Host_GetNumOfPasses_Params_STRUCT_SIZE};
  passes.configImageSize = image.size();
  passes.pConfigImage = image.data();
  result = cuptiProfilerHostGetNumOfPasses(&passes);
  num_passes = passes.numOfPasses;
  return result;
}

}  // namespace

CuptiMetrics::~CuptiMetrics() { close_host(static_cast<Host*>(host_)); }

std::string CuptiMetrics::choose(const std::string& chip, std::vector<uint8_t> availability) {
  availability_ = std::move(availability);
  std::array<std::string, kNumCounters> reasons;
  std::array<bool, kNumCounters> is_chosen{};
  for (size_t entry = 0; entry < kCandidates.size(); ++entry) {
    const Candidate& candidate = kCandidates[entry];
    const auto counter = static_cast<size_t>(candidate.counter);
    if (is_chosen[counter]) continue;
    Host* host = nullptr;
    const CUptiResult opened = open_host(chip, availability_, host);
    if (opened != CUPTI_SUCCESS) {
      return fmt::format("CUPTI knows no metrics of chip {} (libnvperf_host belongs beside it): {}",
                         chip, cupti_error_text(opened));
    }
    std::vector<const char*> names = names_;
    names.push_back(candidate.metric);
    std::vector<uint8_t> image;
    size_t num_passes = 0;
    std::string reason;
    if (!has_metric(host, candidate.metric)) {
      reason = fmt::format("{} has no {}", chip, candidate.metric);
    } else if (const CUptiResult result = configure(host, names, image, num_passes);
               result != CUPTI_SUCCESS) {
      reason = fmt::format("{}: {}", candidate.metric, cupti_error_text(result));
    } else if (num_passes != 1) {
      reason = fmt::format("{} would take {} passes{}", candidate.metric, num_passes,
                           names_.empty() ? "" : " with the others");
    }
    if (!reason.empty()) {
      close_host(host);
      reasons[counter] += (reasons[counter].empty() ? "" : ", ") + reason;
      continue;
    }
    close_host(static_cast<Host*>(host_));
    host_ = host;
    names_ = std::move(names);
    entries_.push_back(entry);
    config_image_ = std::move(image);
    is_chosen[counter] = true;
  }
  for (size_t i = 0; i < kNumCounters; ++i) {
    if (is_chosen[i]) continue;
    left_out_ +=
        fmt::format("{}no {} ({})", left_out_.empty() ? "" : "; ", kCounterNames[i], reasons[i]);
  }
  return names_.empty() ? left_out_ : std::string();
}

std::array<double, kNumCounters> CuptiMetrics::evaluate(std::span<const uint8_t> image,
                                                        size_t index) const {
  constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();
  std::array<double, kNumCounters> values{};
  values.fill(kNothing);
  std::array<double, kCandidates.size()> raw{};
  raw.fill(kNothing);
  std::vector<const char*> names = names_;
  CUpti_Profiler_Host_EvaluateToGpuValues_Params params{
      CUpti_Profiler_Host_EvaluateToGpuValues_Params_STRUCT_SIZE};
  params.pHostObject = static_cast<Host*>(host_);
  params.pCounterDataImage = image.data();
  params.counterDataImageSize = image.size();
  params.rangeIndex = index;
  params.ppMetricNames = names.data();
  params.numMetrics = names.size();
  params.pMetricValues = raw.data();
  if (cuptiProfilerHostEvaluateToGpuValues(&params) != CUPTI_SUCCESS) return values;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Candidate& candidate = kCandidates[entries_[i]];
    values[static_cast<size_t>(candidate.counter)] = raw[i] * candidate.unit;
  }
  return values;
}

}  // namespace moetune::profiler

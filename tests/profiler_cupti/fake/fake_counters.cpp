// The functions that cupti_counters.cpp and cupti_metrics.cpp call. Drivers, versions and clocks
// are fake_cupti.cpp's.
#include "tests/profiler_cupti/fake/fake_counters.h"

#include <cuda_runtime_api.h>
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_target.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>

#include "tests/profiler_cupti/fake/fake_cupti.h"

struct CUpti_Profiler_Host_Object {
  std::vector<std::string> metrics;
};
struct CUpti_PmSampling_Object {
  std::vector<std::string> metrics;  ///< as the config image names them
  const uint8_t* config = nullptr;
  size_t config_size = 0;
  size_t capacity = 0;
};

namespace fake {

CounterMachine counters;

void reset_counters() { counters = CounterMachine{}; }

namespace {

/// At the start of a counter data image.
struct ImageHeader {
  uint64_t magic = 0x696d616765;
  uint64_t capacity = 0;
  uint64_t num_samples = 0;
};

/// Counts the call; what a test has it return, otherwise success.
CUptiResult called(const char* name) {
  const int call = counters.calls[name]++;
  const auto failing = counters.failing.find(name);
  if (failing == counters.failing.end() || call < counters.failing_call) return CUPTI_SUCCESS;
  return failing->second;
}

size_t asked_size(size_t needed) {
  return counters.has_strange_image_size ? counters.strange_image_size : needed;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += name + '\n';
  return text;
}

std::vector<std::string> split(const uint8_t* data, size_t size) {
  std::vector<std::string> names(1);
  for (size_t i = 0; i < size; ++i) {
    if (data[i] == '\n') {
      names.emplace_back();
    } else {
      names.back().push_back(static_cast<char>(data[i]));
    }
  }
  names.pop_back();
  return names;
}

size_t index_of(const std::string& metric) {
  if (metric.find("sm__cycles") == 0) return 0;
  if (metric.find("tensor") != std::string::npos) return 1;
  return metric.find("read") != std::string::npos ? 2 : 3;
}

ImageHeader header_of(const uint8_t* image) {
  ImageHeader header;
  std::memcpy(&header, image, sizeof(header));
  return header;
}

HardwareSample sample_of(const uint8_t* image, size_t index) {
  HardwareSample sample;
  std::memcpy(&sample, image + sizeof(ImageHeader) + index * sizeof(sample), sizeof(sample));
  return sample;
}

/// Reads the whole of it, so that a sanitizer sees whether it is still there.
bool has_config(const CUpti_PmSampling_Object& sampler) {
  return split(sampler.config, sampler.config_size) == sampler.metrics;
}

CUptiResult misused() {
  counters.was_misused = true;
  return CUPTI_ERROR_INVALID_OPERATION;
}

}  // namespace
}  // namespace fake

using fake::called;
using fake::counters;

extern "C" {

cudaError_t cudaGetDevice(int* device) {
  *device = counters.current_device;
  return cudaSuccess;
}

CUptiResult cuptiProfilerInitialize(CUpti_Profiler_Initialize_Params*) {
  const CUptiResult result = called("ProfilerInitialize");
  if (result == CUPTI_SUCCESS) ++counters.num_initialised;
  return result;
}
CUptiResult cuptiProfilerDeInitialize(CUpti_Profiler_DeInitialize_Params*) {
  called("ProfilerDeInitialize");
  // The real one crashes.
  if (counters.num_initialised == 0 || counters.num_samplers > 0) return fake::misused();
  --counters.num_initialised;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiDeviceGetChipName(CUpti_Device_GetChipName_Params* params) {
  params->pChipName = counters.chip.c_str();
  return called("DeviceGetChipName");
}

CUptiResult cuptiProfilerHostInitialize(CUpti_Profiler_Host_Initialize_Params* params) {
  const CUptiResult result = called("HostInitialize");
  if (result != CUPTI_SUCCESS) return result;
  if (params->profilerType != CUPTI_PROFILER_TYPE_PM_SAMPLING || params->pChipName == nullptr ||
      params->pChipName != counters.chip || params->pCounterAvailabilityImage == nullptr ||
      params->pCounterAvailabilityImage[0] != 0xa5) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  params->pHostObject = new CUpti_Profiler_Host_Object;
  ++counters.num_hosts;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiProfilerHostDeinitialize(CUpti_Profiler_Host_Deinitialize_Params* params) {
  delete params->pHostObject;
  --counters.num_hosts;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiProfilerHostGetMetricProperties(
    CUpti_Profiler_Host_GetMetricProperties_Params* params) {
  const CUptiResult result = called("HostGetMetricProperties");
  if (result != CUPTI_SUCCESS) return result;
  return counters.metrics.contains(params->pMetricName) ? CUPTI_SUCCESS
                                                        : CUPTI_ERROR_INVALID_METRIC_NAME;
}
CUptiResult cuptiProfilerHostConfigAddMetrics(CUpti_Profiler_Host_ConfigAddMetrics_Params* params) {
  const CUptiResult result = called("HostConfigAddMetrics");
  if (result != CUPTI_SUCCESS) return result;
  for (size_t i = 0; i < params->numMetrics; ++i) {
    if (!counters.metrics.contains(params->ppMetricNames[i])) return CUPTI_ERROR_INVALID_PARAMETER;
    params->pHostObject->metrics.emplace_back(params->ppMetricNames[i]);
  }
  return CUPTI_SUCCESS;
}
CUptiResult cuptiProfilerHostGetConfigImageSize(
    CUpti_Profiler_Host_GetConfigImageSize_Params* params) {
  params->configImageSize = fake::asked_size(fake::joined(params->pHostObject->metrics).size());
  return called("HostGetConfigImageSize");
}
CUptiResult cuptiProfilerHostGetConfigImage(CUpti_Profiler_Host_GetConfigImage_Params* params) {
  const std::string text = fake::joined(params->pHostObject->metrics);
  if (params->configImageSize < text.size()) return CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT;
  std::memcpy(params->pConfigImage, text.data(), text.size());
  return called("HostGetConfigImage");
}
CUptiResult cuptiProfilerHostGetNumOfPasses(CUpti_Profiler_Host_GetNumOfPasses_Params* params) {
  params->numOfPasses = 1;
  for (const std::string& name : fake::split(params->pConfigImage, params->configImageSize)) {
    params->numOfPasses += counters.metrics.at(name);
  }
  return called("HostGetNumOfPasses");
}
CUptiResult cuptiProfilerHostEvaluateToGpuValues(
    CUpti_Profiler_Host_EvaluateToGpuValues_Params* params) {
  const CUptiResult result = called("HostEvaluateToGpuValues");
  if (result != CUPTI_SUCCESS) return result;
  if (params->rangeIndex >= fake::header_of(params->pCounterDataImage).num_samples) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  const fake::HardwareSample sample =
      fake::sample_of(params->pCounterDataImage, params->rangeIndex);
  for (size_t i = 0; i < params->numMetrics; ++i) {
    const std::string metric = params->ppMetricNames[i];
    const std::vector<std::string>& known = params->pHostObject->metrics;
    if (std::find(known.begin(), known.end(), metric) == known.end()) {
      return CUPTI_ERROR_INVALID_METRIC_NAME;
    }
    params->pMetricValues[i] = sample.values.at(fake::index_of(metric));
  }
  return CUPTI_SUCCESS;
}

CUptiResult cuptiPmSamplingGetCounterAvailability(
    CUpti_PmSampling_GetCounterAvailability_Params* params) {
  const CUptiResult result = called("GetCounterAvailability");
  if (result != CUPTI_SUCCESS) return result;
  if (counters.num_initialised == 0) return fake::misused();
  if (params->pCounterAvailabilityImage == nullptr) {
    params->counterAvailabilityImageSize = fake::asked_size(16);
  } else {
    std::memset(params->pCounterAvailabilityImage, 0xa5, params->counterAvailabilityImageSize);
  }
  return CUPTI_SUCCESS;
}
CUptiResult cuptiPmSamplingEnable(CUpti_PmSampling_Enable_Params* params) {
  const CUptiResult result = called("Enable");
  if (result != CUPTI_SUCCESS) return result;
  if (counters.num_initialised == 0) return fake::misused();
  params->pPmSamplingObject = new CUpti_PmSampling_Object;
  ++counters.num_samplers;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiPmSamplingDisable(CUpti_PmSampling_Disable_Params* params) {
  called("Disable");
  if (counters.is_sampling) fake::misused();
  // The real one may still look at what it was set up with.
  if (params->pPmSamplingObject->config != nullptr && !fake::has_config(*params->pPmSamplingObject))
    fake::misused();
  delete params->pPmSamplingObject;
  --counters.num_samplers;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiPmSamplingSetConfig(CUpti_PmSampling_SetConfig_Params* params) {
  const CUptiResult result = called("SetConfig");
  if (result != CUPTI_SUCCESS) return result;
  CUpti_PmSampling_Object& sampler = *params->pPmSamplingObject;
  sampler.config = params->pConfig;
  sampler.config_size = params->configSize;
  sampler.metrics = fake::split(params->pConfig, params->configSize);
  counters.config = *params;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiPmSamplingGetCounterDataSize(CUpti_PmSampling_GetCounterDataSize_Params* params) {
  const CUptiResult result = called("GetCounterDataSize");
  if (result != CUPTI_SUCCESS) return result;
  params->pPmSamplingObject->capacity = params->maxSamples;
  params->counterDataSize = fake::asked_size(sizeof(fake::ImageHeader) +
                                             params->maxSamples * sizeof(fake::HardwareSample));
  return CUPTI_SUCCESS;
}
CUptiResult cuptiPmSamplingCounterDataImageInitialize(
    CUpti_PmSampling_CounterDataImage_Initialize_Params* params) {
  const CUptiResult result = called("CounterDataImageInitialize");
  if (result != CUPTI_SUCCESS) return result;
  std::memset(params->pCounterData, 0, params->counterDataSize);
  fake::ImageHeader header;
  header.capacity = params->pPmSamplingObject->capacity;
  std::memcpy(params->pCounterData, &header, sizeof(header));
  return CUPTI_SUCCESS;
}
CUptiResult cuptiPmSamplingStart(CUpti_PmSampling_Start_Params* params) {
  const CUptiResult result = called("Start");
  if (result != CUPTI_SUCCESS) return result;
  if (counters.is_sampling || !fake::has_config(*params->pPmSamplingObject)) return fake::misused();
  counters.is_sampling = true;
  counters.num_discarded += counters.buffer.size();
  counters.buffer.clear();
  return CUPTI_SUCCESS;
}
CUptiResult cuptiPmSamplingStop(CUpti_PmSampling_Stop_Params*) {
  if (!counters.is_sampling) return fake::misused();
  counters.is_sampling = false;
  counters.was_synchronised = fake::machine.num_synchronisations > 0;
  return called("Stop");
}
CUptiResult cuptiPmSamplingDecodeData(CUpti_PmSampling_DecodeData_Params* params) {
  const CUptiResult result = called("DecodeData");
  if (result != CUPTI_SUCCESS) return result;
  if (!fake::has_config(*params->pPmSamplingObject)) return fake::misused();
  fake::ImageHeader header = fake::header_of(params->pCounterDataImage);
  if (header.magic != fake::ImageHeader{}.magic) return fake::misused();
  fake::Reading reading;
  if (!counters.readings.empty()) {
    reading = counters.readings.front();
    counters.readings.pop_front();
  }
  params->overflow = reading.has_overflow ? 1 : 0;
  if (reading.result != CUPTI_SUCCESS) return reading.result;
  uint8_t* end = params->pCounterDataImage + sizeof(header);
  while (!counters.buffer.empty() && header.num_samples < header.capacity) {
    std::memcpy(end + header.num_samples * sizeof(fake::HardwareSample), &counters.buffer.front(),
                sizeof(fake::HardwareSample));
    counters.buffer.erase(counters.buffer.begin());
    ++header.num_samples;
  }
  std::memcpy(params->pCounterDataImage, &header, sizeof(header));
  params->decodeStopReason = counters.buffer.empty()
                                 ? CUPTI_PM_SAMPLING_DECODE_STOP_REASON_END_OF_RECORDS
                                 : CUPTI_PM_SAMPLING_DECODE_STOP_REASON_COUNTER_DATA_FULL;
  if (reading.reason != CUPTI_PM_SAMPLING_DECODE_STOP_REASON_COUNT) {
    params->decodeStopReason = reading.reason;
  }
  return CUPTI_SUCCESS;
}
CUptiResult cuptiPmSamplingGetCounterDataInfo(CUpti_PmSampling_GetCounterDataInfo_Params* params) {
  const CUptiResult result = called("GetCounterDataInfo");
  if (result != CUPTI_SUCCESS) return result;
  const fake::ImageHeader header = fake::header_of(params->pCounterDataImage);
  params->numTotalSamples = header.capacity;
  params->numPopulatedSamples = header.num_samples;
  params->numCompletedSamples = header.num_samples + counters.num_claimed_samples;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiPmSamplingCounterDataGetSampleInfo(
    CUpti_PmSampling_CounterData_GetSampleInfo_Params* params) {
  const CUptiResult result = called("CounterDataGetSampleInfo");
  if (result != CUPTI_SUCCESS) return result;
  const fake::ImageHeader header = fake::header_of(params->pCounterDataImage);
  if (params->sampleIndex >= header.capacity) return fake::misused();
  const fake::HardwareSample sample =
      fake::sample_of(params->pCounterDataImage, params->sampleIndex);
  params->startTimestamp = sample.start;
  params->endTimestamp = sample.end;
  return CUPTI_SUCCESS;
}

}  // extern "C"

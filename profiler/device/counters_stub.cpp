// Stands in for cupti_counters.cpp in builds without CUPTI.
#include "profiler/device/device_counters.h"

namespace moetune::profiler {

std::unique_ptr<DeviceCounters> make_device_counters(const CounterOptions& /*options*/) {
  return nullptr;
}

}  // namespace moetune::profiler

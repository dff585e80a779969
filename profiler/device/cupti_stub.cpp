// Stands in for CUPTI in builds without it.
#include "profiler/device/cupti_recorder.h"

namespace moetune::profiler {

bool has_cupti() { return false; }

std::unique_ptr<DeviceRecorder> make_cupti_recorder(const DeviceRecorderOptions& /*options*/) {
  return nullptr;
}
std::unique_ptr<DeviceRecorder> make_cupti_recorder(int /*rank*/) { return nullptr; }

}  // namespace moetune::profiler

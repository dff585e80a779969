#include "sweeps/device_peaks.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "engine/spec/hardware_names.h"
#include "kernels/base/error.h"
#include "sweeps/diagnosis.h"
#include "sweeps/planning/machines.h"

namespace moetune::sweeps {
namespace {

/// Shares of published peaks that large products and plain copies reach.
constexpr double kReachedFlops = 2.0 / 3;
constexpr double kReachedBytes = 0.85;

std::shared_ptr<const spec::HardwareSpec> machine_of_traces(
    std::span<const profiler::ImportedTrace> traces) {
  std::string device;
  for (const profiler::ImportedTrace& trace : traces) {
    const std::string name = trace.device_name();
    if (!device.empty() && name != device) return nullptr;
    device = name;
  }
  const std::optional<std::string> file = spec::hardware_file_of(device);
  if (!file) return nullptr;
  try {
    constexpr int64_t kOneDevice = 1;
    return machine_of(*file, kOneDevice);
  } catch (const base::UsageError&) {
    return nullptr;  // the shipped files are not installed here
  }
}

}  // namespace

profiler::DevicePeaks peaks_of(std::span<const profiler::ImportedTrace> traces,
                               const spec::HardwareSpec* hardware) {
  std::shared_ptr<const spec::HardwareSpec> found;
  if (hardware == nullptr) {
    found = machine_of_traces(traces);
    hardware = found.get();
  }
  if (hardware == nullptr) return {};
  const auto reached = [&](spec::Work work, double if_unsaid) {
    const double said = hardware->efficiency[static_cast<size_t>(work)];
    return said < 1 ? said : if_unsaid;
  };
  const double products = reached(spec::Work::product, kReachedFlops);
  profiler::DevicePeaks peaks;
  peaks.flops_per_s = hardware->peak_flops_per_s * products;
  peaks.eight_bit_flops_per_s = hardware->fp8_flops_per_s * products;
  peaks.memory_bytes_per_s =
      hardware->memory_bytes_per_s * reached(spec::Work::light, kReachedBytes);
  peaks.device = hardware->name;
  return peaks;
}

profiler::MemoryFacts memory_of(std::span<const profiler::ImportedTrace> traces,
                                const spec::HardwareSpec* hardware, profiler::MemoryFacts said) {
  if (said.peak_bytes == 0) {
    for (const profiler::ImportedTrace& trace : traces) {
      said.peak_bytes = std::max(said.peak_bytes, trace.facts.peak_allocated_bytes);
    }
  }
  if (said.peak_bytes == 0 || said.capacity_bytes > 0) return said;
  std::shared_ptr<const spec::HardwareSpec> found;
  if (hardware == nullptr) {
    found = machine_of_traces(traces);
    hardware = found.get();
  }
  if (hardware != nullptr) said.capacity_bytes = hardware->memory_bytes;
  return said;
}

}  // namespace moetune::sweeps

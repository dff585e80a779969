// Hardware files from the library or a path, read once.
#include "sweeps/planning/machines.h"

#include <algorithm>
#include <array>
#include <iostream>
#include <map>
#include <mutex>
#include <utility>

#include "engine/spec/document.h"
#include "engine/spec/hardware_names.h"
#include "engine/spec/library.h"
#include "kernels/base/error.h"
#include "sweeps/load.h"

namespace moetune::sweeps {

namespace {

/// What other commands do without, as they run on the machine itself.
void check_plannable(const spec::HardwareSpec& hardware, const spec::Source& source) {
  std::string missing;
  for (const auto& [key, value] :
       {std::pair<const char*, double>{"memory_bytes", static_cast<double>(hardware.memory_bytes)},
        {"peak_flops_per_s", hardware.peak_flops_per_s},
        {"memory_bytes_per_s", hardware.memory_bytes_per_s}}) {
    if (value > 0) continue;
    missing += fmt::format("{}'{}'", missing.empty() ? "" : ", ", key);
  }
  if (missing.empty()) return;
  throw base::UsageError(
      fmt::format("{}plans need a device's memory, its peak and its bandwidth: missing or 0: {}",
                  source.prefix(""), missing));
}

/// Empty where the name is that of nothing.
std::string path_of(const std::string& name_or_path) {
  std::string path = spec::find_file(spec::Shelf::hardware, name_or_path, ".");
  if (!path.empty()) return path;
  // As published runs name devices: "H100".
  if (const auto device = spec::likely_hardware_file_of(name_or_path)) {
    return spec::find_in_library(spec::Shelf::hardware, *device);
  }
  return spec::likely_in_library(spec::Shelf::hardware, name_or_path);
}

const spec::HardwareSpec& file_of(const std::string& name_or_path) {
  static std::mutex mutex;
  static std::map<std::string, spec::HardwareSpec> files;
  const std::scoped_lock lock(mutex);
  const auto found = files.find(name_or_path);
  if (found != files.end()) return found->second;
  const std::string path = path_of(name_or_path);
  if (path.empty()) {
    throw base::UsageError(fmt::format("there is no hardware '{}': {}", name_or_path,
                                       spec::library_hint(spec::Shelf::hardware, name_or_path)));
  }
  const spec::Document document = spec::read_document(read_spec_file(path), path);
  refuse_other_kind_of_file(document, "hardware");
  const spec::HardwareSpec hardware = spec::hardware_from_json(document.json, document.source);
  spec::check_plausible(hardware, document.source);
  check_plannable(hardware, document.source);
  return files.emplace(name_or_path, hardware).first->second;
}

}  // namespace

std::string machine_named(const std::string& name_or_path) {
  if (!spec::find_file(spec::Shelf::hardware, name_or_path, ".").empty()) return name_or_path;
  const std::string path = path_of(name_or_path);
  if (path.empty()) return name_or_path;  // is refused where it is read
  std::string name = spec::library_name(path);
  std::cerr << fmt::format("moetune: hardware '{}' is taken as {}\n", name_or_path, name);
  return name;
}

std::shared_ptr<const spec::HardwareSpec> machine_of(const std::string& name_or_path,
                                                     int64_t num_devices) {
  return std::make_shared<const spec::HardwareSpec>(
      spec::with_devices(file_of(name_or_path), num_devices));
}

std::string nodes_text(const std::string& name_or_path, const spec::HardwareSpec& machine) {
  const int64_t full = file_of(name_or_path).devices_per_node;
  if (machine.num_nodes == 1 || machine.devices_per_node == full) return "";
  return fmt::format("{} nodes with {} devices each: they do not fill nodes of {}",
                     machine.num_nodes, machine.devices_per_node, full);
}

std::optional<int64_t> devices_of(const std::string& name_or_path) {
  const spec::HardwareSpec& hardware = file_of(name_or_path);
  return hardware.num_nodes > 1 ? std::optional(hardware.num_devices()) : std::nullopt;
}

int64_t domain_devices_of(const std::string& name_or_path) {
  return spec::domain_devices(file_of(name_or_path));
}

std::vector<int64_t> device_counts(const std::string& name_or_path) {
  constexpr int64_t kMostDevices = 4096;
  const spec::HardwareSpec& hardware = file_of(name_or_path);
  const int64_t node = hardware.devices_per_node;
  const bool is_alone = hardware.inter_node.bytes_per_s <= 0;
  const int64_t most = is_alone ? node : std::max(kMostDevices, node);
  std::vector<int64_t> counts;
  for (int64_t count = 1; count < node; count *= 2) counts.push_back(count);
  for (int64_t count = node; count <= most; count *= 2) counts.push_back(count);
  // All that the links of the only node join.
  if (is_alone && spec::domain_devices(hardware) > node) {
    counts.push_back(spec::domain_devices(hardware));
  }
  return counts;
}

bool is_device_of(const std::string& name, const spec::HardwareSpec& hardware) {
  // Names of the library alone: what a calibration says is no path to read.
  if (name.find('/') != std::string::npos ||
      spec::find_file(spec::Shelf::hardware, name, ".").empty()) {
    return false;
  }
  const auto figures = [](const spec::HardwareSpec& device) {
    return std::array{device.peak_flops_per_s, device.fp8_flops_per_s, device.fp4_flops_per_s,
                      device.memory_bytes_per_s};
  };
  return figures(file_of(name)) == figures(hardware);
}

}  // namespace moetune::sweeps

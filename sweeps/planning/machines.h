// Machines by the names of their files, with as many devices as a run has.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/spec/hardware_spec.h"

namespace moetune::sweeps {

/// The name itself, or that of the file that it is short for, as h100 is for h100-80g: which is
/// then told on standard error.
std::string machine_named(const std::string& name_or_path);
/// The shipped or written file, with so many devices. Each file is read once. Throws
/// base::UsageError for an unknown name, for counts that the machine cannot have, and for a file
/// without the figures that plans divide by: peak, memory and its bandwidth.
std::shared_ptr<const spec::HardwareSpec> machine_of(const std::string& name_or_path,
                                                     int64_t num_devices);
/// What was assumed of a machine_of() whose nodes are not those of its file, a sentence; else
/// empty.
std::string nodes_text(const std::string& name_or_path, const spec::HardwareSpec& machine);
/// How many devices the file itself describes, where it describes several nodes; else none.
std::optional<int64_t> devices_of(const std::string& name_or_path);
/// Devices that a file's intra_node joins at most.
int64_t domain_devices_of(const std::string& name_or_path);
/// Numbers of devices to try where none is asked for: powers of two up to a full node, then twice
/// as many nodes each time, up to 4096 devices. One node where nothing joins several, in the end
/// all that its links join.
std::vector<int64_t> device_counts(const std::string& name_or_path);
/// Whether a hardware file of that name describes the same kind of device: its peaks and the
/// bandwidth of its memory.
bool is_device_of(const std::string& name, const spec::HardwareSpec& hardware);

}  // namespace moetune::sweeps

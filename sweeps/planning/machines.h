// Machines by the names of their files, with as many devices as a run has.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "engine/spec/hardware_spec.h"

namespace moetune::sweeps {

/// The shipped or written file, with so many devices. Each file is read once. Throws
/// base::UsageError for an unknown name and for counts that the machine cannot have.
std::shared_ptr<const spec::HardwareSpec> machine_of(const std::string& name_or_path,
                                                     int64_t num_devices);
/// How many devices the file itself describes, where it describes several nodes; else none.
std::optional<int64_t> devices_of(const std::string& name_or_path);

}  // namespace moetune::sweeps

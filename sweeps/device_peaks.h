// What the device of a trace reaches: from the hardware file that the user names, or from the
// shipped one of the device's own name. The analysis itself knows no machines.
#pragma once

#include <span>

#include "engine/spec/hardware_spec.h"
#include "profiler/analysis/imported_roofline.h"
#include "profiler/analysis/wall.h"
#include "profiler/imported_trace.h"

namespace moetune::sweeps {

/// Peaks of `hardware` if it is given, else of the shipped file for the device that all traces name
/// (hardware_names.h). Unknown if there is no such file or the traces name different devices.
/// Published peaks are multiplied by the share that good kernels reach, unless the file states its
/// own shares.
profiler::DevicePeaks peaks_of(std::span<const profiler::ImportedTrace> traces,
                               const spec::HardwareSpec* hardware);

/// `said` by a log, filled up: the peak by the traces (what the framework had allocated), the
/// capacity by `hardware`, or by the shipped file of the traces' device.
profiler::MemoryFacts memory_of(std::span<const profiler::ImportedTrace> traces,
                                const spec::HardwareSpec* hardware, profiler::MemoryFacts said);

}  // namespace moetune::sweeps

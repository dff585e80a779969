// The operations of another engine's traces whose work is known, as the store keeps those of our
// own steps, so that the report sets them against the roofline.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "profiler/analysis/counted_steps.h"
#include "profiler/store/store.h"
#include "sweeps/diagnosis.h"

namespace moetune::sweeps {

/// JSON: what the traced device reaches, where the hardware of a trial is not in its description.
/// The report reads it.
constexpr const char* kDevicePeaksText = "device_peaks";

/// Kernels of 16 bits and more whose operators have shapes in the traces, by name and rank: the
/// longest ones, a step of those that count in the mean. `ranks`, `steps`: by trace.
void add_known_work(const Diagnosis& diagnosis, const std::vector<int32_t>& ranks,
                    std::span<const profiler::CountedSteps> steps,
                    std::vector<store::ShardOp>& ops);

/// The text of that name, from the shipped file of the device that the traces name; empty where
/// there is none.
std::string device_peaks_text(const Diagnosis& diagnosis);

}  // namespace moetune::sweeps

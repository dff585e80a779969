// The stored trace of a trial as a file for other tools.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profiler/record.h"
#include "profiler/store/store.h"

namespace moetune::sweeps {

/// Throws base::UsageError naming `option` where the folder of the path is not there, so that this
/// is known before anything runs.
void check_trace_folder(const std::string& path, const char* option);

/// Writes all traced steps of all ranks as Chrome trace events (profiler/export/chrome_json.h).
/// False, and nothing is written, where the trial has no trace. Throws base::UsageError for a place
/// that cannot be written, base::Error for a disk that is full.
[[nodiscard]] bool write_trace_file(const store::Store& store, int64_t trial_id,
                                    const std::string& path);

/// The same for traces that are in no store.
void write_traces(const std::vector<profiler::StepTrace>& traces, const std::string& path);

/// Why a trial without a trace has none, and which trials of its sweep have one: a sentence.
std::string no_trace_text(const store::Store& store, const store::TrialRow& trial);

}  // namespace moetune::sweeps

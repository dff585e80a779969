// Traces as files for other tools: the stored one of a trial, or one that another tool wrote.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/spec/names.h"
#include "profiler/record.h"
#include "profiler/store/store.h"

namespace moetune::sweeps {

enum class TraceFormat : uint8_t { chrome, perfetto };

}  // namespace moetune::sweeps

namespace moetune::spec {
template <>
struct NameTable<sweeps::TraceFormat> {
  static constexpr std::array kRows = {
      Named<sweeps::TraceFormat>{sweeps::TraceFormat::chrome, "chrome"},
      Named<sweeps::TraceFormat>{sweeps::TraceFormat::perfetto, "perfetto"}};
};
}  // namespace moetune::spec

namespace moetune::sweeps {

/// Perfetto's format for .pftrace and .perfetto-trace, else Chrome's.
TraceFormat trace_format_of(std::string_view path);

/// Writes all traced steps of all ranks (profiler/export/timeline_events.h). False, and nothing is
/// written, where the trial has no trace. Throws base::UsageError for a place that cannot be
/// written, base::Error for a disk that is full.
[[nodiscard]] bool write_trace_file(const store::Store& store, const store::TrialRow& trial,
                                    const std::string& path, TraceFormat format);

/// True if any of the traces has a record.
bool has_records(const std::vector<profiler::StepTrace>& traces);

/// Writes traces of our own engine that are not stored. Throws as write_trace_file does.
void write_traces(const std::vector<profiler::StepTrace>& traces, const std::string& path,
                  TraceFormat format);

/// Writes anew what a file holds: a trace in Chrome's format that moetune wrote, or one of another
/// tool (profiler/import/trace_files.h). Throws as write_trace_file does, and base::UsageError for
/// a file that is none of these, or without anything to show.
void write_trace_anew(const std::string& from, const std::string& path, TraceFormat format);

/// Why a trial without a trace has none, and which trials of its sweep have one: a sentence.
std::string no_trace_text(const store::Store& store, const store::TrialRow& trial);

}  // namespace moetune::sweeps

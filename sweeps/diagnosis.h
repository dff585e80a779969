// What moetune diagnose says of a run: from the traces of its ranks, as JSON and as text.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/spec/hardware_spec.h"
#include "profiler/analysis/imported_wall.h"
#include "profiler/analysis/trace_windows.h"
#include "profiler/imported_trace.h"

namespace moetune::sweeps {

/// One window of one rank, measured.
struct DiagnosedWindow {
  std::string name;
  profiler::WindowKind kind = profiler::WindowKind::whole;
  profiler::WindowFigures figures;
  int64_t end_ns = 0;  ///< on the clock of its trace
};

struct Diagnosis {
  std::vector<profiler::ImportedTrace> traces;
  std::vector<std::vector<DiagnosedWindow>> windows;  ///< by trace, in their order
  profiler::ImportedWall wall;
};

/// Reads the traces in the order they are named. Compute is set against `hardware`, or against the
/// shipped file of the device that the traces name; `memory` is what logs say of the fullest rank,
/// as far as they do (memory_of). Throws base::UsageError, which names the file,
/// for what cannot be read, and where none of them has any device work.
Diagnosis diagnose_traces(const std::vector<std::string>& paths,
                          const spec::HardwareSpec* hardware = nullptr,
                          const profiler::MemoryFacts& memory = {});
/// The same of files that lie in a folder of a run: what cannot be read or has no device work is
/// left out with a sentence in `notes`, of two traces of one rank or two copies the second, and
/// traces of other recorders than the one with most. May be empty.
Diagnosis diagnose_found_traces(const std::vector<std::string>& paths,
                                std::vector<std::string>& notes,
                                const spec::HardwareSpec* hardware = nullptr,
                                const profiler::MemoryFacts& memory = {});

/// Adds the first five of these sentences, one a file, to the notes, and how many more there are.
void add_left_out(const std::vector<std::string>& left_out, std::vector<std::string>& notes);

/// A window that is shown. For a single trace these are all windows but those by host time, for
/// several traces one each. Points into the diagnosis.
struct ShownWindow {
  const profiler::ImportedTrace* trace = nullptr;
  const DiagnosedWindow* window = nullptr;
};
std::vector<ShownWindow> shown_windows(const Diagnosis& diagnosis);
/// The number of a trace's rank; "?": not known.
std::string rank_text(const profiler::ImportedTrace& trace);
/// Sentences on what the traces lack, each once, prefixed with its file.
std::vector<std::string> trace_notes(const Diagnosis& diagnosis);
/// From step to step, by trace; empty of a trace with fewer than two.
std::vector<std::vector<double>> step_times_s(const Diagnosis& diagnosis);
/// Their median over all ranks; none where no trace has two steps.
std::optional<double> step_time_s(const Diagnosis& diagnosis);
/// The evidence of a wall, a sentence each.
std::vector<std::string> evidence_texts(const profiler::ImportedWall& wall);
/// The same, with the steps that sums of time are over.
std::vector<std::string> evidence_texts(const Diagnosis& diagnosis);

nlohmann::json to_json(const Diagnosis& diagnosis);
/// `width`: of the terminal, empty where it is none.
/// The windows, and what the traces lack.
std::string windows_text(const Diagnosis& diagnosis, std::optional<size_t> width);
/// The wall with its evidence.
std::string wall_text(const Diagnosis& diagnosis);

}  // namespace moetune::sweeps

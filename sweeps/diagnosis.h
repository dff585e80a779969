// What moetune diagnose says of a run: from the traces of its ranks, as JSON and as text.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "profiler/analysis/imported_wall.h"
#include "profiler/analysis/trace_windows.h"
#include "profiler/imported_trace.h"

namespace moetune::sweeps {

/// One window of one rank, measured.
struct DiagnosedWindow {
  std::string name;
  profiler::WindowKind kind = profiler::WindowKind::whole;
  profiler::WindowFigures figures;
};

struct Diagnosis {
  std::vector<profiler::ImportedTrace> traces;
  std::vector<std::vector<DiagnosedWindow>> windows;  ///< by trace, in their order
  profiler::ImportedWall wall;
};

/// Reads the traces in the order they are named. Throws base::UsageError, which names the file, for
/// what cannot be read, and where none of them has any device work.
Diagnosis diagnose_traces(const std::vector<std::string>& paths);

nlohmann::json to_json(const Diagnosis& diagnosis);
/// `width`: of the terminal, empty where it is none.
std::string diagnosis_text(const Diagnosis& diagnosis, std::optional<size_t> width);

}  // namespace moetune::sweeps

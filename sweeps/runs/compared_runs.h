// Two runs side by side: what moved, by how much, and whether steps of one run differ as much among
// themselves.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "profiler/analysis/stats.h"
#include "profiler/analysis/trace_windows.h"
#include "sweeps/runs/compared_settings.h"
#include "sweeps/runs/diagnosed_run.h"

namespace moetune::sweeps {

/// One figure of both runs. Each value is of one step (the mean over its ranks), or of the run.
struct ComparedFigure {
  std::string name;  ///< "step_time_s", "exposed_comm_us", or a kernel's name
  std::string unit;  ///< s, us, bytes, tokens/s, TFLOP/s or empty
  bool is_kernel = false;
  profiler::MedianInterval before;
  profiler::MedianInterval after;
  /// after / before - 1; none where before is 0.
  std::optional<double> change_ratio;
  /// The intervals lie apart; none where a run has fewer than three steps.
  std::optional<bool> is_beyond_noise;
};

struct RunComparison {
  std::vector<ComparedFigure> figures;  ///< in a fixed order
  std::vector<ComparedFigure> kernels;  ///< a step, what moved most first
  /// Where both have traces: the windows that stand for a step in both.
  profiler::WindowKind window_kind = profiler::WindowKind::step_by_launch;
  /// Nothing where the configuration of a run is not known.
  std::vector<ComparedSetting> settings;
  std::vector<std::string> notes;
  WallInShort wall_before;
  WallInShort wall_after;
};

/// Figures that only one of the runs has are left out. Throws base::UsageError where they share
/// none and no settings that differ are known.
RunComparison compare_runs(const RunDiagnosis& before, const RunDiagnosis& after);

nlohmann::json to_json(const RunComparison& comparison);
std::string comparison_text(const RunComparison& comparison, std::optional<size_t> width);

}  // namespace moetune::sweeps

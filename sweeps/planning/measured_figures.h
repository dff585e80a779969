// Runs that were measured on one's own cluster: what a plan or an estimate of the very same run
// says in the place of a prediction.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/spec/source.h"
#include "tuner/planner/run.h"

namespace moetune::sweeps {

struct MeasuredFigure {
  std::string run;          ///< run_identity
  int64_t num_runs = 1;     ///< that are the same
  double tokens_per_s = 0;  ///< of one device, the mean
  double low = 0;           ///< 5 % below the slowest
  double high = 0;          ///< 5 % above the fastest
  /// Of one run, with a larger vocabulary on no more memory of a device than those before it. 0:
  /// unknown.
  int64_t vocab_size = 0;
  int64_t memory_bytes = 0;
};

/// Equal for runs of equal models (vocabulary apart), devices (their memory apart), batches,
/// choices, stages and schedules, of Megatron-Core or of torchtitan. The environment is left out,
/// as logs do not echo it, and so is what no knob stands for.
std::string run_identity(const tuner::planner::PlanRun& run);

/// Adds a measured run, tokens a second of one device, to those that are the same.
void add_measured(const tuner::planner::PlanRun& run, double tokens_per_s,
                  std::vector<MeasuredFigure>& figures);

/// What was measured of this very run, or null: also for a stated load of the busiest rank, as a
/// measured run has its own.
const MeasuredFigure* measured_of(const tuner::planner::PlanRun& run,
                                  const std::vector<MeasuredFigure>& figures);

/// Whether what was measured shows that the run fits where so much of a device may be used: with no
/// larger vocabulary, on no more memory.
bool shows_that_it_fits(const MeasuredFigure& figure, const tuner::planner::PlanRun& run,
                        double capacity_bytes);

nlohmann::json to_json(const std::vector<MeasuredFigure>& figures);
/// Throws base::UsageError where a figure is out of range.
std::vector<MeasuredFigure> figures_from_json(const nlohmann::json& document,
                                              const spec::Source& source);

}  // namespace moetune::sweeps

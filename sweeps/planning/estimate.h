// What one run will need and how fast it will be, with intervals and how sure that is.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "sweeps/planning/published_rows.h"
#include "sweeps/planning/rates_file.h"
#include "tuner/planner/memory_profile.h"
#include "tuner/planner/step_time.h"

namespace moetune::sweeps {

struct Interval {
  double value = 0;
  double low = 0;
  double high = 0;
};

enum class Verdict : unsigned char { fits, tight, oom };
const char* name_of(Verdict verdict);

struct RunEstimate {
  tuner::planner::MemoryPrediction memory;
  int stage = 0;  ///< whose memory is told
  Interval allocated_bytes;
  Interval reserved_bytes;
  Verdict verdict = Verdict::fits;
  tuner::planner::StepTime step;
  Interval step_seconds;
  Interval tflops;
  Interval tokens_per_s;
  std::string grade;          ///< analytic, calibrated
  double load_that_fits = 0;  ///< largest load of the busiest rank that fits; 0: none does
};

/// What is known beside the run.
struct EstimateContext {
  double months = 0;
  int num_unknown = 0;  ///< knobs that the source leaves open
  int stage = -1;       ///< whose memory is asked for; -1: the worst
  bool is_load_stated = true;
  bool is_memory_open = false;  ///< so that it may need less
  double gflop_per_token = 0;   ///< as the source counts; 0: the usual way
};

RunEstimate estimate_run(const tuner::planner::PlanRun& run, const Calibration& calibration,
                         const EstimateContext& context);

/// A term of a device's memory.
struct MemoryTerm {
  const char* key;    ///< in JSON
  const char* words;  ///< for people
  double tuner::planner::MemoryParts::*bytes;
};
/// In the order in which they are told.
std::span<const MemoryTerm> memory_terms();

/// Keys of an estimate, for JSON.
nlohmann::json to_json(const RunEstimate& estimate);

/// {"rows": [...], "summary": {...}} of all rows; see docs/formats.md.
nlohmann::json estimate_rows(const std::vector<PublishedRow>& rows, const Calibration& calibration);

}  // namespace moetune::sweeps

// What one run will need and how fast it will be, with intervals and how sure that is.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sweeps/planning/interval.h"
#include "sweeps/planning/published_rows.h"
#include "sweeps/planning/rates_file.h"
#include "tuner/planner/memory_evidence.h"
#include "tuner/planner/step_time.h"

namespace moetune::sweeps {

/// Loads of the busiest rank's experts are looked at up to this one.
inline constexpr double kMostLoad = 16;
/// The largest load up to kMostLoad that fits, to a hundredth; 0: not even 1 does.
double largest_load(const std::function<bool(double load)>& fits);
/// Of RunEstimate::load_that_fits, for people: "1.37", "16 and more"; "-" of 0.
std::string load_text(double load);

enum class Verdict : unsigned char { fits, tight, oom };
const char* name_of(Verdict verdict);

struct RunEstimate {
  tuner::planner::MemoryPrediction memory;
  int stage = 0;  ///< pipeline stage that the memory is of
  /// What that is made of, and what is needed beside it.
  std::vector<tuner::planner::LineBytes> memory_lines;
  int64_t rank = 0;  ///< the first of that stage
  Interval allocated_bytes;
  Interval reserved_bytes;
  Verdict verdict = Verdict::fits;
  /// Of what its source leaves open, as "fsdp megatron": the choices that keep a run from being
  /// impossible which is so as it is priced.
  std::vector<std::string> needed_choices;
  tuner::planner::StepTime step;
  Interval step_seconds;
  Interval tflops;
  Interval tokens_per_s;
  double predicted_tokens_per_s = 0;  ///< also where the above was measured
  std::string grade;                  ///< analytic, calibrated, measured
  std::optional<int64_t> num_runs;    ///< num_runs_behind; of torchtitan 0
  /// Largest load of the busiest rank that fits, up to kMostLoad; 0: none does.
  double load_that_fits = 0;
  /// What "fits" keeps of a device beside the worst rank's peak: fragments, CUDA's context and
  /// communicators.
  double margin_bytes = 0;
  double left_bytes = 0;  ///< of the device, behind peak and margin; negative: it lacks as many
};

/// What is known beside the run.
struct EstimateContext {
  double months = 0;    ///< as PublishedRow::months
  int num_unknown = 0;  ///< knobs that the source does not state
  /// What ran is not, or not known to be, built on Megatron-Core, as which it is priced.
  bool is_of_other_engine = false;
  int stage = -1;              ///< pipeline stage to report; -1: the one with the largest peak
  bool is_load_stated = true;  ///< false: widen the memory interval, routing is unknown
  double gflop_per_token = 0;  ///< by the source's own count; 0: training_flops_per_token
  /// The run with the leanest of what its source leaves open, in several ways; none: it leaves
  /// nothing open that memory depends on.
  std::span<const tuner::planner::PlanRun> leaner;
  double memory_ratio = 1;  ///< share of a device's memory that may be used
};

/// Of a run with this predicted peak on a device of which so much may be used (0: without limit).
/// What is predicted above never fits. It is impossible only where the low end of what the leanest
/// choice of all that is left open needs (`leanest_bytes`; nothing open: `peak_bytes`) is above,
/// too. Torchtitan's interval is wide: its runs are tight wherever the capacity lies within it.
Verdict verdict_of(const tuner::planner::PlanRun& run, double peak_bytes, double leanest_bytes,
                   double capacity_bytes);
/// The same of a run that leaves nothing open.
inline Verdict verdict_of(const tuner::planner::PlanRun& run, double peak_bytes,
                          double capacity_bytes) {
  return verdict_of(run, peak_bytes, peak_bytes, capacity_bytes);
}

/// What load of the busiest experts is assumed: for runs of models with experts.
std::string routing_assumption(double load);

/// Of RunEstimate::load_that_fits, behind a verdict: "; fits up to an imbalance of 1.37".
std::string fits_up_to(double load);
/// What a run bears, for people, behind its verdict; empty without experts.
std::string load_words(const tuner::planner::PlanRun& run, const RunEstimate& estimate);
/// The margin of a verdict, for people: what it is for, and what is left.
std::string margin_text(const RunEstimate& estimate);
/// Measured runs on such devices in such a precision that the rates were fitted to. None where the
/// calibration does not tell its cases.
std::optional<int64_t> num_runs_behind(const Calibration& calibration,
                                       const spec::HardwareSpec& hardware,
                                       spec::PrecisionRecipe precision);
/// What the rates stand on, for people: "294 measured runs, of them on H200 in bf16: 0". Of
/// torchtitan, where `is_of_megatron` is false: that none is.
std::string rates_text(const Calibration& calibration, const spec::HardwareSpec& hardware,
                       spec::PrecisionRecipe precision, bool is_of_megatron = true);

RunEstimate estimate_run(const tuner::planner::PlanRun& run, const Calibration& calibration,
                         const EstimateContext& context);

/// A run of a row that can be priced, with what the row leaves open. `calibration`: of all cases.
RunEstimate estimate_row(const PublishedRow& row, const Calibration& calibration);

/// Tokens a second of a device, as RunEstimate has them. `months`: as PublishedRow::months.
double predicted_tokens_per_s(const tuner::planner::PlanRun& run, const Calibration& calibration,
                              double months);

/// Predicted tokens a second of one device.
struct Speed {
  Interval tokens_per_s;
  std::string grade;  ///< analytic, calibrated
};
/// What a prediction of so many tokens a second comes with, of a run that leaves nothing open. Runs
/// like it that were measured do not count.
Speed predicted_speed(const tuner::planner::PlanRun& run, const Calibration& calibration,
                      double tokens_per_s);

/// The first rank of a pipeline stage. Ranks are numbered tensor, context, data, pipeline.
int64_t first_rank_of(const spec::PlanKnobs& knobs, int stage);

/// The parts of a peak for people, a line each: bytes, and the terms with how each is known.
std::string memory_text(const RunEstimate& estimate);

/// Keys of an estimate, for JSON.
nlohmann::json to_json(const RunEstimate& estimate);
/// The terms that an estimate's memory_lines name: how much each is, and how that is known.
nlohmann::json memory_terms_json();

/// {"rows": [...], "summary": {...}} of all rows; see docs/formats.md.
nlohmann::json estimate_rows(const std::vector<PublishedRow>& rows, const Calibration& calibration);

}  // namespace moetune::sweeps

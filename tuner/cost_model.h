// Predicts the time of a training step: plays the programs of one rank per pipeline stage, without
// running anything.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/spec/trial_spec.h"
#include "tuner/calibration.h"
#include "tuner/compiled_step.h"
#include "tuner/strategy.h"

namespace moetune::tuner {

struct CostEstimate {
  int64_t step_ns = 0;
  Grade grade = Grade::analytic;
  /// By base::name_of(StepPart): mean over stages, adds up to step_ns.
  std::map<std::string, int64_t> parts_ns;
};

/// A played step with what each stage did in it.
struct PlayedStep {
  CostEstimate estimate;
  /// By stage, as CostEstimate::parts_ns; each adds up to the step.
  std::vector<std::map<std::string, int64_t>> stage_parts_ns;
  std::vector<profiler::StepTrace> traces;  ///< of one rank of each stage
  int64_t num_records = 0;                  ///< of all of these ranks
  int64_t num_micro_batches = 0;
  /// There were more records than asked for: the traces hold the first, the middle and the last
  /// micro-batch and what belongs to none.
  bool is_thinned = false;
};

/// The played step with op prices from `calibration`, the experts' rows being those that the
/// busiest ranks received in `rows`' profile; balanced without one. The spec must satisfy its
/// constraints.
CostEstimate play_step(const spec::TrialSpec& spec, const Calibration& calibration,
                       const ReceivedRows& rows = {});
/// `compiled`: of the same spec.
CostEstimate play_step(const spec::TrialSpec& spec, const CompiledStep& compiled,
                       const Calibration& calibration);

/// How long operations and transfers last, in the place of what machine and calibration say.
struct PlayedTimes {
  plan::TransferOf transfer_of{};
  /// Of an operation alone on the device; unset: as calibrated.
  std::function<int64_t(const plan::Position& at, const plan::Instr& instr,
                        const plan::OpCost& cost)>
      op_of{};
};

/// The same with its records. Time and parts are those of the whole step, however many records are
/// kept. `most_records`: of all stages together, 0: none are wanted.
PlayedStep play_traced(const spec::TrialSpec& spec, const CompiledStep& compiled,
                       const Calibration& calibration, int64_t most_records,
                       const PlayedTimes& times = {});

/// The played step, corrected by what finished trials took. Deterministic given the trials added.
class CostModel {
 public:
  /// Learns from a finished trial; those that did not end ok teach nothing.
  void add(const spec::TrialSpec& spec, const TrialOutcome& outcome, const ReceivedRows& rows = {});
  [[nodiscard]] CostEstimate estimate(const spec::TrialSpec& spec) const;
  [[nodiscard]] CostEstimate estimate(const spec::TrialSpec& spec,
                                      const CompiledStep& compiled) const;
  /// Typical error of played steps relative to measured steps once scaled by their median, 0..1;
  /// without trials 1.
  [[nodiscard]] double error_ratio() const { return error_ratio_; }

 private:
  struct Trial {
    spec::TrialSpec spec;
    std::shared_ptr<const CompiledStep> compiled;  ///< played again with each trial that is added
    int64_t step_ns = 0;
    double ratio = 1;  ///< measured over replayed
  };
  [[nodiscard]] double correction(const spec::Knobs& knobs) const;

  Calibration calibration_;
  std::vector<Trial> trials_;
  double median_ratio_ = 1;
  double error_ratio_ = 1;
};

}  // namespace moetune::tuner

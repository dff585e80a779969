// The programs that predictions of a trial are made from: compiled once, read by the memory model
// and the cost model, and played again each time the prices of its operations are known better.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/plan/planned.h"
#include "engine/plan/player.h"
#include "engine/plan/program.h"
#include "engine/spec/trial_spec.h"
#include "tuner/busiest_rows.h"

namespace moetune::tuner {

/// One rank of each pipeline stage, the first of those whose attention sees most, with as many rows
/// as the busiest one receives.
class CompiledStep {
 public:
  /// The spec must satisfy its constraints. Without a profile the busiest rank's experts receive
  /// `load` times their share, at most all rows of the group; 1: balanced.
  explicit CompiledStep(const spec::TrialSpec& spec, const ReceivedRows& rows = {}, double load = 1,
                        const plan::Planned& planned = {});

  [[nodiscard]] const std::vector<plan::StepProgram>& stages() const { return stages_; }
  /// To be played; they refer to this object.
  [[nodiscard]] std::vector<plan::PlayedRank> ranks() const;
  /// By label of an op, mean over its launches: plan::OpCost::row_flops, which no trial measures.
  [[nodiscard]] std::map<std::string, double> row_flops() const;

 private:
  std::vector<plan::StepProgram> stages_;
  std::vector<BusiestBindings> bindings_;
};

}  // namespace moetune::tuner

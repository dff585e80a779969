// A cluster that exists as a hardware file: trials on it are played, and told as if they had been
// measured. The search is told of another file.
#pragma once

#include <algorithm>
#include <map>
#include <string>

#include "engine/plan/ops.h"
#include "engine/plan/player.h"
#include "engine/spec/trial_spec.h"
#include "kernels/base/step_parts.h"
#include "tuner/compiled_step.h"
#include "tuner/cost_model.h"
#include "tuner/walls.h"

namespace moetune::tuner::testing {

/// Step time, where it went, and what each operation took. `truth`: the trial on the hardware that
/// is there.
inline void tell_played_step(const spec::TrialSpec& truth, const CompiledStep& compiled,
                             TrialOutcome& outcome) {
  const CostEstimate step = play_step(truth, compiled, {});
  outcome.status = spec::TrialStatus::ok;
  outcome.step_ns = outcome.step_low_ns = outcome.step_high_ns = step.step_ns;
  for (const auto& [name, ns] : step.parts_ns) {
    const double share = static_cast<double>(ns) / static_cast<double>(step.step_ns);
    outcome.shares[name] = share;
  }
  outcome.wall = read_walls(outcome).binding;
  plan::play(truth.hardware, compiled.ranks(),
             [&](const plan::Position& at, const plan::Instr& instr, const plan::OpCost& cost) {
               if (instr.verb == plan::Verb::host) return plan::host_work_ns(cost);
               const int64_t ns = plan::slowed_ns(truth.hardware,
                                                  plan::roofline_ns(truth.hardware, instr.op, cost),
                                                  at.num_collectives);
               TrialOutcome::OpTime& time = outcome.op_times[plan::op_label(instr.op, instr.pass)];
               ++time.count;
               time.flops += cost.flops;
               time.bytes += cost.bytes;
               time.duration_ns += ns;
               return ns;
             });
}

}  // namespace moetune::tuner::testing

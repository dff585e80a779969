// See compiled_step.h.
#include "tuner/compiled_step.h"

#include "engine/plan/compile.h"

namespace moetune::tuner {

CompiledStep::CompiledStep(const spec::TrialSpec& spec, const ReceivedRows& rows) {
  const plan::Layout layout = plan::layout_of(spec.knobs);
  for (int stage = 0; stage < layout.pp; ++stage) {
    const int rank = stage * layout.stage_size();
    stages_.push_back(plan::compile(spec, rank));
    bindings_.emplace_back(spec, stages_.back(), rows);
  }
}

std::vector<plan::PlayedRank> CompiledStep::ranks() const {
  std::vector<plan::PlayedRank> ranks;
  for (size_t i = 0; i < stages_.size(); ++i) ranks.push_back({&stages_[i], &bindings_[i]});
  return ranks;
}

}  // namespace moetune::tuner

#include "tuner/compiled_step.h"

#include <utility>

#include "engine/plan/compile.h"

namespace moetune::tuner {

CompiledStep::CompiledStep(const spec::TrialSpec& spec, const ReceivedRows& rows, double load,
                           const plan::Planned& planned) {
  const plan::Layout layout = plan::layout_of(spec.knobs);
  const int place = plan::busiest_in_attention(spec);
  for (int stage = 0; stage < layout.pp; ++stage) {
    const int rank = stage * layout.stage_size() + place;
    stages_.push_back(plan::compile(spec, rank, planned));
    bindings_.emplace_back(spec, stages_.back(), rows, load);
  }
}

std::vector<plan::PlayedRank> CompiledStep::ranks() const {
  std::vector<plan::PlayedRank> ranks;
  for (size_t i = 0; i < stages_.size(); ++i) ranks.push_back({&stages_[i], &bindings_[i]});
  return ranks;
}

std::map<std::string, double> CompiledStep::row_flops() const {
  std::map<std::string, std::pair<double, double>> sums;  // and how many
  for (const plan::StepProgram& stage : stages_) {
    plan::for_each(stage, [&](const plan::Item&, const plan::Segment&, const plan::Instr& instr) {
      if (instr.verb != plan::Verb::op) return;
      auto& [sum, count] = sums[plan::op_label(instr.op, instr.pass)];
      sum += static_cast<double>(instr.cost.row_flops);
      ++count;
    });
  }
  std::map<std::string, double> means;
  for (const auto& [label, sum] : sums) means[label] = sum.first / sum.second;
  return means;
}

}  // namespace moetune::tuner

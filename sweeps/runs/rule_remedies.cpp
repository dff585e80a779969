// What a framework's rule asks for, where the words of its assertion name one setting: a row a
// rule.
#include <algorithm>
#include <array>

#include "sweeps/runs/remedies.h"

namespace moetune::sweeps {

namespace {

namespace dialects = spec::dialects;
using spec::PlanKnobs;

struct RuleRemedyRow {
  std::string_view rule;
  std::array<std::string_view, 2> words;  ///< all of them are in the assertion; empty: no more
  bool PlanKnobs::*knob;                  ///< that has to be on
  std::string_view why;
};

constexpr RuleRemedyRow kRuleRemedies[] = {
    {"sequence_parallel_with_experts",
     {"equence parallelism is required", ""},
     &PlanKnobs::sequence_parallel,
     "Experts with tensor parallelism need sequence parallelism."},
    {"sequence_parallel_with_experts",
     {"equence parallelism must be used", ""},
     &PlanKnobs::sequence_parallel,
     "Experts with tensor parallelism need sequence parallelism."},
    {"sequence_parallel_with_overlap",
     {"only when sequence parallelism is enabled", ""},
     &PlanKnobs::sequence_parallel,
     "The overlap of tensor parallelism needs sequence parallelism."},
    {"distributed_optimizer_with_overlap",
     {"overlap-param-gather only supported", "distributed optimizer"},
     &PlanKnobs::distributed_optimizer,
     "Only a distributed optimizer gathers weights."},
    {"overlap_of_gradients_too",
     {"overlap-param-gather with --overlap-grad-reduce", ""},
     &PlanKnobs::overlap_grad_reduce,
     "Weights are gathered in the background only where gradients are reduced so."},
};

}  // namespace

std::vector<Remedy> remedies_of_rule(std::string_view sentence, const RunToMend& run) {
  const auto row = std::ranges::find_if(kRuleRemedies, [&](const RuleRemedyRow& candidate) {
    return std::ranges::all_of(candidate.words, [&](std::string_view words) {
      return sentence.find(words) != std::string_view::npos;
    });
  });
  if (row == std::end(kRuleRemedies)) return {};
  // Whatever is known of the configuration: the assertion says that it is off.
  dialects::RunConfig before = run.config.value_or(dialects::RunConfig{});
  before.knobs.*row->knob = false;
  dialects::RunConfig after = before;
  after.knobs.*row->knob = true;
  Remedy remedy;
  remedy.knobs = after.knobs;
  for (const dialects::SettingChange& change : dialects::changes_of_text(before, after)) {
    remedy.flags.push_back(dialects::text_of(change, before.dialect));
  }
  if (remedy.flags.empty()) return {};
  remedy.rule = row->rule;
  remedy.why = row->why;
  remedy.is_for_failure = true;
  return {remedy};
}

}  // namespace moetune::sweeps

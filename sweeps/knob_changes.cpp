// Compares stored knobs by name, as another version may have stored others, and shortens sizes to
// dp, ep and pp.
#include "sweeps/knob_changes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "engine/spec/knobs.h"
#include "kernels/base/error.h"
#include "reports/engine_trial.h"
#include "tuner/judgement.h"

namespace moetune::sweeps {
namespace {

/// As in "dp 4, micro-batch 2".
std::string label_of(const std::string& knob) {
  const spec::KnobRow* row = spec::find_knob(knob);
  for (const spec::LayoutSize& size : spec::layout_sizes()) {
    if (row != nullptr && row->member == spec::KnobMember(size.member)) return size.name;
  }
  return knob == "micro_batch_size" ? "micro-batch" : knob;
}

}  // namespace

std::vector<KnobChange> knob_changes(const store::TrialRow& before, const store::TrialRow& after) {
  std::vector<KnobChange> changes;
  for (const store::NamedText& knob : after.knobs) {
    const auto was = std::ranges::find(before.knobs, knob.name, &store::NamedText::name);
    if (was == before.knobs.end()) {
      // A setting of another engine is stored where it was set.
      if (reports::is_of_another_engine(after)) changes.push_back({knob.name, "unset", knob.value});
      continue;
    }
    if (was->value == knob.value) continue;
    changes.push_back({knob.name, was->value, knob.value});
  }
  return changes;
}

std::string change_text(const std::vector<KnobChange>& changes) {
  std::vector<std::string> parts;
  for (const auto& [knob, before, after] : changes) {
    parts.push_back(fmt::format("{} {} -> {}", label_of(knob), before, after));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string values_text(const std::vector<KnobChange>& changes) {
  std::vector<std::string> parts;
  for (const KnobChange& change : changes) {
    parts.push_back(fmt::format("{} {}", label_of(change.knob), change.after));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string configuration_text(const store::TrialRow& trial) {
  if (reports::is_of_another_engine(trial)) {
    std::vector<std::string> parts;
    for (const store::NamedText& knob : trial.knobs) {
      parts.push_back(fmt::format("{} {}", knob.name, knob.value));
    }
    return fmt::format("{}", fmt::join(parts, ", "));
  }
  spec::Knobs knobs;
  try {
    for (const store::NamedText& knob : trial.knobs) {
      const spec::KnobRow* row = spec::find_knob(knob.name);
      if (row != nullptr) spec::set_knob(knobs, *row, knob.value);
    }
  } catch (const base::UsageError&) {
    return {};  // a foreign hand's
  }
  return tuner::describe(knobs);
}

}  // namespace moetune::sweeps

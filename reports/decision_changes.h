// What a decision is about: all that its trial changed, where the store's column has room for the
// first of several.
#pragma once

#include <string>
#include <vector>

#include "profiler/store/store.h"
#include "reports/context.h"

namespace moetune::reports {

/// Against the trial that it was compared with. A layout of our own engine is one change.
std::vector<KnobChange> changes_of(const store::DecisionRow& decision);

/// "micro_batch_size 2 → 1, tp 1 → 2"; the remedy where no knob is named. Plain text.
std::string change_text(const store::DecisionRow& decision);
/// The same, where what is spelled out in full (a layout) has its new value alone.
std::string short_change_text(const store::DecisionRow& decision);
/// "micro_batch_size, tp"; the same.
std::string changed_names(const store::DecisionRow& decision);

}  // namespace moetune::reports

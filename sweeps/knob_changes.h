// What differs between two stored trials, in few words.
#pragma once

#include <string>
#include <vector>

#include "profiler/store/store.h"

namespace moetune::sweeps {

/// A knob that two trials set differently.
struct KnobChange {
  std::string knob;  ///< name of its row in the knob table
  std::string before;
  std::string after;
};
/// In the order of the table. A knob that one of them lacks (it is of an older moetune) is left
/// out.
std::vector<KnobChange> knob_changes(const store::TrialRow& before, const store::TrialRow& after);

/// "ep 1 -> 2, recompute norm -> none"; sizes of the layout by their short names.
std::string change_text(const std::vector<KnobChange>& changes);
/// What it is after the changes: "ep 2, recompute none".
std::string values_text(const std::vector<KnobChange>& changes);

/// The stored configuration as messages of a sweep name it: "dp 4, cp 1, ...". Empty where its
/// knobs cannot be read.
std::string configuration_text(const store::TrialRow& trial);

}  // namespace moetune::sweeps

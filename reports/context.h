// What several sections need to know about a sweep, read and worked out once: the trials, and which
// of them is the winner, the starting point, the first that fitted, and the ones to show in depth.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "profiler/store/store.h"
#include "reports/engine_trial.h"
#include "reports/hunts.h"

namespace moetune::reports {

/// What is shown of a note on a trace: a few sentences.
constexpr size_t kMostNoteBytes = 600;
/// Trials that are shown in depth, with memory and budget.
constexpr size_t kMostDeep = 60;

struct Context {
  bool has_sweep = true;    ///< false: the database holds hunts only, and the page is about them
  store::SweepRow sweep;    ///< id -1: none
  std::vector<Hunt> hunts;  ///< of the whole database, the newest first
  int64_t num_hunts = 0;    ///< with those that are not shown
  std::vector<store::TrialRow> trials;  ///< in order
  std::vector<store::DecisionRow> decisions;
  std::vector<store::EnvironmentRow> environments;  ///< that the sweep has run in, the latest last
  std::map<int64_t, std::vector<store::MeasurementRow>> measurements;  ///< by trial and attempt
  std::string folder;  ///< in which the sweep was started; empty: not known. Never on the page
  /// By trial: the texts kDeviceMemoryText and kTraceNoteText, one per process.
  std::map<int64_t, std::vector<std::string>> device_memory;
  std::map<int64_t, std::vector<std::string>> trace_notes;
  std::map<int64_t, std::string> titles;    ///< by trial: what it ran under
  std::map<int64_t, std::string> verdicts;  ///< by trial: the last judgement of it
  std::set<int64_t> kept;                   ///< trials that a decision has kept
  /// ReportOptions::flags of the trial that is shown in the verdict.
  std::string flags;
  EngineRun engine_run;         ///< of the same trial
  bool is_forced = false;       ///< experts of the shown trial were forced to be balanced
  bool waits_for_tell = false;  ///< the sweep is not running, and somebody else runs its trials
  /// Knobs that do not have the same value in all trials, in the knob table's order.
  std::vector<std::string> varying_knobs;

  /// Positions in `trials`: the one that is shown, the sweep's landmarks, what was kept (the latest
  /// first), then the fastest, then the others (the latest first).
  std::vector<size_t> by_importance;
  std::unordered_map<int64_t, size_t> positions;  ///< in `trials`, by id

  /// Positions in `trials` as the sweep says them, -1: there is none.
  int winner = -1;     ///< the sweep's own, where it ended well; see is_refused
  int shown = -1;      ///< the run whose figures are the verdict: the winner, or the one asked for
  int baseline = -1;   ///< the user's starting configuration
  int first_fit = -1;  ///< the first configuration that fitted
  int final_run = -1;  ///< the run whose loss curve is shown
  int traced = -1;     ///< the run whose timeline is shown: the shown one's knobs, with a trace
  bool is_refused = false;  ///< the winner did not pass its validation

  [[nodiscard]] const store::TrialRow* at(int position) const {
    return position < 0 ? nullptr : &trials[static_cast<size_t>(position)];
  }
  [[nodiscard]] const store::TrialRow* by_id(int64_t trial_id) const;
  /// The first of by_importance, in the order of the trials.
  [[nodiscard]] std::vector<size_t> most_telling(size_t most) const;
  /// False for a trial that was asked for and is another than the sweep's winner.
  [[nodiscard]] bool is_winner(const store::TrialRow& trial) const;
  /// The same of a winner that its validation has not refused: only that is called the winner.
  [[nodiscard]] bool has_won(const store::TrialRow& trial) const;
  /// "the winner", "trial #3 (not validated)", else "trial #12". Plain text.
  [[nodiscard]] std::string name_of(const store::TrialRow& trial) const;
  /// Null where nobody knows where it was made.
  [[nodiscard]] const store::EnvironmentRow* environment_of(const store::MeasurementRow& run) const;
  /// The measurements that a trial's numbers come from.
  [[nodiscard]] std::vector<store::MeasurementRow> counted_runs(const store::TrialRow& trial) const;
};

/// True for the one-rank run that only gives the losses to match: no configuration to compare with.
bool is_reference(const store::TrialRow& trial);

/// Value of a knob, empty when the trial has none of that name.
std::string knob_of(const store::TrialRow& trial, const std::string& name);

/// A text of the trial's spec, such as "clock"; empty when the spec has none of that name.
std::string spec_text(const store::TrialRow& trial, const char* key);

/// The device's memory in bytes, as the trial's own spec says; 0: unlimited or not known.
int64_t device_bytes_of(const store::TrialRow& trial);

/// True where one rank ran alone and what the others would have sent was made up.
bool is_fake_world(const store::TrialRow& trial);

/// One knob that two trials differ in.
struct KnobChange {
  std::string name;
  std::string before;
  std::string after;
};
std::vector<KnobChange> knob_changes(const store::TrialRow& from, const store::TrialRow& to);

/// The sizes of the process grid, their usual short names, and what they count in plain words.
struct LayoutSize {
  const char* knob;
  const char* label;
  bool is_always_told;  ///< also where it is 1
  const char* words;
};
inline constexpr LayoutSize kLayoutSizes[] = {
    {"tensor_model_parallel_size", "tp", false, "tensor parallel: ranks that share each matrix"},
    {"data_parallel_size", "dp", true, "data parallel: copies of the model"},
    {"context_parallel_size", "cp", true, "context parallel: ranks that share a sequence"},
    {"expert_model_parallel_size", "ep", true, "expert parallel: ranks that share out the experts"},
    {"expert_tensor_parallel_size", "etp", false,
     "expert tensor parallel: ranks that share each expert"},
    {"pipeline_model_parallel_size", "pp", true, "pipeline parallel: stages of layers"},
    {"virtual_pipeline_model_parallel_size", "vpp", false,
     "virtual pipeline: groups of layers per stage"}};

/// "dp 4 · cp 1 · ep 4 · pp 2" when the trial has these knobs, else empty.
std::string layout_of(const store::TrialRow& trial);

/// Reads the sweep (0: the last one, if there is any) and works out the rest. `trial` (id or hash
/// prefix) is shown in the winner's place when given. Throws base::UsageError when the database
/// holds no such sweep or trial, or neither a sweep nor a hunt.
Context read_context(const store::Store& store, int64_t sweep_id, const std::string& trial);

}  // namespace moetune::reports

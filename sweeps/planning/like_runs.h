// Published runs like the user's: which these are, what they reached, and what lies between them
// and the user's run.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/spec/dialects/run_config.h"
#include "sweeps/planning/change_path.h"
#include "sweeps/planning/estimate.h"
#include "sweeps/planning/published_rows.h"
#include "sweeps/planning/rates_file.h"
#include "tuner/planner/run.h"

namespace moetune::sweeps {

/// What published runs are set beside: a command, or the first plan.
struct LikeQuestion {
  const tuner::planner::PlanRun& run;
  double tokens_per_s = 0;    ///< predicted, of a device; 0: no plan fits, and nothing is compared
  double capacity_bytes = 0;  ///< of a device, that may be used
  std::string machine;        ///< its hardware file, by name or path
  const Calibration& loaded;  ///< of all cases
  const Calibration& of_machine;  ///< the same with what was probed of the machine
  const Calibration& of_case;     ///< the same for the user's case
  /// A command: what lies between it and a published layout is told, in its words where there are.
  bool is_command = false;
  const spec::dialects::RunConfig* words = nullptr;
};

/// What differs between a published run and the user's and is no flag.
struct Condition {
  std::string what;
  std::string from;  ///< of the published run
  std::string to;
  /// Tokens a second and GPU with it over those before it; empty: the run cannot be so on the way,
  /// and what this costs is part of the next ratio.
  std::optional<double> ratio;
  std::string why{};  ///< it cannot; of a ratio: what it holds beside this
};

struct LikeRun {
  PublishedRow row;
  RunEstimate estimate;  ///< of the row as it is stated
  /// From the row to the user's run, each on top of those before it.
  std::vector<Condition> conditions;
  /// Predicted for its layout and choices on the user's devices, sequences and batch; empty: it is
  /// illegal there, or not compared.
  std::optional<double> moved_tokens_per_s;
  std::string broken_rule;  ///< that it breaks there
  std::string rule_text;
  /// Of a command: from it to the row's layout and choices, step by step.
  std::vector<PathStep> path;
  std::vector<KnobGain> changes;   ///< where there is no way: each of them alone
  std::vector<std::string> notes;  ///< what the comparison leaves open
};

/// A row that is not looked at.
struct LeftOutRow {
  std::string id;
  std::string reason;
};

struct LikeRuns {
  std::string file;
  double tokens_per_s = 0;  ///< as of LikeQuestion
  double capacity_bytes = 0;
  bool is_command = false;
  std::vector<LikeRun> runs;  ///< the nearest first, at most three
  size_t num_rows = 0;
  size_t num_like = 0;
  /// In the order of the file, but for those that state what a nearer one states: at the end.
  std::vector<LeftOutRow> left_out;
};

/// Rows with the model's shape and task of a run, on devices of its generation, the nearest first:
/// those on the same devices, then by the length of sequences, precision, number of devices, and
/// the newest software. Of rows that state the same configuration the first. Suspect rows, and what
/// cannot be priced or states no speed, are none; `told` gets their numbers, and what is left out.
std::vector<const PublishedRow*> like_rows(const std::vector<PublishedRow>& rows,
                                           const tuner::planner::PlanRun& run, LikeRuns& told);

/// `file`: where the rows are from.
LikeRuns find_like_runs(const std::vector<PublishedRow>& rows, std::string file,
                        const LikeQuestion& question);

/// Which runs are told and in which order, or that none is like the user's.
std::string like_runs_note(const LikeRuns& like);
/// What a row is: id, devices, sequences, precision, software, source.
std::string like_run_title(const PublishedRow& row);
/// What it reached, beside what is priced for it.
std::string like_run_speed(const LikeRun& run);
/// What the user's run reaches of that; empty: it is not compared.
std::string like_run_share(const LikeRuns& like, const LikeRun& run);
/// What its layout and choices do on the user's devices; empty: not compared.
std::string moved_text(const LikeRuns& like, const LikeRun& run);

std::string to_text(const LikeRuns& like);
/// "published", "published_left_out" and "published_note" of an answer.
void add_like_runs(const LikeRuns& like, nlohmann::json& document);

}  // namespace moetune::sweeps

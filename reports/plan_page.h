// The page of a plan: what it shows, as plain data, and the file made from it. Nothing of it was
// run; every figure is a prediction with its interval.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "profiler/record.h"

namespace moetune::reports {

/// A prediction and where it lies in about nine of ten cases.
struct PlanFigure {
  double value = 0;
  double low = 0;
  double high = 0;
};

/// Of one device, with what the prediction stands on.
struct PlanSpeed {
  PlanFigure tokens_per_s;
  std::string grade;
};

/// One knob that two configurations differ in.
struct PlanDifference {
  std::string knob;
  std::string from;
  std::string to;
};

/// One of the best.
struct PlanRow {
  std::string layout;   ///< "tp 2 cp 1 ..."
  std::string choices;  ///< "recompute ..., FSDP, ..."
  std::vector<PlanDifference> to_first;
  PlanFigure step_ns;
  PlanFigure tflops;        ///< of one device
  PlanFigure tokens_per_s;  ///< of one device
  PlanFigure peak_bytes;    ///< allocated, on the worst rank
  double needed_bytes = 0;  ///< that with pools of graphs and buffers of the dispatcher
  int64_t replicas = 1;
  double load_that_fits = 0;  ///< of the busiest rank's experts over their share; 0: no experts
  std::string load_text;      ///< the same for people: "1.37", "16 and more"
  std::string wall;
  std::string grade;
  std::string why_slower;
};

/// A configuration as a mark: memory against throughput.
struct PlanMark {
  std::string label;
  double needed_bytes = 0;  ///< as of PlanRow
  double tokens_per_s = 0;
  bool fits = false;
};

/// All configurations with the same four large sizes.
struct PlanRegion {
  int32_t tp = 1;
  int32_t cp = 1;
  int32_t ep = 1;
  int32_t pp = 1;
  int64_t num_legal = 0;
  int64_t num_fit = 0;
  std::optional<PlanMark> best;  ///< the fastest that fits, else that with the least memory
  std::string reason;            ///< where nothing is legal
};

/// Memory of one pipeline stage at its worst moment.
struct PlanStage {
  std::string moment;
  std::vector<double> bytes;   ///< by PlanPage::memory_terms
  int64_t rank = 0;            ///< its first
  double allocated_bytes = 0;  ///< of the sum: without pools of graphs, buffers of the dispatcher
};

/// A term of a line of the fullest stage's memory, and how it is known.
struct PlanMemoryTerm {
  std::string line;
  double bytes = 0;  ///< of the whole line
  std::string term;
  std::string how;
  std::string evidence;  ///< source, measured, assumed
  std::string basis;
};

/// What one change does.
struct PlanChange {
  PlanDifference difference;
  /// Of the throughput; none where the change alone is illegal or has no price.
  std::optional<double> gain_ratio;
  std::optional<double> more_bytes;
  std::string broken_rule;  ///< of an illegal one
  std::string verdict{};    ///< fits, tight or oom, with this change alone; of an illegal one empty
  /// Of a device's memory, with this change alone; negative: it fits.
  std::optional<double> missing_bytes{};
  std::string rule_text{};           ///< what the broken rule says
  std::vector<std::string> flags{};  ///< the change in the words of the run of today
  std::optional<PlanSpeed> speed{};  ///< with this change alone; none where gain_ratio is
};

/// One step of the way from the run of today to the first plan.
struct PlanPathStep {
  std::string changes;  ///< what is said differently
  /// Of the throughput; none where nothing of it has a price.
  std::optional<double> gain_ratio;
  double cumulative_ratio = 1;  ///< tokens a second over those of the run of today
  double peak_bytes = 0;        ///< allocated
  double missing_bytes = 0;     ///< of a device's memory; negative: it fits
  std::string verdict;          ///< fits, tight or oom
  std::optional<PlanSpeed> speed{};
};

/// The first plan's layout with another global batch.
struct PlanBatch {
  int64_t global_batch_size = 0;  ///< sequences
  double step_ns = 0;
  PlanSpeed speed;
};

struct PlanThumb {
  std::string says;
  bool agrees = false;
  /// How much slower the fastest that keeps to it is; none where nothing is known of one.
  std::optional<double> cost_ratio;
};

/// A configuration that does not fit, or a change that makes it.
struct PlanMiss {
  std::string layout;
  std::string choices;
  double peak_bytes = 0;     ///< allocated
  double missing_bytes = 0;  ///< negative: it fits
};
struct PlanWayOut {
  std::string what;
  double missing_bytes = 0;
  bool is_tight = false;  ///< nothing is missing as predicted, and it is not sure to fit
};

/// The first plan's step, played.
struct PlanPlayed {
  int64_t step_ns = 0;
  double seconds = 0;                                          ///< that playing took
  std::vector<std::map<std::string, int64_t>> stage_parts_ns;  ///< names of base::StepPart
  std::string wall;
  std::vector<profiler::StepTrace> traces;  ///< of one rank of each stage, times from 0
  int64_t num_records = 0;                  ///< played
  int64_t num_micro_batches = 0;
  bool is_thinned = false;  ///< the traces hold the first, middle and last micro-batch only
  std::vector<std::string> left_out;  ///< of the plan, that is not played
};

struct PlanAgainst {
  std::string layout;
  std::string choices;
  PlanFigure step_ns;
  PlanFigure tflops;
  PlanFigure tokens_per_s;
  PlanFigure peak_bytes;
  std::string verdict;
  std::vector<PlanChange> changes;   ///< to the first plan
  std::string order{};               ///< the order of the changes, as a sentence
  double missing_bytes = 0;          ///< of a device's memory; negative: it fits
  std::vector<std::string> notes{};  ///< what of it was understood or priced only in part
  std::vector<PlanPathStep> path{};  ///< the changes step by step
};

/// What differs between a published run and the user's and is no setting.
struct PlanCondition {
  PlanDifference difference;
  std::optional<double> speed_ratio;  ///< none: it has no price by itself
  std::string why;                    ///< it has none
};

/// A published run like the user's.
struct PlanPublished {
  std::string title;  ///< what ran, where and when
  std::optional<double> tflops;
  double tokens_per_s = 0;
  PlanFigure priced_tflops;  ///< of the run as it is stated
  PlanFigure priced_tokens_per_s;
  std::string grade;
  std::vector<std::string> facts;    ///< what the user's run reaches of it, notes
  std::vector<std::string> assumed;  ///< what the run leaves open and how it was priced
  std::vector<PlanCondition> conditions;
  std::vector<PlanPathStep> path;   ///< from the user's run to its layout
  std::vector<PlanChange> changes;  ///< where there is no way: each alone
};

struct PlanPage {
  std::string model;
  std::string hardware;
  std::string date;  ///< "2026-11-24 10:00 UTC"
  int64_t num_devices = 0;
  int64_t seq_length = 0;
  int64_t global_batch_size = 0;
  int64_t num_points = 0;
  int64_t num_legal = 0;
  int64_t num_fit = 0;
  double search_seconds = 0;
  bool has_experts = false;
  std::vector<std::string> assumptions;
  double capacity_bytes = 0;     ///< of a device
  double allocatable_bytes = 0;  ///< what PyTorch may allocate of that
  std::vector<PlanRow> rows;     ///< the first is the fastest
  std::vector<PlanRegion> regions;
  std::vector<PlanMark> front;
  std::vector<std::string> memory_terms;
  std::vector<PlanStage> stages;  ///< of the first
  std::vector<PlanMemoryTerm> memory_evidence;
  /// Where its step goes, in closed form: names and seconds, in order.
  std::vector<std::pair<std::string, double>> step_parts;
  std::optional<PlanPlayed> played;
  std::string not_played;           ///< why there is none
  std::vector<PlanBatch> batches;   ///< where nobody gave a global batch: by size
  int64_t smallest_good_batch = 0;  ///< the smallest within 2 % of the fastest of these
  std::optional<PlanAgainst> against;
  std::string published_note;            ///< which are told; empty: nobody asked for any
  std::vector<PlanPublished> published;  ///< the nearest first
  std::vector<PlanThumb> thumbs;
  std::vector<PlanChange> helps;
  std::vector<PlanMiss> misses;  ///< where nothing fits
  std::vector<PlanWayOut> ways_out;
};

/// All texts are taken for anybody's and escaped.
std::string render_plan(const PlanPage& page);

}  // namespace moetune::reports

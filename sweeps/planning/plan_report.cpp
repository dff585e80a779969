// From the answer to what its page shows.
#include "sweeps/planning/plan_report.h"

#include <fmt/format.h>

#include <cmath>
#include <sstream>
#include <utility>

#include "reports/page.h"
#include "sweeps/planning/change_text.h"
#include "sweeps/planning/named_files.h"

namespace moetune::sweeps {
namespace {

namespace planner = tuner::planner;
using reports::PlanPage;

reports::PlanFigure figure_of(const Interval& interval, double scale = 1) {
  return {interval.value * scale, interval.low * scale, interval.high * scale};
}

/// What PyTorch may allocate, pools of graphs and buffers of the dispatcher included, so that a
/// device of `capacity_bytes` holds it.
double allocatable_bytes(double capacity_bytes) {
  // device_bytes is a line.
  const double fixed = planner::device_bytes(0);
  const double slope = planner::device_bytes(1e9) - fixed;
  return (capacity_bytes - fixed) / slope * 1e9;
}

reports::PlanSpeed speed_of(const Speed& speed) {
  return {figure_of(speed.tokens_per_s), speed.grade};
}

reports::PlanMark plan_mark(const PlanResult& result, const planner::PlannedConfig& config) {
  const planner::PlanRun run = run_with(result.question, config);
  return {layout_text(run.knobs) + ", " + choices_text(run), config.peak_bytes,
          planner::tokens_per_s_per_device(run, config.seconds),
          missing_bytes(result.question, config.peak_bytes) <= 0};
}

void fill_rows(const PlanResult& result, PlanPage& page) {
  for (size_t i = 0; i < result.answer.best.size(); ++i) {
    const planner::PlanRun run = run_with(result.question, result.answer.best[i]);
    const RunEstimate& estimate = result.estimates[i];
    reports::PlanRow& row = page.rows.emplace_back();
    row.layout = layout_text(run.knobs);
    row.choices = choices_text(run);
    row.step_ns = figure_of(estimate.step_seconds, 1e9);
    row.tflops = figure_of(estimate.tflops);
    row.tokens_per_s = figure_of(estimate.tokens_per_s);
    row.peak_bytes = figure_of(estimate.allocated_bytes);
    row.needed_bytes = estimate.memory.peak_bytes();
    row.replicas = run.knobs.dp;
    row.load_that_fits = estimate.load_that_fits;
    row.load_text = load_text(estimate.load_that_fits);
    row.wall = base::name_of(planner::wall_of(estimate.step));
    row.grade = estimate.grade;
    if (i == 0) continue;
    row.why_slower = why_slower(result.estimates.front().step, estimate.step);
    for (KnobGain& change :
         differences(run_with(result.question, result.answer.best.front()), run)) {
      row.to_first.push_back(
          {std::move(change.knob), std::move(change.from), std::move(change.to)});
    }
  }
}

void fill_regions(const PlanResult& result, PlanPage& page) {
  for (const planner::PlanCell& cell : result.answer.cells) {
    // What the fixed knobs leave out is no part of the space.
    if (cell.num_legal == 0 && cell.broken == nullptr) continue;
    reports::PlanRegion& region = page.regions.emplace_back(reports::PlanRegion{
        cell.tp, cell.cp, cell.ep, cell.pp, cell.num_legal, cell.num_fit, {}, {}});
    if (cell.fastest) {
      region.best = plan_mark(result, *cell.fastest);
    } else if (cell.leanest) {
      region.best = plan_mark(result, *cell.leanest);
    } else {
      region.reason = cell.broken->name;
    }
  }
  for (const planner::PlannedConfig& config : result.answer.front) {
    page.front.push_back(plan_mark(result, config));
  }
}

void fill_memory_and_time(const RunEstimate& estimate, const spec::PlanKnobs& knobs,
                          PlanPage& page) {
  for (const planner::StageMemory& stage : estimate.memory.stages) {
    reports::PlanStage& shown = page.stages.emplace_back();
    shown.moment = stage.moment;
    shown.rank = first_rank_of(knobs, stage.stage);
    shown.allocated_bytes = stage.allocated();
    const bool is_first = page.memory_terms.empty();
    for (const planner::MemoryLineRow& part : planner::memory_parts()) {
      if (is_first) page.memory_terms.emplace_back(part.words);
      shown.bytes.push_back(stage.peak.*part.bytes);
    }
  }
  for (const planner::LineBytes& line : estimate.memory_lines) {
    for (const planner::MemoryRow* row : line.rows) {
      page.memory_evidence.push_back({std::string(planner::row_of(line.line).words), line.bytes,
                                      std::string(row->name), planner::formula_text(*row),
                                      std::string(planner::name_of(row->evidence)),
                                      std::string(row->basis)});
    }
  }
  for (size_t i = 0; i < estimate.step.parts.size(); ++i) {
    page.step_parts.emplace_back(base::text_of(planner::named(static_cast<planner::TimePart>(i))),
                                 estimate.step.parts[i]);
  }
}

/// `peak_bytes`: of the run that is changed.
reports::PlanChange change_of(const planner::PlanQuestion& question, double peak_bytes,
                              const KnobGain& gain) {
  reports::PlanChange change = {
      {gain.knob, gain.from, gain.to}, gain.gain, gain.bytes, gain.broken_rule, {}, {}};
  change.rule_text = gain.rule_text;
  change.flags = gain.flags;
  if (gain.speed) change.speed = speed_of(*gain.speed);
  if (gain.verdict) change.verdict = name_of(*gain.verdict);
  if (gain.bytes) change.missing_bytes = missing_bytes(question, peak_bytes + *gain.bytes);
  return change;
}

/// What of a command has no part in its figures, one entry a line of the text.
std::vector<std::string> against_notes(const Against& theirs) {
  std::vector<std::string> notes = theirs.notes;
  std::istringstream lines(settings_text(theirs.settings));
  for (std::string line; std::getline(lines, line);) notes.push_back(line);
  return notes;
}

reports::PlanPathStep step_of(const planner::PlanQuestion& question, const PathStep& step) {
  return {step_change_text(step),
          step.gain(),
          step.cumulative_ratio,
          step.allocated_bytes,
          missing_bytes(question, step.peak_bytes),
          name_of(step.verdict),
          speed_of(step.speed)};
}

void fill_against(const planner::PlanQuestion& question, const Against& theirs, PlanPage& page) {
  reports::PlanAgainst& against = page.against.emplace();
  against.layout = layout_text(theirs.run.knobs);
  against.choices = choices_text(theirs.run);
  against.step_ns = figure_of(theirs.estimate.step_seconds, 1e9);
  against.tflops = figure_of(theirs.estimate.tflops);
  against.tokens_per_s = figure_of(theirs.estimate.tokens_per_s);
  against.peak_bytes = figure_of(theirs.estimate.allocated_bytes);
  against.verdict = name_of(theirs.estimate.verdict);
  against.missing_bytes = theirs.missing_bytes;
  against.order = order_text(theirs);
  against.notes = against_notes(theirs);
  const double peak = theirs.estimate.memory.peak_bytes();
  for (const KnobGain& change : theirs.changes) {
    against.changes.push_back(change_of(question, peak, change));
  }
  for (const PathStep& step : theirs.path) against.path.push_back(step_of(question, step));
}

/// `peak_bytes`: of the user's run.
void fill_published(const planner::PlanQuestion& question, double peak_bytes, const LikeRuns& like,
                    PlanPage& page) {
  page.published_note = like_runs_note(like);
  for (const LikeRun& run : like.runs) {
    reports::PlanPublished& shown = page.published.emplace_back();
    shown.title = like_run_title(run.row);
    shown.tflops = run.row.tflops;
    shown.tokens_per_s = *run.row.tokens_per_s;
    shown.priced_tflops = figure_of(run.estimate.tflops);
    shown.priced_tokens_per_s = figure_of(run.estimate.tokens_per_s);
    shown.grade = run.estimate.grade;
    shown.assumed = run.row.assumed;
    shown.facts = run.notes;
    for (std::string text : {like_run_share(like, run), moved_text(like, run)}) {
      if (!text.empty()) shown.facts.push_back(std::move(text));
    }
    for (const Condition& condition : run.conditions) {
      shown.conditions.push_back(
          {{condition.what, condition.from, condition.to}, condition.ratio, condition.why});
    }
    for (const PathStep& step : run.path) shown.path.push_back(step_of(question, step));
    for (const KnobGain& change : run.changes) {
      shown.changes.push_back(change_of(question, peak_bytes, change));
    }
  }
}

void fill_played(PlanResult& result, PlanPage& page) {
  if (!result.played) return;
  tuner::PlayedStep& step = *result.played;
  reports::PlanPlayed& played = page.played.emplace();
  played.step_ns = step.estimate.step_ns;
  played.seconds = result.play_seconds;
  played.stage_parts_ns = step.stage_parts_ns;
  played.wall = base::name_of(result.played_wall);
  played.traces = std::move(step.traces);
  played.num_records = step.num_records;
  played.num_micro_batches = step.num_micro_batches;
  played.is_thinned = step.is_thinned;
  played.left_out = result.not_in_played;
}

}  // namespace

PlanPage plan_page(PlanResult& result, const std::string& model, const std::string& date) {
  const planner::PlanQuestion& question = result.question;
  PlanPage page;
  page.model = model;
  page.hardware = question.hardware->name;
  page.date = date;
  page.num_devices = question.hardware->num_devices();
  page.seq_length = question.seq_length;
  page.global_batch_size = question.global_batch_size;
  page.num_points = result.answer.num_points;
  page.num_legal = result.answer.num_legal;
  page.num_fit = result.answer.num_fit;
  page.search_seconds = result.seconds;
  page.has_experts = question.model->num_experts > 0;
  page.assumptions = result.assumptions;
  if (std::string gaps = engine_gaps_text(result); !gaps.empty()) {
    page.assumptions.push_back(std::move(gaps));
  }
  page.capacity_bytes =
      static_cast<double>(question.hardware->memory_bytes) * question.memory_ratio;
  page.allocatable_bytes = allocatable_bytes(page.capacity_bytes);
  fill_rows(result, page);
  fill_regions(result, page);
  if (!result.estimates.empty()) {
    fill_memory_and_time(result.estimates.front(), result.answer.best.front().knobs, page);
  }
  page.not_played = result.not_played;
  fill_played(result, page);
  for (const BatchSpeed& batch : result.batches) {
    page.batches.push_back(
        {batch.global_batch_size, batch.seconds.value * 1e9, speed_of(batch.speed)});
  }
  page.smallest_good_batch = smallest_good_batch(result);
  if (result.against) fill_against(question, *result.against, page);
  if (result.published) {
    const double peak_bytes = result.against ? result.against->estimate.memory.peak_bytes() : 0;
    fill_published(question, peak_bytes, *result.published, page);
  }
  for (const ThumbOpinion& thumb : result.thumbs) {
    page.thumbs.push_back({thumb.says, thumb.agrees, thumb.cost_ratio});
  }
  for (const KnobGain& change : result.helps) {
    page.helps.push_back(change_of(question, result.answer.best.front().peak_bytes, change));
  }
  for (const planner::PlannedConfig& config : result.answer.nearest) {
    page.misses.push_back({layout_text(config.knobs), choices_text(run_with(question, config)),
                           allocated_bytes(question, config),
                           missing_bytes(question, config.peak_bytes)});
  }
  for (const WayOut& way : result.ways_out) {
    page.ways_out.push_back({way.what, way.missing_bytes, way.is_tight});
  }
  return page;
}

int64_t write_plan_page(const PlanPage& page, const std::string& path) {
  return reports::put_page(reports::render_plan(page), path);
}

}  // namespace moetune::sweeps

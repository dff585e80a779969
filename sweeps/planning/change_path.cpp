// Changes are made on copies of the run of today, so that what is priced is a run like any other.
#include "sweeps/planning/change_path.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <map>
#include <string_view>
#include <utility>

#include "engine/spec/dialects/concepts.h"
#include "kernels/base/error.h"
#include "sweeps/planning/edited_command.h"
#include "tuner/planner/memory_profile.h"
#include "tuner/planner/priced_choices.h"
#include "tuner/planner/rules.h"
#include "tuner/planner/stages.h"
#include "tuner/planner/step_time.h"

namespace moetune::sweeps {

namespace planner = tuner::planner;
namespace dialects = spec::dialects;
using planner::PlanRun;

namespace {

constexpr std::string_view kLayoutFlag = "pipeline_model_parallel_layout";
constexpr std::string_view kBatch = "global_batch_size";
constexpr std::string_view kLength = "seq_length";
constexpr std::string_view kSchedule = "pipeline_schedule";
constexpr std::string_view kNoLayout = "none";

/// Whether the knob says how many layers the first or the last stage has.
bool is_of_ends(std::string_view knob) {
  return knob == "first_stage_layers" || knob == "last_stage_layers";
}
/// Whether a change is one of stages alone: all of these are made together.
bool is_of_stages(const KnobGain& change) {
  return change.knob == kLayoutFlag || is_of_ends(change.knob);
}

bool is_idle(const spec::ModelSpec& model, const spec::PlanKnobRow& row) {
  return model.num_experts == 0 && row.is_of_experts;
}

/// Whether its replicas are one: what torchtitan then says of shards is of no effect.
bool has_nothing_to_shard(const PlanRun& run) {
  return !run.is_of_megatron && run.knobs.dense_copies() == 1;
}

double rate_of_tokens(const PlanRun& run, const Calibration& calibration) {
  return planner::tokens_per_s_per_device(run,
                                          planner::predict_step(run, calibration.rates).seconds);
}

void sort_changes(bool has_run_fit, std::vector<KnobGain>& changes) {
  const auto is_within = [](const KnobGain& change) { return change.is_within; };
  const bool is_by_memory = !has_run_fit && std::ranges::none_of(changes, is_within);
  const auto place = [&](const KnobGain& change) {
    if (!change.verdict) return std::pair{4, 0.0};
    if (is_by_memory) return std::pair{3, *change.bytes};
    const double slower = change.gain ? -*change.gain : 1.0;
    if (change.verdict != Verdict::fits) return std::pair{change.is_within ? 2 : 3, slower};
    return change.gain ? std::pair{0, slower} : std::pair{1, 0.0};
  };
  std::ranges::stable_sort(changes, std::less{}, place);
}

bool have_same_stages(const PlanRun& a, const PlanRun& b) {
  return a.knobs.pp == b.knobs.pp && a.knobs.vpp == b.knobs.vpp;
}

/// Whether a replica has as many sequences.
bool have_same_batch(const PlanRun& a, const PlanRun& b) {
  return a.global_batch_size == b.global_batch_size && a.knobs.dp == b.knobs.dp;
}

/// Whether a device has room for a predicted peak (0: without limit).
bool is_within(double peak_bytes, double capacity_bytes) {
  return capacity_bytes <= 0 || planner::device_bytes(peak_bytes) <= capacity_bytes;
}

/// The run of today. What says nothing of its model is as at the goal, so that it breaks no rule
/// on the way.
PlanRun start_of(const ChangeEnds& ends) {
  PlanRun run = ends.today;
  for (const spec::PlanKnobRow& row : spec::plan_knob_table()) {
    if (!is_idle(*run.model, row)) continue;
    spec::set_plan_knob(run.knobs, row, get_plan_knob(ends.goal.knobs, row));
  }
  if (has_nothing_to_shard(run)) run.knobs.fsdp = ends.goal.knobs.fsdp;
  return run;
}

void take_schedule_of_stages(const PlanRun& goal, PlanRun& run) {
  run.has_rounds = goal.has_rounds;
  run.fills_stages = goal.fills_stages;
  run.has_usual_schedule = goal.has_usual_schedule;
}

void make_change(const KnobGain& change, const PlanRun& goal, PlanRun& run) {
  if (is_of_stages(change)) return;  // see changed_run
  if (change.knob == kBatch) {
    run.global_batch_size = goal.global_batch_size;
  } else if (change.knob == kLength) {
    run.seq_length = goal.seq_length;
  } else if (change.knob == kSchedule) {
    run.holds_all_micro_batches = goal.holds_all_micro_batches;
    take_schedule_of_stages(goal, run);
  } else {
    spec::set_plan_knob(run.knobs, *spec::find_plan_knob(change.knob), change.to);
  }
}

/// A run on the way, and what is against it.
struct ChangedRun {
  PlanRun run;
  std::string_view broken_rule{};  ///< empty: it is legal
  std::string rule_text{};
};

/// `start` with these changes. With `has_goal_stages` it has the goal's stages; else others than
/// those of `start` are chosen where its pipeline is another, `is_quick` as choose_stages has it.
ChangedRun changed_run(const PlanRun& start, const PlanRun& goal,
                       const std::vector<const KnobGain*>& changes, bool has_goal_stages,
                       const planner::Rates& rates, bool is_quick) {
  ChangedRun changed = {start};
  PlanRun& run = changed.run;
  for (const KnobGain* change : changes) make_change(*change, goal, run);
  // A schedule of one stage a rank is none of virtual stages, nor the other way round.
  if ((run.knobs.vpp == 1) != (start.knobs.vpp == 1)) {
    run.holds_all_micro_batches = goal.holds_all_micro_batches;
  }
  // Nor is it told to stages of another number: they have the goal's.
  if (!have_same_stages(run, start)) {
    take_schedule_of_stages(goal, run);
  }
  // A size takes its devices from the replicas.
  spec::set_dp_for(run.hardware->num_devices(), run.knobs);
  // What goes through the pipeline at once is written anew with a replica's batch.
  if (!have_same_batch(run, start)) run.pass_sequences = goal.pass_sequences;
  if (has_goal_stages) {
    if (!have_same_stages(run, goal)) {
      changed.broken_rule = "layout_stages";
      changed.rule_text = "stages that are written hold for their own pp and vpp only";
      return changed;
    }
    run.stages = goal.stages;
    run.stage_layers = goal.stage_layers;
  }
  // A written layout holds for its own number of stages only.
  const bool is_laid_out = has_goal_stages || have_same_stages(run, start);
  if (!is_laid_out) {
    run.stages.clear();
    run.stage_layers.clear();
  }
  // Nor do layers of the ends, which are no change of their own beside others of the stages.
  if (has_goal_stages || !is_laid_out) {
    run.knobs.first_stage_layers = goal.knobs.first_stage_layers;
    run.knobs.last_stage_layers = goal.knobs.last_stage_layers;
  }
  if (const planner::PlanRule* broken = planner::broken_rule(run)) {
    changed.broken_rule = broken->name;
    changed.rule_text = broken->message(run);
    return changed;
  }
  if (!is_laid_out && run.is_of_megatron) {
    planner::WorkCache works;
    run.stages = planner::choose_stages(run, planner::parts_by_place(run, works, rates), is_quick);
  }
  return changed;
}

/// The words of today's run for a run on the way. Its layout stays as it is written there while the
/// stages do. A batch that it does not say is said as soon as it would follow other replicas.
dialects::RunConfig config_on_way(const dialects::RunConfig& words, const PlanRun& start,
                                  const PlanRun& run) {
  dialects::RunConfig config = words;
  config.knobs = run.knobs;
  config.environment[std::string(dialects::kConnections)] =
      std::to_string(run.knobs.cuda_device_max_connections);
  leave_out_variables_of_choices(words, config);
  // What the command has it keeps, idle or not.
  if (!words.knobs.sequence_parallel) leave_out_idle_sequence_parallelism(words.dialect, config);
  const bool has_same_stages = have_same_stages(run, start);
  if (run.stages != start.stages || !has_same_stages) {
    config.pipeline_layout = planner::pipeline_layout_of(run);
    // What a command counts as layers makes stages that are no longer those of the run.
    for (const std::string& key : dialects::keys_of_counted_ends(words)) {
      std::erase_if(config.unknown, [&](const auto& setting) { return setting.key == key; });
    }
  }
  // Plans have the usual schedule of their stages, in an even split.
  if (!has_same_stages) config.has_lighter_ends = false;
  const bool holds_all = dialects::holds_all_micro_batches(config, run.knobs);
  if (!has_same_stages || holds_all != run.holds_all_micro_batches) {
    config.pipeline_schedule.clear();
    config.has_listed_schedule = false;
  }
  const bool has_same_replicas =
      run.knobs.dp == start.knobs.dp && run.knobs.micro_batch_size == start.knobs.micro_batch_size;
  const bool has_same_batch = run.global_batch_size == start.global_batch_size;
  const bool is_unsaid = words.is_batch_derived || words.global_batch_size == 0;
  if (!has_same_batch || (is_unsaid && !has_same_replicas)) {
    config.global_batch_size = run.global_batch_size;
  } else if (is_unsaid) {
    config.global_batch_size = 0;
  }
  if (run.seq_length != start.seq_length) config.seq_length = run.seq_length;
  return config;
}

std::vector<std::string> flags_between(const dialects::RunConfig& before,
                                       const dialects::RunConfig& after) {
  std::vector<std::string> flags;
  for (const dialects::SettingChange& change : changes_between(before, after)) {
    flags.push_back(dialects::text_of(change, before.dialect));
  }
  return flags;
}

/// The command of the run of today, to be changed; none where there is none or it is a file.
std::optional<EditedCommand> edited_command_of(const ChangeEnds& ends, const PlanRun& start) {
  if (ends.words == nullptr) return std::nullopt;
  std::optional<EditedCommand> command = EditedCommand::of(*ends.words, start.model->num_layers);
  // What says nothing of its model is as at the goal.
  if (command) static_cast<void>(command->change_to(config_on_way(*ends.words, start, start)));
  return command;
}

/// What makes a run of another one on the way, in the words of the command, which then has them.
std::vector<std::string> flags_to(const dialects::RunConfig& before,
                                  const dialects::RunConfig& after,
                                  std::optional<EditedCommand>& command) {
  std::optional<std::vector<std::string>> flags;
  if (command) flags = command->change_to(after);
  return flags ? *flags : flags_between(before, after);
}

/// A legal set of changes, made on the way.
struct TriedSet {
  bool is_legal = false;
  PlanRun run;
  double tokens_per_s = 0;
  double peak_bytes = 0;
  double allocated_bytes = 0;
  Verdict verdict = Verdict::oom;
  /// As predicted, like the plans that are searched: of torchtitan that may be tight.
  bool is_within = false;

  [[nodiscard]] bool fits() const { return is_legal && is_within; }
};

/// Finds the steps. Sets of changes are bits, in the order of the list.
class PathSearch {
 public:
  PathSearch(const ChangeEnds& ends, const std::vector<KnobGain>& changes, double today_per_s,
             double goal_per_s)
      : ends_(ends),
        changes_(changes),
        start_(start_of(ends)),
        command_(edited_command_of(ends, start_)) {
    MOETUNE_CHECK(changes.size() < kMostBits, "{} changes are too many", changes.size());
    all_ = (Set{1} << changes.size()) - 1;
    for (size_t i = 0; i < changes.size(); ++i) {
      const std::string& knob = changes[i].knob;
      if (is_of_stages(changes[i])) layout_ |= Set{1} << i;
      if (knob == "pp" || knob == "vpp") pipeline_ |= Set{1} << i;
      if (knob == kSchedule) schedule_ |= Set{1} << i;
      if (knob == "vpp" && (ends.today.knobs.vpp == 1) != (ends.goal.knobs.vpp == 1)) {
        kind_of_stages_ |= Set{1} << i;
      }
    }
    tried_[0] = tried_run(start_, today_per_s);
    if (all_ != 0) tried_[all_] = tried_run(ends.goal, goal_per_s);
  }

  std::vector<PathStep> steps() {
    std::vector<PathStep> steps;
    while (taken_ != all_) {
      const Set next = with_followers(taken_ | next_set());
      steps.push_back(step_to(next));
      taken_ = next;
    }
    return steps;
  }

 private:
  using Set = uint64_t;
  static constexpr size_t kMostBits = 64;

  /// Stages that are written come with the pipeline that they are of, and a schedule with stages of
  /// another kind: see changed_run.
  [[nodiscard]] Set with_followers(Set set) const {
    if (has_whole_pipeline(set) || (set & layout_) != 0) set |= layout_;
    return (set & kind_of_stages_) != 0 ? set | schedule_ : set;
  }
  [[nodiscard]] bool has_whole_pipeline(Set set) const {
    return pipeline_ != 0 && (set & pipeline_) == pipeline_;
  }

  [[nodiscard]] std::vector<const KnobGain*> changes_of(Set set) const {
    std::vector<const KnobGain*> found;
    for (size_t i = 0; i < changes_.size(); ++i) {
      if (((set >> i) & 1) != 0) found.push_back(&changes_[i]);
    }
    return found;
  }

  [[nodiscard]] TriedSet tried_run(const PlanRun& run, double tokens_per_s) const {
    TriedSet tried;
    tried.is_legal = true;
    tried.run = run;
    tried.tokens_per_s = tokens_per_s;
    const planner::MemoryPrediction memory = planner::predict_memory(run);
    tried.peak_bytes = memory.peak_bytes();
    tried.allocated_bytes = memory.allocated_bytes();
    tried.verdict = verdict_of(run, tried.peak_bytes, ends_.capacity_bytes);
    tried.is_within = is_within(tried.peak_bytes, ends_.capacity_bytes);
    return tried;
  }

  /// With all changes of a set, which holds those that are taken.
  const TriedSet& try_set(Set given) {
    const Set set = with_followers(given);
    const auto known = tried_.find(set);
    if (known != tried_.end()) return known->second;
    const bool has_goal_stages = has_whole_pipeline(set) || (set & layout_) != 0;
    ChangedRun changed = changed_run(start_, ends_.goal, changes_of(set), has_goal_stages,
                                     ends_.calibration.rates, true);
    TriedSet& tried = tried_[set];
    if (!changed.broken_rule.empty()) return tried;
    tried = tried_run(changed.run, rate_of_tokens(changed.run, ends_.calibration));
    return tried;
  }

  /// All sets of so many of the changes that remain.
  [[nodiscard]] std::vector<Set> sets_of(int size) const {
    std::vector<Set> sets = {0};
    for (int i = 0; i < size; ++i) {
      std::vector<Set> larger;
      for (const Set set : sets) {
        for (size_t bit = 0; bit < changes_.size(); ++bit) {
          const Set one = Set{1} << bit;
          // Each set once: with its bits from the lowest to the highest.
          if ((taken_ & one) == 0 && set < one) larger.push_back(set | one);
        }
      }
      sets = std::move(larger);
    }
    return sets;
  }

  /// The set of the next step, of those that remain.
  Set next_set() {
    constexpr double kGains = 1.001;  // less is no gain that prices can tell
    constexpr int kMostTogether = 3;
    constexpr int kMostForThree = 16;  // of which there are 560 sets
    const TriedSet& now = try_set(taken_);
    const int num_left = std::popcount(all_ & ~taken_);
    std::optional<Set> fitting;
    std::optional<Set> saving;
    for (int size = 1; size <= std::min(kMostTogether, num_left); ++size) {
      if (size == kMostTogether && num_left > kMostForThree) break;
      std::optional<Set> fastest;
      std::optional<Set> leanest;
      for (const Set set : sets_of(size)) {
        const TriedSet& tried = try_set(taken_ | set);
        if (!tried.is_legal) continue;
        if (tried.fits() && (!fastest || tried.tokens_per_s > tokens_with(*fastest))) fastest = set;
        if (!leanest || tried.peak_bytes < peak_with(*leanest)) leanest = set;
      }
      if (!saving && leanest && peak_with(*leanest) < now.peak_bytes) saving = leanest;
      if (!fastest) continue;
      if (!now.fits() || tokens_with(*fastest) > kGains * now.tokens_per_s) return *fastest;
      // Three that buy nothing together are no step, unless there is no smaller one.
      const bool is_better = !fitting || (size < kMostTogether &&
                                          tokens_with(*fastest) > kGains * tokens_with(*fitting));
      if (is_better) fitting = fastest;
    }
    if (fitting) return *fitting;
    return saving ? *saving : all_ & ~taken_;
  }

  double tokens_with(Set set) { return try_set(taken_ | set).tokens_per_s; }
  double peak_with(Set set) { return try_set(taken_ | set).peak_bytes; }

  PathStep step_to(Set next) {
    const TriedSet& before = try_set(taken_);
    const TriedSet& after = try_set(next);
    PathStep step;
    step.is_priced = false;
    for (const KnobGain* change : changes_of(next & ~taken_)) {
      step.changes.push_back({change->knob, change->from, change->to, {}, {}});
      step.is_priced = step.is_priced || planner::has_price_in_time(change->knob);
    }
    if (ends_.words != nullptr) {
      step.flags = flags_to(config_on_way(*ends_.words, start_, before.run),
                            config_on_way(*ends_.words, start_, after.run), command_);
    }
    step.speed = predicted_speed(after.run, ends_.calibration, after.tokens_per_s);
    step.speed_ratio = after.tokens_per_s / before.tokens_per_s;
    step.cumulative_ratio = after.tokens_per_s / try_set(0).tokens_per_s;
    step.peak_bytes = after.peak_bytes;
    step.allocated_bytes = after.allocated_bytes;
    step.verdict = after.verdict;
    step.is_within = after.is_within;
    step.run = after.run;
    return step;
  }

  const ChangeEnds& ends_;
  const std::vector<KnobGain>& changes_;
  PlanRun start_;
  std::optional<EditedCommand> command_;  ///< with the flags of the steps so far
  Set all_ = 0;
  Set taken_ = 0;
  Set layout_ = 0;          ///< the changes of the stages alone
  Set pipeline_ = 0;        ///< the changes of the number of stages
  Set schedule_ = 0;        ///< the change of the order of forwards and backwards
  Set kind_of_stages_ = 0;  ///< the change from one stage a rank to virtual ones, or back
  std::map<Set, TriedSet> tried_;
};

}  // namespace

std::vector<KnobGain> differences(const PlanRun& from, const PlanRun& to) {
  std::vector<KnobGain> changes;
  const auto written = [](const PlanRun& run) {
    const std::string layout = planner::pipeline_layout_of(run);
    return layout.empty() ? std::string(kNoLayout) : layout;
  };
  const bool has_other_stages = !have_same_stages(from, to) || written(from) != written(to);
  const auto add = [&](std::string_view name, std::string before, std::string after) {
    if (before == after) return;
    changes.push_back({std::string(name), std::move(before), std::move(after), {}, {}, {}});
  };
  for (const spec::PlanKnobRow& row : spec::plan_knob_table()) {
    // Replicas are what the other sizes leave.
    if (row.name == "dp" || is_idle(*to.model, row)) continue;
    if (row.name == "fsdp" && (has_nothing_to_shard(from) || has_nothing_to_shard(to))) continue;
    // Nothing is cut along the sequence where one rank has all of it.
    const bool is_cut = from.knobs.tp > 1 || to.knobs.tp > 1;
    if (row.name == "sequence_parallel" && !is_cut) continue;
    // Layers of the ends follow the other stages.
    if (has_other_stages && is_of_ends(row.name)) continue;
    // Which layers, where none are recomputed as a whole.
    if (row.name.starts_with("recompute_") && !to.knobs.recompute.has(spec::PlanRecompute::full)) {
      continue;
    }
    add(row.name, get_plan_knob(from.knobs, row), get_plan_knob(to.knobs, row));
  }
  const auto schedule = [](const PlanRun& run) {
    return run.holds_all_micro_batches ? "all forwards first" : "1F1B";
  };
  add(kSchedule, schedule(from), schedule(to));
  add(kLayoutFlag, written(from), written(to));
  add(kBatch, std::to_string(from.global_batch_size), std::to_string(to.global_batch_size));
  add(kLength, std::to_string(from.seq_length), std::to_string(to.seq_length));
  return changes;
}

void judge_changes(const ChangeEnds& ends, std::vector<KnobGain>& changes) {
  const PlanRun start = start_of(ends);
  const double speed = rate_of_tokens(start, ends.calibration);
  const double bytes = planner::predict_memory(start).peak_bytes();
  const std::optional<EditedCommand> command = edited_command_of(ends, start);
  for (KnobGain& change : changes) {
    const bool is_layout = is_of_stages(change);
    const ChangedRun changed =
        changed_run(start, ends.goal, {&change}, is_layout, ends.calibration.rates, false);
    if (ends.words != nullptr) {
      dialects::RunConfig after = config_on_way(*ends.words, start, changed.run);
      // Also where these stages are of another pipeline.
      if (change.knob == kLayoutFlag) {
        after.pipeline_layout = change.to == kNoLayout ? "" : change.to;
      }
      std::optional<EditedCommand> edited = command;
      change.flags = flags_to(config_on_way(*ends.words, start, start), after, edited);
    }
    if (!changed.broken_rule.empty()) {
      change.broken_rule = changed.broken_rule;
      change.rule_text = changed.rule_text;
      continue;
    }
    const double changed_speed = rate_of_tokens(changed.run, ends.calibration);
    change.gain = changed_speed / speed - 1;
    change.speed = predicted_speed(changed.run, ends.calibration, changed_speed);
    const double peak = planner::predict_memory(changed.run).peak_bytes();
    change.bytes = peak - bytes;
    change.verdict = verdict_of(changed.run, peak, ends.capacity_bytes);
    change.is_within = is_within(peak, ends.capacity_bytes);
    change.is_priced = planner::has_price_in_time(change.knob);
    if (change.is_priced) continue;
    change.gain.reset();
    change.speed.reset();
  }
  sort_changes(is_within(bytes, ends.capacity_bytes), changes);
}

std::vector<PathStep> change_path(const ChangeEnds& ends, const std::vector<KnobGain>& changes,
                                  double today_per_s, double goal_per_s) {
  return PathSearch(ends, changes, today_per_s, goal_per_s).steps();
}

}  // namespace moetune::sweeps

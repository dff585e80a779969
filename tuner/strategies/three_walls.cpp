// The workflow's program; see three_walls.h. What each phase looks for is said where it begins.
#include "tuner/strategies/three_walls.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "kernels/base/units.h"
#include "tuner/judgement.h"
#include "tuner/walls.h"

namespace moetune::tuner {
namespace {

// Rows of points that never run: enough to show the frontier, not so many that they drown the
// trials.
constexpr int64_t kMaxInvalidPerRule = 2;
constexpr int64_t kMaxPrunedPerPhase = 8;
// A change that the calibrated cost model expects to slow the step down by so much is not measured.
constexpr double kHopelessSlowdown = 1.25;

}  // namespace

ThreeWalls::ThreeWalls(const spec::SweepSpec& sweep)
    : sweep_(sweep), space_(sweep_), cost_models_(1) {}

std::optional<TrialRequest> ThreeWalls::ask() {
  pending_.reset();
  decisions_.clear();
  num_calibrations_ = 0;
  rows_ = {};
  reference_loss_.clear();
  baseline_.reset();
  first_fitting_.reset();
  incumbent_.reset();
  runner_up_.reset();
  refused_.clear();
  num_refused_.clear();
  num_started_ = 0;
  is_validating_ = false;
  phase_ = Phase::contract;
  best_hash_.clear();
  try {
    run();
    is_done_ = true;
  } catch (const Pending&) {
    // The next trial is in pending_.
  }
  return pending_;
}

void ThreeWalls::tell(const TrialRequest& request, const TrialOutcome& outcome) {
  outcomes_[request.hash] = outcome;
}

std::vector<Decision> ThreeWalls::take_decisions() {
  std::vector<Decision> fresh;
  if (decisions_.size() > num_taken_) {
    fresh.assign(decisions_.begin() + static_cast<int64_t>(num_taken_), decisions_.end());
    num_taken_ = decisions_.size();
  }
  return fresh;
}

Progress ThreeWalls::progress() const {
  // The phases' usual lengths: what is left is a guess until the end.
  const int64_t left = is_done_                    ? 0
                       : phase_ == Phase::validate ? 0
                       : phase_ == Phase::retune   ? 6
                       : phase_ == Phase::profile  ? 12
                       : phase_ == Phase::scale    ? 14 + sweep_.scale_trials
                                                   : 18 + sweep_.scale_trials;
  return {phase_, num_started_, std::min(sweep_.budget.max_trials, num_started_ + left)};
}

void ThreeWalls::run() {
  try {
    if (!contract()) return;
    if (!fit()) return;
    scale();
    retune();
  } catch (const BudgetSpent&) {
    decide(phase_, "note",
           fmt::format("The budget of {} trials is used up but for the validation.",
                       sweep_.budget.max_trials));
  }
  if (incumbent_) validate();
}

// What is compared is frozen first: model, data, recipe, precision, steps. A run on one ideal
// device (no memory limit, no launch costs) gives the losses every other trial must reproduce, and
// where the router sends each token.
bool ThreeWalls::contract() {
  phase_ = Phase::contract;
  TrialRequest reference;
  reference.spec = sweep_.base;
  spec::TrialSpec& s = reference.spec;
  s.knobs = spec::Knobs{};
  s.knobs.linear_ce_chunk_tokens = sweep_.base.knobs.linear_ce_chunk_tokens;
  s.hardware.num_nodes = 1;
  s.hardware.devices_per_node = 1;
  s.hardware.memory_bytes = 0;
  s.hardware.launch_ns = 0;
  s.hardware.graph_launch_ns = 0;
  s.hardware.sync_ns = 0;
  s.num_warmup_steps = 0;
  // As long as the longest trial: routing drifts while the router learns, and with it the memory
  // the experts need.
  s.num_steps = std::max(spec::total_steps(sweep_.base),
                         spec::total_steps(validation_spec(sweep_.base.knobs))) -
                1;
  s.num_traced_steps = 1;
  s.records_routing = sweep_.base.model.num_experts > 0;
  reference.phase = Phase::contract;
  reference.title = "reference: one ideal device, no memory limit, no launch costs";
  reference.is_reference = true;
  reference.hash = spec::spec_hash(s);
  const Trial trial = measure(std::move(reference));
  if (!trial.is_ok()) {
    decide(Phase::contract, "note",
           fmt::format("The reference run on one device ended as {}: {}. Without its losses no "
                       "trial can be judged, so the sweep ends here.",
                       spec::name_of(trial.outcome.status), trial.outcome.reason))
        .trial_hash = trial.request.hash;
    return false;
  }
  reference_loss_ = trial.outcome.losses;
  reference_loss_.resize(
      std::min(reference_loss_.size(), static_cast<size_t>(spec::total_steps(sweep_.base))));
  const nlohmann::json profile =
      nlohmann::json::parse(trial.outcome.routing_profile, nullptr, false);
  if (profile.is_object()) {
    rows_ = ReceivedRows(spec::routing_profile_from_json(profile), sweep_.base.model,
                         sweep_.base.training.global_batch_size);
  }
  const spec::TrainingSpec& training = sweep_.base.training;
  Decision& frozen = decide(
      Phase::contract, "note",
      fmt::format(
          "Frozen for every trial: model ({} parameters), text, seed, {} sequences of {} tokens "
          "per "
          "step, {} precision, natural routing. A trial counts only if its losses agree with the "
          "one-device reference within {}: all candidates are training-equivalent.",
          base::format_count(static_cast<double>(sweep_.base.model.num_parameters())),
          training.global_batch_size, training.seq_length, sweep_.base.dtype,
          sweep_.base.reference_tolerance));
  frozen.trial_hash = trial.request.hash;
  frozen.evidence["reference_loss"] = reference_loss_;
  if (!trial.outcome.wall.empty()) {
    const int64_t num_devices = sweep_.base.hardware.num_devices();
    Decision& wall =
        decide(Phase::contract, "wall",
               fmt::format("On one ideal device (no memory limit, no launch costs) a "
                           "step takes {} and the wall is {}. Spread perfectly over "
                           "{} devices that would be {}: whatever a step takes beyond "
                           "it is the price of memory, communication and the host.",
                           base::format_ns(trial.outcome.step_ns), trial.outcome.wall, num_devices,
                           base::format_ns(trial.outcome.step_ns / num_devices)));
    wall.trial_hash = trial.request.hash;
    wall.wall = trial.outcome.wall;
  }

  TrialRequest baseline =
      request_for(sweep_.base.knobs, Phase::contract, "baseline: the starting configuration");
  baseline.is_baseline = true;
  const std::vector<spec::Violation> violations = space_.check(sweep_.base.knobs);
  if (!violations.empty()) {
    baseline.reason = fmt::format("{}: {}", violations.front().rule, violations.front().message);
    refuse(baseline, Action::invalid, baseline.reason, 1);
    decide(Phase::contract, "note",
           fmt::format("The starting configuration is not legal ({}).", baseline.reason));
    return true;
  }
  // It runs even when it is predicted not to fit: how it fails is evidence.
  baseline_ = measure(std::move(baseline));
  return true;
}

// Smallest model parallelism that fits: first what costs nothing (sharded optimizer state), then
// selective recompute, then more expert parallelism before pipeline stages, full recompute last.
bool ThreeWalls::fit() {
  phase_ = Phase::fit;
  if (baseline_ && baseline_->is_ok()) {
    first_fitting_ = incumbent_ = baseline_;
    best_hash_ = baseline_->request.hash;
    decide(Phase::fit, "kept",
           fmt::format("The starting configuration fits as it is: {} of {}.",
                       base::format_bytes(baseline_->outcome.peak_bytes),
                       base::format_bytes(sweep_.base.hardware.memory_bytes)))
        .trial_hash = baseline_->request.hash;
    return true;
  }
  if (baseline_) {
    const bool is_oom = baseline_->outcome.status == spec::TrialStatus::oom;
    Decision& wall =
        decide(Phase::fit, "wall",
               fmt::format("The starting configuration ({}) ended as {}: {}.",
                           describe(baseline_->request.spec.knobs),
                           spec::name_of(baseline_->outcome.status), baseline_->outcome.reason));
    wall.trial_hash = baseline_->request.hash;
    wall.wall = is_oom ? "memory" : "";
    wall.evidence["predicted_peak_bytes"] = baseline_->request.prediction.peak_bytes;
    wall.evidence["capacity_bytes"] = sweep_.base.hardware.memory_bytes;
  }
  // From little to much: each entry is the layout change, tried with every rung of the recompute
  // ladder but full, and all of them once more with full recompute at the very end.
  std::vector<spec::Knobs> steps = {sweep_.base.knobs};
  const auto extend = [&](const char* knob) {
    for (const std::string& value : space_.values(knob)) {
      const spec::Knobs knobs = space_.with(steps.front(), knob, value);
      if (is_illegal(knobs, Phase::fit, fmt::format("fit: {} {}", knob, value))) continue;
      if (std::find(steps.begin(), steps.end(), knobs) == steps.end()) steps.push_back(knobs);
    }
  };
  if (space_.is_tunable("use_distributed_optimizer")) {
    const spec::Knobs sharded = space_.with(sweep_.base.knobs, "use_distributed_optimizer", "true");
    if (space_.check(sharded).empty() && sharded != steps.front()) {
      steps.insert(steps.begin(), sharded);
    }
  }
  extend("expert_model_parallel_size");
  extend("pipeline_model_parallel_size");
  extend("context_parallel_size");
  extend("micro_batch_size");
  const std::vector<std::string> ladder = recompute_ladder();
  for (const bool is_full_turn : {false, true}) {
    for (const spec::Knobs& step : steps) {
      for (const std::string& rung : ladder) {
        if ((rung == "full") != is_full_turn) continue;
        spec::Knobs knobs = step;
        knobs.recompute = rung;
        if (baseline_ && knobs == baseline_->request.spec.knobs) continue;
        if (!space_.check(knobs).empty()) continue;
        TrialRequest request = request_for(knobs, Phase::fit, "fit: " + describe(knobs));
        if (!fits(request)) {
          refuse(request, Action::pruned, over_capacity_text(request), kMaxPrunedPerPhase);
          continue;
        }
        const Trial trial = measure(std::move(request));
        Decision& decision =
            decide(Phase::fit, trial.is_ok() ? "kept" : "rejected",
                   trial.is_ok()
                       ? fmt::format(
                             "The first configuration that fits: {}, sharded optimizer {}, with {} "
                             "of {} ({} configurations with less were predicted not to fit).",
                             describe(knobs), knobs.use_distributed_optimizer ? "on" : "off",
                             base::format_bytes(trial.outcome.peak_bytes),
                             base::format_bytes(sweep_.base.hardware.memory_bytes),
                             num_refused_["fit pruned"])
                       : fmt::format("{} ended as {}: {}.", describe(knobs),
                                     spec::name_of(trial.outcome.status), trial.outcome.reason));
        decision.trial_hash = trial.request.hash;
        decision.wall = "memory";
        decision.remedy = "smallest parallelism and recompute that fit";
        if (baseline_) decision.baseline_hash = baseline_->request.hash;
        if (!trial.is_ok()) continue;
        first_fitting_ = incumbent_ = trial;
        best_hash_ = trial.request.hash;
        return true;
      }
    }
  }
  decide(Phase::fit, "note",
         "Nothing in the space fits into the devices' memory. More devices, a smaller model or "
         "further recompute settings are needed.")
      .wall = "memory";
  return false;
}

// Every legal layout of the space with the cheapest recompute that fits, ranked by the calibrated
// cost model; the best few, no two with the same layout, are measured.
void ThreeWalls::scale() {
  phase_ = Phase::scale;
  const spec::Knobs from = first_fitting_->request.spec.knobs;
  const std::vector<std::string> ladder = recompute_ladder();
  std::vector<TrialRequest> ranked;
  int64_t num_points = 0;
  const std::vector<spec::Knobs> layouts = space_.product(
      from, {"pipeline_model_parallel_size", "context_parallel_size", "expert_model_parallel_size",
             "micro_batch_size", "decoder_first_pipeline_num_layers",
             "decoder_last_pipeline_num_layers"});
  for (const spec::Knobs& layout : layouts) {
    ++num_points;
    if (is_illegal(layout, Phase::scale, "scale: " + describe(layout))) continue;
    std::optional<TrialRequest> smallest;
    bool has_fit = false;
    for (const std::string& rung : ladder) {
      spec::Knobs knobs = layout;
      knobs.recompute = rung;
      if (!space_.check(knobs).empty()) continue;
      TrialRequest request = request_for(knobs, Phase::scale, "scale: " + describe(knobs));
      if (fits(request)) {
        ranked.push_back(std::move(request));
        has_fit = true;
        break;
      }
      if (!smallest || request.prediction.peak_bytes < smallest->prediction.peak_bytes) {
        smallest = std::move(request);
      }
    }
    if (!has_fit && smallest) {
      refuse(*smallest, Action::pruned, over_capacity_text(*smallest), kMaxPrunedPerPhase);
    }
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const TrialRequest& a, const TrialRequest& b) {
    return a.prediction.step_ns < b.prediction.step_ns;
  });
  std::set<std::array<int64_t, 3>> seen;
  const auto layout_key = [](const spec::Knobs& k) {
    return std::array<int64_t, 3>{k.context_parallel_size, k.expert_model_parallel_size,
                                  k.pipeline_model_parallel_size};
  };
  decide(Phase::scale, "note",
         fmt::format("{} layouts considered, {} legal ones fit with some recompute setting; the {} "
                     "predicted to be fastest are measured, each layout once.",
                     num_points, ranked.size(), sweep_.scale_trials));
  int64_t num_measured = 0;
  for (TrialRequest& request : ranked) {
    if (num_measured >= sweep_.scale_trials) break;
    if (!seen.insert(layout_key(request.spec.knobs)).second) continue;
    if (request.hash == incumbent_->request.hash) continue;
    ++num_measured;
    const spec::Knobs knobs = request.spec.knobs;
    const Trial trial = measure(std::move(request));
    const Comparison change = compare(incumbent_->outcome, trial.outcome, sweep_.min_gain_ratio);
    const bool is_kept = trial.is_ok() && change.is_gain;
    Decision& decision = decide(
        Phase::scale, is_kept ? "kept" : "rejected",
        !trial.is_ok() ? fmt::format("{} ended as {}: {}.", describe(knobs),
                                     spec::name_of(trial.outcome.status), trial.outcome.reason)
                       : fmt::format("{}: {} per step, {} {} than before.", describe(knobs),
                                     base::format_ns(trial.outcome.step_ns),
                                     base::format_ratio(std::abs(change.gain_ratio)),
                                     change.gain_ratio >= 0 ? "faster" : "slower"));
    decision.trial_hash = trial.request.hash;
    decision.baseline_hash = incumbent_->request.hash;
    decision.remedy = "layout";
    decision.knob = "layout";
    decision.value_before = describe(incumbent_->request.spec.knobs);
    decision.value_after = describe(knobs);
    decision.gain_ratio = change.gain_ratio;
    decision.noise_ratio = change.noise_ratio;
    if (!is_kept) continue;
    runner_up_ = incumbent_;
    incumbent_ = trial;
    best_hash_ = trial.request.hash;
  }
}

// Where does the incumbent's time go, what does the playbook name for that, does it gain more than
// the noise? Again from the profile after each change that was kept.
void ThreeWalls::retune() {
  do {
    note_wall();
  } while (retune_once());
}

void ThreeWalls::note_wall() {
  phase_ = Phase::profile;
  const TrialOutcome& outcome = incumbent_->outcome;
  Decision& wall = decide(
      Phase::profile, "wall",
      fmt::format("At {} per step the wall is {}{}: {}. Memory: {} of {}.",
                  base::format_ns(outcome.step_ns), outcome.wall.empty() ? "unknown" : outcome.wall,
                  outcome.dominant_group.empty() || outcome.wall != "communication"
                      ? ""
                      : fmt::format(" (group {})", outcome.dominant_group),
                  describe_shares(outcome), base::format_bytes(outcome.peak_bytes),
                  base::format_bytes(sweep_.base.hardware.memory_bytes)));
  wall.trial_hash = incumbent_->request.hash;
  wall.wall = outcome.wall;
  wall.evidence["shares"] = outcome.shares;
  wall.evidence["dominant_group"] = outcome.dominant_group;
  const WallReading reading = read_walls(outcome);
  for (const Wall other : {Wall::memory, Wall::communication, Wall::host}) {
    wall.evidence["gain_ceiling"][name_of(other)] = reading.ceiling(other);
  }
}

bool ThreeWalls::retune_once() {
  phase_ = Phase::retune;
  const TrialOutcome& outcome = incumbent_->outcome;
  const spec::Knobs now_knobs = incumbent_->request.spec.knobs;
  const Situation situation{space_, now_knobs, outcome};
  const WallReading reading = read_walls(outcome);
  // By the same state of the cost model as the candidates.
  TrialRequest again = incumbent_->request;
  predict(again);
  const auto expected_now = static_cast<double>(again.prediction.step_ns);
  std::set<std::string> looked_at;
  for (const Wall wall : reading.order()) {
    // A wall that could not give back more than the smallest gain that counts is none.
    if (wall != reading.binding && wall != Wall::compute &&
        reading.share(wall) < sweep_.min_gain_ratio) {
      continue;
    }
    for (const Remedy& remedy : remedies_for(wall, Purpose::speed, situation)) {
      const std::string before = spec::get_knob(now_knobs, *spec::find_knob(remedy.row->knob));
      const std::string title = fmt::format("{} {} -> {}", remedy.row->knob, before, remedy.value);
      TrialRequest request = request_for(remedy.knobs, Phase::retune, title);
      if (!looked_at.insert(request.hash).second) continue;
      if (is_illegal(remedy.knobs, Phase::retune, title)) continue;
      if (!fits(request)) {
        refuse(request, Action::pruned, over_capacity_text(request), kMaxPrunedPerPhase);
        continue;
      }
      const auto expected = static_cast<double>(request.prediction.step_ns);
      if (!is_measured(request.hash) && expected > kHopelessSlowdown * expected_now) {
        refuse(request, Action::pruned,
               fmt::format("predicted to be {} slower than the best so far",
                           base::format_ratio(expected / expected_now - 1.0)),
               kMaxPrunedPerPhase);
        continue;
      }
      const Trial trial = measure(std::move(request));
      const Comparison change = compare(outcome, trial.outcome, sweep_.min_gain_ratio);
      const bool is_kept = trial.is_ok() && change.is_gain;
      Decision& decision = decide(
          Phase::retune, is_kept ? "kept" : "rejected",
          !trial.is_ok() ? fmt::format("{}: ended as {} ({}).", title,
                                       spec::name_of(trial.outcome.status), trial.outcome.reason)
          : is_kept      ? fmt::format("{}: {} faster, more than the noise of {}. {}", title,
                                       base::format_ratio(change.gain_ratio),
                                       base::format_ratio(change.noise_ratio), remedy.row->why)
                         : fmt::format(
                               "{}: {} {}, not kept (a gain has to exceed {}).", title,
                               base::format_ratio(std::abs(change.gain_ratio)),
                          change.gain_ratio >= 0 ? "faster" : "slower",
                               base::format_ratio(std::max(change.noise_ratio, sweep_.min_gain_ratio))));
      decision.trial_hash = trial.request.hash;
      decision.baseline_hash = incumbent_->request.hash;
      decision.wall = name_of(wall);
      decision.remedy = remedy.row->name;
      decision.knob = remedy.row->knob;
      decision.value_before = before;
      decision.value_after = remedy.value;
      decision.gain_ratio = change.gain_ratio;
      decision.noise_ratio = change.noise_ratio;
      if (!is_kept) continue;
      runner_up_ = incumbent_;
      incumbent_ = trial;
      best_hash_ = trial.request.hash;
      return true;
    }
  }
  decide(Phase::retune, "note",
         "No remedy of the playbook gains more than the noise on any wall any more.");
  return false;
}

// The winner once more over a long window: its numbers stay right, its loss falls, its step time
// holds.
void ThreeWalls::validate() {
  phase_ = Phase::validate;
  is_validating_ = true;
  std::vector<Trial> candidates = {*incumbent_};
  if (runner_up_) candidates.push_back(*runner_up_);
  for (const Trial& candidate : candidates) {
    TrialRequest request = candidate.request;
    request.spec = validation_spec(candidate.request.spec.knobs);
    request.spec.reference_loss = reference_loss_;
    request.hash = spec::spec_hash(request.spec);
    request.phase = Phase::validate;
    request.is_final = true;
    request.is_baseline = false;
    request.title = fmt::format("validation over {} steps", sweep_.validate_steps);
    predict(request);
    const Trial trial = measure(std::move(request));
    double lowest_loss = trial.outcome.losses.empty() ? 0 : trial.outcome.losses.front();
    for (const double loss : trial.outcome.losses) lowest_loss = std::min(lowest_loss, loss);
    const bool has_learned =
        sweep_.validate_max_loss <= 0 ||
        (!trial.outcome.losses.empty() && trial.outcome.losses.back() < sweep_.validate_max_loss);
    const bool is_kept = trial.is_ok() && has_learned;
    const double drift = candidate.outcome.step_ns > 0
                             ? static_cast<double>(trial.outcome.step_ns) /
                                       static_cast<double>(candidate.outcome.step_ns) -
                                   1.0
                             : 0.0;
    Decision& decision = decide(
        Phase::validate, is_kept ? "kept" : "rejected",
        trial.is_ok()
            ? fmt::format("{} steps: loss {:.3f} at the end ({:.3f} at the lowest{}), {} per step, "
                          "{} {} than in screening.",
                          trial.outcome.losses.size(),
                          trial.outcome.losses.empty() ? 0.0 : trial.outcome.losses.back(),
                          lowest_loss,
                          sweep_.validate_max_loss > 0
                              ? fmt::format(", {:.2f} asked for", sweep_.validate_max_loss)
                              : "",
                          base::format_ns(trial.outcome.step_ns),
                          base::format_ratio(std::abs(drift)), drift > 0 ? "slower" : "faster")
            : fmt::format("The validation ended as {}: {}.", spec::name_of(trial.outcome.status),
                          trial.outcome.reason));
    decision.trial_hash = trial.request.hash;
    decision.baseline_hash = candidate.request.hash;
    decision.wall = trial.outcome.wall;
    decision.gain_ratio = -drift / (1.0 + drift);
    if (!is_kept) continue;
    best_hash_ = trial.request.hash;
    const Comparison total = compare(first_fitting_->outcome, trial.outcome, 0);
    Decision& verdict = decide(
        Phase::validate, "note",
        fmt::format("Validated: {}. {:.2f} times the throughput of the first configuration that "
                    "fitted.",
                    describe(trial.request.spec.knobs), 1.0 + total.gain_ratio));
    verdict.trial_hash = trial.request.hash;
    verdict.baseline_hash = first_fitting_->request.hash;
    verdict.gain_ratio = total.gain_ratio;
    verdict.noise_ratio = total.noise_ratio;
    return;
  }
}

ThreeWalls::Trial ThreeWalls::measure(TrialRequest request) {
  const auto known = outcomes_.find(request.hash);
  if (!is_measured(request.hash)) {
    // One trial is kept back for the validation.
    if (!is_validating_ && num_started_ + 1 >= sweep_.budget.max_trials) throw BudgetSpent{};
    pending_ = std::move(request);
    throw Pending{};
  }
  ++num_started_;
  Trial trial{std::move(request), known->second};
  if (trial.is_ok() && !trial.outcome.op_times.empty()) {
    ++num_calibrations_;
    if (cost_models_.size() <= num_calibrations_) {
      cost_models_.push_back(cost_models_.back());
      cost_models_.back().add(trial.request.spec, trial.outcome);
    }
  }
  return trial;
}

void ThreeWalls::refuse(TrialRequest request, Action action, const std::string& reason,
                        int64_t limit) {
  const bool is_invalid = action == Action::invalid;
  // Invalid points are counted by rule, pruned ones by phase.
  const std::string kind = is_invalid ? reason.substr(0, reason.find(':'))
                                      : fmt::format("{} pruned", name_of(request.phase));
  if (!refused_.insert(request.hash).second) return;
  const int64_t count = ++num_refused_[kind];
  if (count > limit || outcomes_.contains(request.hash)) return;
  request.action = action;
  request.reason = reason;
  pending_ = std::move(request);
  throw Pending{};
}

bool ThreeWalls::is_illegal(const spec::Knobs& knobs, Phase phase, const std::string& title) {
  const std::vector<spec::Violation> violations = space_.check(knobs);
  if (violations.empty()) return false;
  refuse(request_for(knobs, phase, title), Action::invalid,
         fmt::format("{}: {}", violations.front().rule, violations.front().message),
         kMaxInvalidPerRule);
  return true;
}

std::vector<std::string> ThreeWalls::recompute_ladder() const {
  std::vector<std::string> ladder = space_.values("recompute");
  std::stable_sort(ladder.begin(), ladder.end(), [](const auto& a, const auto& b) {
    return recompute_weight(a) < recompute_weight(b);
  });
  return ladder;
}

TrialRequest ThreeWalls::request_for(const spec::Knobs& knobs, Phase phase, std::string title) {
  TrialRequest request;
  request.spec = sweep_.base;
  request.spec.knobs = knobs;
  request.spec.reference_loss = reference_loss_;
  request.hash = spec::spec_hash(request.spec);
  request.phase = phase;
  request.title = std::move(title);
  if (space_.check(knobs).empty()) predict(request);
  return request;
}

void ThreeWalls::predict(TrialRequest& request) {
  const auto key = std::pair(request.hash, num_calibrations_);
  auto found = predictions_.find(key);
  if (found == predictions_.end()) {
    Prediction prediction;
    const MemoryEstimate memory = estimate_memory(request.spec, rows_);
    prediction.peak_bytes = memory.peak_bytes;
    prediction.memory_grade = memory.grade;
    for (const RankMemory& rank : memory.ranks) {
      Prediction::Rank out;
      out.peak_bytes = rank.peak_bytes;
      for (size_t group = 0; group < rank.group_bytes.size(); ++group) {
        out.group_bytes[name_of(static_cast<MemoryGroup>(group))] = rank.group_bytes[group];
      }
      prediction.ranks.push_back(std::move(out));
    }
    const CostEstimate step = cost_models_[num_calibrations_].estimate(request.spec);
    prediction.step_ns = step.step_ns;
    prediction.step_parts_ns = step.parts_ns;
    prediction.time_grade = step.grade;
    found = predictions_.emplace(key, std::move(prediction)).first;
  }
  request.prediction = found->second;
}

// A configuration fits when its short trial fits and, as far as the routing of the reference run
// can tell, the long validation, too.
bool ThreeWalls::fits(const TrialRequest& request) {
  const auto limit =
      static_cast<double>(sweep_.base.hardware.memory_bytes) * (1.0 - sweep_.memory_margin_ratio);
  if (limit <= 0) return true;
  if (static_cast<double>(request.prediction.peak_bytes) > limit) return false;
  auto found = long_run_peaks_.find(request.hash);
  if (found == long_run_peaks_.end()) {
    const int64_t peak = estimate_memory(validation_spec(request.spec.knobs), rows_).peak_bytes;
    found = long_run_peaks_.emplace(request.hash, peak).first;
  }
  return static_cast<double>(found->second) <= limit;
}

spec::TrialSpec ThreeWalls::validation_spec(const spec::Knobs& knobs) const {
  spec::TrialSpec spec = sweep_.base;
  spec.knobs = knobs;
  spec.num_steps = sweep_.validate_steps;
  return spec;
}

bool ThreeWalls::is_measured(const std::string& hash) const {
  const auto known = outcomes_.find(hash);
  return known != outcomes_.end() && known->second.status != spec::TrialStatus::pruned;
}

std::string ThreeWalls::over_capacity_text(const TrialRequest& request) const {
  const int64_t capacity = sweep_.base.hardware.memory_bytes;
  if (request.prediction.peak_bytes <= capacity && long_run_peaks_.contains(request.hash)) {
    return fmt::format("predicted peak {} over the validation's steps exceeds the capacity of {}",
                       base::format_bytes(long_run_peaks_.at(request.hash)),
                       base::format_bytes(capacity));
  }
  return fmt::format("predicted peak {} exceeds the capacity of {}",
                     base::format_bytes(request.prediction.peak_bytes),
                     base::format_bytes(capacity));
}

Decision& ThreeWalls::decide(Phase phase, std::string kind, std::string text) {
  Decision& decision = decisions_.emplace_back();
  decision.phase = phase;
  decision.kind = std::move(kind);
  decision.text = std::move(text);
  decision.evidence = nlohmann::json::object();
  return decision;
}

}  // namespace moetune::tuner

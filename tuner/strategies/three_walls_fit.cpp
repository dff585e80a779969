// The beginning of the workflow, up to something that fits: contract and fit. What each phase looks
// for is said where it begins.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "kernels/base/units.h"
#include "tuner/divergence.h"
#include "tuner/judgement.h"
#include "tuner/strategies/three_walls.h"

namespace moetune::tuner {
namespace {

constexpr std::string_view kFirstThatFits = "first configuration that fits";

/// How many layout choices differ, data parallelism aside, which follows from the others.
int num_layout_changes(const spec::Knobs& a, const spec::Knobs& b) {
  int changes = a.micro_batch_size != b.micro_batch_size;
  changes += a.pipeline_model_parallel_layout != b.pipeline_model_parallel_layout;
  for (const spec::LayoutSize& size : spec::layout_sizes()) {
    if (size.member != &spec::Knobs::data_parallel_size)
      changes += a.*size.member != b.*size.member;
  }
  return changes;
}

// The last axis changes first in a product, so what costs least comes last.
std::vector<std::string_view> fit_axes() {
  const std::span<const std::string_view> cheap = fit_sizes();
  std::vector<std::string_view> axes = layout_knobs({});
  std::erase_if(
      axes, [&](std::string_view axis) { return std::ranges::find(cheap, axis) != cheap.end(); });
  axes.insert(axes.begin(), "micro_batch_size");
  axes.insert(axes.end(), cheap.begin(), cheap.end());
  axes.insert(axes.end(), {"exp_avg_sq_dtype", "exp_avg_dtype"});
  return axes;
}

}  // namespace

// What is compared is frozen first: model, data, recipe, precision, steps. A run on one ideal
// device (no memory limit, no launch costs) gives the losses every other trial must reproduce, and
// where the router sends each token.
bool ThreeWalls::contract() {
  phase_ = Phase::contract;
  if (spec::ranks_of(sweep_.base) == spec::RanksAre::alone) {
    decide(Phase::contract, DecisionKind::note,
           fmt::format(
               "One rank of each layout runs alone (rank {}); its communication moves nothing and "
               "the numbers of the other ranks are made up. So no losses are compared, and step "
               "times are those of the rank's own work: memory, compute and host, never "
               "communication.",
               sweep_.base.fake_rank));
  } else if (!measure_reference()) {
    return false;
  }
  TrialRequest baseline =
      request_for(sweep_.base.knobs, Phase::contract, "baseline: the starting configuration");
  baseline.is_baseline = true;
  const std::vector<spec::Violation> violations = space_.check(sweep_.base.knobs);
  if (!violations.empty()) {
    baseline.reason = fmt::format("{}: {}", violations.front().rule, violations.front().message);
    refuse(baseline, Action::invalid, baseline.reason, 1);
    decide(Phase::contract, DecisionKind::note,
           fmt::format("The starting configuration is not legal ({}).", baseline.reason));
    return true;
  }
  // It runs even when it is predicted not to fit: how it fails is evidence.
  baseline_ = measure_judged(std::move(baseline));
  return true;
}

TrialRequest ThreeWalls::reference_request() const {
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
  // the experts need. But one device takes as many times longer as there are real ones.
  s.num_steps = spec::total_steps(sweep_.base) - 1;
  if (spec::ranks_of(s) != spec::RanksAre::processes) {
    s.num_steps = std::max(s.num_steps, spec::total_steps(validation_spec(sweep_.base.knobs)) - 1);
  }
  s.num_traced_steps = 1;
  s.records_routing = sweep_.base.model.num_experts > 0;
  reference.phase = Phase::contract;
  // Only an emulated device can be ideal.
  const bool is_ideal = !spec::is_on_device(sweep_.base);
  // It changes no bit, and a real device has an end.
  if (!is_ideal) s.knobs.recompute = {spec::RecomputeModule::full};
  reference.title = is_ideal ? "reference: one ideal device, no memory limit, no launch costs"
                             : "reference: one rank with the whole device";
  reference.is_reference = true;
  reference.hash = spec::spec_hash(s);
  return reference;
}

// Once: the program comes by again and again, and a profile is long.
void ThreeWalls::read_rows(const std::string& routing_profile) {
  if (rows_.has_profile()) return;
  const nlohmann::json profile = nlohmann::json::parse(routing_profile, nullptr, false);
  if (!profile.is_object() || !profile.contains("num_steps")) return;
  rows_ = ReceivedRows(spec::routing_profile_from_json(profile), sweep_.base.model,
                       sweep_.base.training);
  last_compiled_.reset();
}

bool ThreeWalls::measure_reference() {
  TrialRequest reference = reference_request();
  // Only an emulated device can be ideal.
  const bool is_ideal = !spec::is_on_device(sweep_.base);
  const Trial trial = measure(std::move(reference));
  is_too_large_for_one_ = trial.outcome.status == spec::TrialStatus::oom && !is_ideal;
  if (is_too_large_for_one_) {
    decide(Phase::contract, DecisionKind::note,
           fmt::format("The model is too large for a reference run on one device ({}). The first "
                       "configuration that fits takes its place: the others must reproduce its "
                       "losses. Where the router sends the tokens is not known before a trial "
                       "runs, so memory is predicted for experts that are loaded alike.",
                       trial.outcome.reason))
        .trial_hash = trial.request.hash;
    return true;
  }
  if (!trial.is_ok()) {
    decide(Phase::contract, DecisionKind::note,
           fmt::format("The reference run on one device ended as {}: {}. Without its losses no "
                       "trial can be judged, so the sweep ends here.",
                       spec::name_of(trial.outcome.status), trial.outcome.reason))
        .trial_hash = trial.request.hash;
    return false;
  }
  if (has_diverged(trial, "reference run")) return false;
  reference_loss_ = trial.outcome.losses;
  read_rows(trial.outcome.routing_profile);
  const spec::TrainingSpec& training = sweep_.base.training;
  Decision& frozen = decide(
      Phase::contract, DecisionKind::note,
      fmt::format(
          "Frozen for every trial: model ({} parameters), text, seed, {} sequences of {} tokens "
          "per "
          "step, {} precision, natural routing. A trial counts only if its losses agree with the "
          "one-device reference, within {} over the first steps: all candidates are "
          "training-equivalent.",
          base::format_count(static_cast<double>(sweep_.base.model.num_parameters())),
          training.global_batch_size, training.seq_length, spec::name_of(sweep_.base.dtype),
          sweep_.base.reference_tolerance));
  frozen.trial_hash = trial.request.hash;
  frozen.evidence["reference_loss"] = reference_loss_;
  if (trial.outcome.wall && is_ideal) {
    const int64_t num_devices = sweep_.base.hardware.num_devices();
    Decision& wall =
        decide(Phase::contract, DecisionKind::wall,
               fmt::format("On one ideal device (no memory limit, no launch costs) a "
                           "step takes {} and the wall is {}. Spread perfectly over "
                           "{} devices that would be {}: whatever a step takes beyond "
                           "it is the price of memory, communication and the host.",
                           base::format_ns(trial.outcome.step_ns), name_of(*trial.outcome.wall),
                           num_devices, base::format_ns(trial.outcome.step_ns / num_devices)));
    wall.trial_hash = trial.request.hash;
    wall.wall = name_of(*trial.outcome.wall);
    wall.evidence = {{"after", evidence_of(trial.outcome)}, {"shares", trial.outcome.shares}};
  }

  return true;
}

bool ThreeWalls::has_diverged(const Trial& trial, std::string_view what) {
  const std::vector<double>& losses = trial.outcome.losses;
  const std::optional<Divergence> divergence = find_divergence(losses);
  if (!divergence) return false;
  Decision& end =
      decide(phase_, DecisionKind::note,
             fmt::format("The {} {}.", what,
                         divergence_text(*divergence, losses, sweep_.base.training.lr)));
  end.trial_hash = trial.request.hash;
  end.evidence["losses"] = losses;
  return true;
}

void ThreeWalls::take_as_reference(const Trial& trial) {
  reference_loss_ = trial.outcome.losses;
  Decision& frozen =
      decide(phase_, DecisionKind::note,
             fmt::format("A trial counts only if its losses agree with those of {}, the first "
                         "configuration that fits, within {} over the first steps.",
                         describe(trial.request.spec.knobs), sweep_.base.reference_tolerance));
  frozen.trial_hash = trial.request.hash;
  frozen.evidence["reference_loss"] = reference_loss_;
}

bool ThreeWalls::keep_start() {
  if (is_too_large_for_one_ && has_diverged(*baseline_, kFirstThatFits)) return false;
  first_fitting_ = incumbent_ = baseline_;
  best_hash_ = baseline_->request.hash;
  Decision& kept = decide(Phase::fit, DecisionKind::kept,
                          fmt::format("The starting configuration fits as it is: {} of {}.",
                                      base::format_bytes(baseline_->outcome.peak_bytes),
                                      base::format_bytes(sweep_.base.hardware.memory_bytes)));
  kept.trial_hash = baseline_->request.hash;
  kept.evidence = {{"after", evidence_of(baseline_->outcome)},
                   {"capacity_bytes", sweep_.base.hardware.memory_bytes}};
  if (is_too_large_for_one_) take_as_reference(*first_fitting_);
  return true;
}

void ThreeWalls::tell_failed_start() {
  const bool is_oom = baseline_->outcome.status == spec::TrialStatus::oom;
  Decision& wall =
      decide(Phase::fit, DecisionKind::wall,
             fmt::format("The starting configuration ({}) ended as {}: {}.",
                         describe(baseline_->request.spec.knobs),
                         spec::name_of(baseline_->outcome.status), baseline_->outcome.reason));
  wall.trial_hash = baseline_->request.hash;
  wall.wall = is_oom ? base::name_of(base::Wall::memory) : "";
  wall.evidence = peak_evidence(baseline_->request);
}

// From little to much: one change of the layout before two, expert parallelism before pipeline
// stages before context parallelism before any other.
std::vector<spec::Knobs> ThreeWalls::layouts_to_fit() {
  spec::Knobs start = sweep_.base.knobs;
  if (space_.is_tunable("use_distributed_optimizer")) {
    const spec::Knobs sharded = space_.with(start, "use_distributed_optimizer", "true");
    if (is_legal(sharded)) start = sharded;
  }
  std::vector<spec::Knobs> layouts = space_.product(start, fit_axes());
  std::stable_sort(layouts.begin(), layouts.end(), [&](const spec::Knobs& a, const spec::Knobs& b) {
    return num_layout_changes(a, start) < num_layout_changes(b, start);
  });
  layouts.insert(layouts.begin(), {start, sweep_.base.knobs});
  std::erase_if(layouts, [&](const spec::Knobs& knobs) {
    return is_illegal(knobs, Phase::fit, "fit: " + describe(knobs));
  });
  return layouts;
}

std::optional<ThreeWalls::Trial> ThreeWalls::try_to_fit(const spec::Knobs& knobs) {
  if (baseline_ && knobs == baseline_->request.spec.knobs) return std::nullopt;
  if (!is_legal(knobs)) return std::nullopt;
  TrialRequest request = request_for(knobs, Phase::fit, "fit: " + describe(knobs));
  const Room room = room_for(request);
  if (room == Room::none) {
    refuse(request, Action::pruned, over_capacity_text(request), kMaxPrunedPerPhase);
    return std::nullopt;
  }
  if (measured_.contains(request.hash)) return std::nullopt;  // the start is a layout, too
  const nlohmann::json predicted = peak_evidence(request);
  // Where it is certain to fit, its trial is what the others are compared with.
  const std::string why =
      room == Room::enough
          ? std::string()
          : fmt::format(
                " Its peak was predicted to be {}: only a trial could tell whether it fits.",
                text_of(peak_of(request)));
  const Trial trial = measure_judged(std::move(request));
  Decision& decision = decide(
      Phase::fit, trial.is_ok() ? DecisionKind::kept : DecisionKind::rejected,
      trial.is_ok()
          ? fmt::format(
                "The first configuration that fits: {}, sharded optimizer {}, with {} of {} ({} "
                "configurations with less were predicted not to fit).{}",
                describe(knobs), knobs.use_distributed_optimizer ? "on" : "off",
                base::format_bytes(trial.outcome.peak_bytes),
                base::format_bytes(sweep_.base.hardware.memory_bytes), num_refused_["fit pruned"],
                why)
          : fmt::format("{} ended as {}: {}.{}", describe(knobs),
                        spec::name_of(trial.outcome.status), trial.outcome.reason, why));
  decision.trial_hash = trial.request.hash;
  decision.wall = base::name_of(base::Wall::memory);
  decision.remedy = "smallest parallelism and recompute that fit";
  decision.evidence = predicted;
  decision.evidence["peak_bytes"] = trial.outcome.peak_bytes;
  decision.evidence["is_fit_certain"] = room == Room::enough;
  if (baseline_) decision.baseline_hash = baseline_->request.hash;
  return trial;
}

// Smallest model parallelism that fits: first what costs nothing (sharded optimizer state), then
// selective recompute, then narrower moments, more expert parallelism before pipeline stages, full
// recompute last: each layout with every rung of the ladder but full, and all of them once more
// with that. What its interval leaves no room for is pruned; where it crosses the capacity a trial
// tells, and what it took narrows the intervals of the others.
bool ThreeWalls::fit() {
  phase_ = Phase::fit;
  if (baseline_ && baseline_->is_ok()) return keep_start();
  if (baseline_) tell_failed_start();
  const std::vector<spec::Knobs> layouts = layouts_to_fit();
  const std::vector<std::string> ladder = recompute_ladder();
  std::string last_failure;  // other than for lack of memory
  for (const bool is_full_turn : {false, true}) {
    for (const spec::Knobs& layout : layouts) {
      for (const std::string& rung : ladder) {
        if ((rung == "full") != is_full_turn) continue;
        spec::Knobs knobs = layout;
        knobs.recompute = spec::RecomputeSet(rung);
        const std::optional<Trial> trial = try_to_fit(knobs);
        if (!trial) continue;
        if (!trial->is_ok()) {
          if (trial->outcome.status != spec::TrialStatus::oom) {
            last_failure = fmt::format("ended as {}: {}", spec::name_of(trial->outcome.status),
                                       trial->outcome.reason);
          }
          continue;
        }
        if (is_too_large_for_one_ && has_diverged(*trial, kFirstThatFits)) return false;
        first_fitting_ = incumbent_ = *trial;
        best_hash_ = trial->request.hash;
        if (is_too_large_for_one_) take_as_reference(*trial);
        return true;
      }
    }
  }
  if (!last_failure.empty()) {
    decide(Phase::fit, DecisionKind::note,
           fmt::format("No configuration has run to its end; the last one {}.", last_failure));
    return false;
  }
  decide(Phase::fit, DecisionKind::note,
         "Nothing in the space fits into the devices' memory. More devices, a smaller model or "
         "further recompute settings are needed.")
      .wall = base::name_of(base::Wall::memory);
  return false;
}

}  // namespace moetune::tuner

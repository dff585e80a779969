#include "sweeps/adapters/engine_result.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/spec/trial_status.h"
#include "kernels/base/environment_failure.h"
#include "kernels/base/text.h"
#include "kernels/base/units.h"
#include "profiler/analysis/stats.h"
#include "reports/engine_trial.h"
#include "reports/or_null.h"
#include "sweeps/adapters/echo_check.h"
#include "sweeps/adapters/engine_words.h"
#include "sweeps/adapters/stored_step.h"
#include "sweeps/adapters/stored_work.h"
#include "sweeps/adapters/told_log.h"
#include "sweeps/adapters/trial_settings.h"
#include "sweeps/analyse.h"
#include "sweeps/processes/process.h"

namespace moetune::sweeps {
namespace {

using nlohmann::json;
using spec::TrialStatus;
namespace dialects = spec::dialects;

struct EngineVerdict {
  TrialStatus status = TrialStatus::ok;
  std::string reason;
};

/// Of a step line, seconds; from tokens where the line says those alone.
std::optional<double> seconds_of_line(const StepLine& line, int64_t world_size,
                                      double tokens_per_step) {
  if (line.step_time_s) {
    // A log may say inf, 0 or nonsense: no time.
    const bool is_time = std::isfinite(*line.step_time_s) && *line.step_time_s > 0;
    return is_time ? line.step_time_s : std::nullopt;
  }
  const bool is_known = world_size > 0 && tokens_per_step > 0;
  if (is_known && line.tokens_per_s_per_gpu && *line.tokens_per_s_per_gpu > 0) {
    return tokens_per_step / (*line.tokens_per_s_per_gpu * static_cast<double>(world_size));
  }
  return std::nullopt;
}

/// Of all ranks, as the log says, and where it says nothing as the settings do, whose defaults the
/// log may contradict; 0: not known.
double tokens_of_step(const UserRun& run, const tuner::TrialRequest& request,
                      const RunFacts& facts) {
  if (facts.tokens_per_step) return *facts.tokens_per_step;
  // One that nobody has said follows from the ranks.
  const bool is_known = run.config.global_batch_size > 0 || (run.dialect && run.world_size > 0);
  const int64_t own_batch = is_known ? request.spec.training.global_batch_size : 0;
  return static_cast<double>(facts.global_batch_size.value_or(own_batch)) *
         static_cast<double>(facts.seq_length.value_or(run.config.seq_length));
}

/// How the command ended, where its log does not say why.
EngineVerdict verdict_of_end(const CommandEnd& end) {
  switch (end.how) {
    case CommandEnd::How::hung:
      return {TrialStatus::hung, end.detail};
    case CommandEnd::How::interrupted:
      return {TrialStatus::interrupted, "stopped by the user"};
    case CommandEnd::How::out_of_time:
      return {TrialStatus::interrupted, "ended with the time budget"};
    case CommandEnd::How::signalled:
      return {TrialStatus::crashed, "killed by " + signal_text(end.code)};
    case CommandEnd::How::exited:
      break;
  }
  if (end.code == 0) return {};
  const std::string_view words = base::last_line(end.detail).substr(0, 500);
  return {TrialStatus::failed, fmt::format("the command ended with exit code {}{}{}", end.code,
                                           words.empty() ? "" : ": ", words)};
}

/// Why it ended badly; ok where it did not.
EngineVerdict how_it_ended(const EngineLeavings& left) {
  const EngineVerdict by_command = verdict_of_end(left.end);
  if (by_command.status == TrialStatus::interrupted) return by_command;
  const bool has_log = left.facts.has_value();
  const bool has_steps = has_log && left.facts->num_steps > 0;
  const bool is_start_failure =
      left.end.how == CommandEnd::How::exited && (left.end.code == 126 || left.end.code == 127);
  if (is_start_failure && !has_steps) {
    throw base::EnvironmentFailure("the command cannot be started: " + by_command.reason);
  }
  if (!has_log) {
    if (by_command.status != TrialStatus::ok) return by_command;
    return {TrialStatus::failed,
            "the command succeeded, but no training log was found; see the key 'engine.log'"};
  }
  const RunFacts& facts = *left.facts;
  if (facts.root && facts.status != ForeignStatus::ok && facts.root->is_of_the_machine()) {
    throw base::EnvironmentFailure("the machine cannot run it: " + facts.reason);
  }
  switch (facts.status) {
    case ForeignStatus::interrupted:
      // Ended by us, it may well say so.
      if (left.end.how != CommandEnd::How::exited) return by_command;
      throw base::EnvironmentFailure(
          fmt::format("the run was stopped from outside, so it says nothing about its settings: {}",
                      facts.reason));
    case ForeignStatus::ok:
    case ForeignStatus::truncated:
    case ForeignStatus::unknown:
      return by_command;
    default:
      break;
  }
  for (const ForeignStatusRow& row : spec::NameTable<ForeignStatus>::kRows) {
    if (row.value == facts.status) return {row.trial, facts.reason};
  }
  return by_command;
}

/// Whether it has done what was asked for.
EngineVerdict check_steps(const UserRun& run, const tuner::TrialRequest& request,
                          const RunFacts& facts) {
  const int64_t optimizer_steps = steps_made(facts) - facts.num_skipped_steps;
  if (optimizer_steps < kFewestOptimizerSteps) {
    return {TrialStatus::failed, fmt::format("{} optimizer steps, at least {} have to be made",
                                             optimizer_steps, kFewestOptimizerSteps)};
  }
  std::string early = early_end(run, request, facts);
  if (early.empty()) return {};
  return {TrialStatus::failed, std::move(early)};
}

/// Steps whose losses are compared in the mean.
constexpr size_t kSmoothedSteps = 5;

/// Lines in a row without a loss that are taken for more than a line which somebody else has cut.
constexpr size_t kMostSilentLines = 2;

/// By step lines, as those of the baseline are stored: logs have a line every so many steps. What a
/// line does not say is not a number; steps that were skipped have none.
std::vector<double> losses_of(const RunFacts& facts) {
  std::vector<double> losses;
  for (const StepLine& line : facts.steps) {
    if (!line.loss && line.num_skipped.value_or(0) > 0) continue;
    losses.push_back(line.loss.value_or(std::nan("")));
  }
  return losses;
}

/// Where lines show no loss though those of the baseline do: a framework may leave out what is no
/// number.
EngineVerdict check_silence(const std::vector<double>& losses,
                            const std::vector<double>& expected) {
  const size_t most = std::min(losses.size(), expected.size());
  size_t num_silent = 0;
  for (size_t i = 0; i < most; ++i) {
    const bool is_silent = std::isfinite(expected[i]) && !std::isfinite(losses[i]);
    num_silent = is_silent ? num_silent + 1 : 0;
    if (num_silent <= std::min(kMostSilentLines, most - 1)) continue;
    return {TrialStatus::wrong,
            fmt::format("line {} about a step and {} before it show no loss, those of the baseline "
                        "do: it may be no number",
                        i + 1, num_silent - 1)};
  }
  return {};
}

EngineVerdict check_losses(const UserRun& run, const tuner::TrialRequest& request,
                           const RunFacts& facts) {
  if (facts.num_nan_steps > 0) {
    return {TrialStatus::wrong, fmt::format("the loss is not a number in {} steps, from step {} on",
                                            facts.num_nan_steps, facts.first_nan_step.value_or(0))};
  }
  const std::vector<double> losses = losses_of(facts);
  const std::vector<double>& expected = request.spec.reference_loss;
  const EngineVerdict silence = check_silence(losses, expected);
  if (silence.status != TrialStatus::ok) return silence;
  const double band = run.engine().loss_band_ratio;
  // Single steps differ by chance: means over some of them, from the first on.
  for (size_t i = 0; i < std::min(losses.size(), expected.size()); ++i) {
    const size_t first = i + 1 < kSmoothedSteps ? 0 : i + 1 - kSmoothedSteps;
    double sum = 0;
    double expected_sum = 0;
    int count = 0;
    for (size_t step = first; step <= i; ++step) {
      if (!std::isfinite(losses[step]) || !std::isfinite(expected[step])) continue;
      sum += losses[step];
      expected_sum += expected[step];
      ++count;
    }
    const bool is_whole = count > 0 && i + 1 >= std::min(kSmoothedSteps, losses.size());
    if (!is_whole || expected_sum <= 0) continue;
    if (std::abs(sum - expected_sum) <= band * expected_sum) continue;
    return {
        TrialStatus::wrong,
        fmt::format("loss {:.4f} in the mean of {} lines up to {}, the baseline has {:.4f}: more "
                    "than {} off",
                    sum / count, count, i + 1, expected_sum / count, base::format_ratio(band))};
  }
  return {};
}

void add_times(const UserRun& run, const tuner::TrialRequest& request, const RunFacts& facts,
               store::ShardContents& shard, store::TrialResult& result) {
  const double tokens = tokens_of_step(run, request, facts);
  const int64_t world_size = facts.world_size.value_or(run.world_size);
  const int64_t first = facts.first_step.value_or(1);
  std::vector<double> samples;
  for (const StepLine& line : facts.steps) {
    const auto seconds = seconds_of_line(line, world_size, tokens);
    const int64_t place = line.step - first;
    const bool is_warmup = place < request.spec.num_warmup_steps;
    if (seconds && !is_warmup) samples.push_back(*seconds * 1e9);
    if (!line.loss || !std::isfinite(*line.loss) || place < 0) continue;
    store::ShardStep step;
    step.step = place;
    step.is_warmup = is_warmup;
    step.is_traced = request.is_profiled && !is_warmup;
    step.step_ns = std::llround(seconds.value_or(0) * 1e9);
    step.loss = *line.loss;
    step.grad_norm = line.grad_norm.value_or(0);
    step.lr = line.learning_rate.value_or(0);
    shard.steps.push_back(step);
  }
  if (samples.empty() && facts.step_time) {
    for (const double seconds : facts.step_time->steady_s) samples.push_back(seconds * 1e9);
  }
  if (result.status != spec::name_of(TrialStatus::ok)) return;
  if (samples.empty()) {
    result.status = spec::name_of(TrialStatus::failed);
    result.reason = "the log has no step time after the warm-up";
    return;
  }
  // Profiled runs have samples as well; the search does not compare them (settings_search.cpp).
  for (const double ns : samples) result.samples_ns.push_back(std::llround(ns));
  const profiler::MedianInterval median = profiler::median_interval(samples);
  result.step_ns = std::llround(median.median);
  result.step_ns_low = std::llround(median.low);
  result.step_ns_high = std::llround(median.high);
  result.metrics.push_back({-1, "step_ns", median.median});
  result.metrics.push_back({-1, "step_ns_low", median.low});
  result.metrics.push_back({-1, "step_ns_high", median.high});
  result.metrics.push_back({-1, "noise_ratio", median.noise_ratio()});
  result.metrics.push_back({-1, "num_timed_steps", static_cast<double>(samples.size())});
  // Without a batch and a length that are known there is nothing to multiply.
  if (tokens > 0 && median.median > 0) {
    result.tokens_per_s = tokens * 1e9 / median.median;
    result.metrics.push_back({-1, "tokens_per_s", *result.tokens_per_s});
  }
  if (!shard.steps.empty()) result.loss_final = shard.steps.back().loss;
}

void add_memory(const UserRun& run, const RunFacts& facts, store::ShardContents& shard,
                store::TrialResult& result) {
  if (facts.peak_memory) {
    result.peak_bytes = facts.peak_memory->bytes;
    result.metrics.push_back({-1, "peak_bytes", static_cast<double>(facts.peak_memory->bytes)});
  }
  const int64_t capacity =
      run.hardware != nullptr ? run.hardware->memory_bytes : facts.device_bytes.value_or(0);
  std::map<int, int64_t> by_rank;
  for (const MemoryReading& reading : facts.memory) {
    const bool is_alike = facts.peak_memory && reading.kind == facts.peak_memory->kind &&
                          reading.is_peak == facts.peak_memory->is_peak;
    if (is_alike && reading.rank >= 0) {
      by_rank[reading.rank] = std::max(by_rank[reading.rank], reading.bytes);
    }
  }
  for (const auto& [rank, bytes] : by_rank) {
    store::ShardMemory memory;
    memory.rank = rank;
    memory.peak_bytes = bytes;
    memory.capacity_bytes = capacity;
    shard.memory.push_back(memory);
  }
}

void add_ceilings(const profiler::ImportedWall& wall, store::TrialResult& result) {
  std::array<double, base::kNumWalls> ratios = wall.ceilings;
  const auto compute = static_cast<size_t>(base::Wall::compute);
  ratios[compute] = wall.shares[compute];
  add_wall_ratios(ratios, result.metrics);
  if (!base::is_recoverable(wall.label) || wall.share_ratio <= 0 || wall.share_ratio >= 1) return;
  result.metrics.push_back({-1, "gain_ceiling_ratio", wall.share_ratio / (1 - wall.share_ratio)});
}

/// From step to step, or the one that was marked; 0: none is.
double traced_step_ns(const Diagnosis& diagnosis) {
  if (const auto seconds = step_time_s(diagnosis)) return *seconds * 1e9;
  const bool has_one = std::ranges::all_of(
      diagnosis.traces, [](const auto& trace) { return trace.steps.size() == 1; });
  return has_one ? diagnosis.wall.window_ns : 0;
}

void add_wall(const Diagnosis& diagnosis, store::TrialResult& result) {
  const profiler::ImportedWall& wall = diagnosis.wall;
  std::vector<profiler::Evidence> evidence = wall.evidence;
  const std::vector<std::string> lines = evidence_texts(wall);
  for (size_t i = 0; i < lines.size(); ++i) evidence[i].text = lines[i];
  if (const double ns = traced_step_ns(diagnosis); ns > 0) {
    evidence.push_back(
        {kTracedStepFact, ns, "ns",
         fmt::format("a step in the traces took {}", base::format_ns(std::llround(ns)))});
  }
  result.wall = base::name_of(wall.label);
  add_ceilings(wall, result);
  const bool is_replayed = wall.num_steps > 0;
  result.texts.push_back(
      {kWallEvidenceText, json{{"label", base::name_of(wall.label)},
                               {"sub_cause", wall.sub_cause},
                               {"rank", reports::or_null(wall.rank)},
                               {"share_ratio", wall.share_ratio},
                               {"low_ratio", is_replayed ? json(wall.low_ratio) : json()},
                               {"high_ratio", is_replayed ? json(wall.high_ratio) : json()},
                               {"most_ratio", reports::or_null(wall.most_ratio)},
                               {"joint_ratio", reports::or_null(wall.joint_ratio)},
                               {"num_replayed_steps", wall.num_steps},
                               {"unknown_ratio", wall.unknown_ratio},
                               {"label_ceilings", profiler::by_name(wall.ceilings)},
                               {"ceilings", profiler::by_name(wall.sub_ceilings)},
                               {"summary", wall.summary},
                               {"evidence", evidence_json(evidence)}}
                              .dump(-1, ' ', false, json::error_handler_t::replace)});
}

}  // namespace

bool asks_for_steps(const UserRun& run) {
  return run.dialect || has_placeholder(run.engine().run, "steps");
}

int64_t steps_made(const RunFacts& facts) {
  return facts.last_step ? *facts.last_step - facts.first_step.value_or(1) + 1 : 0;
}

std::string early_end(const UserRun& run, const tuner::TrialRequest& request,
                      const RunFacts& facts) {
  const int64_t asked = launched_steps(request);
  // What started again goes on from a checkpoint: the steps before that were made, too.
  const int64_t done = facts.num_attempts > 1 ? facts.last_step.value_or(0) : steps_made(facts);
  // Behind the last line that stands every so many steps there may be steps without one.
  const int64_t interval = facts.step_time ? facts.step_time->interval : 1;
  if (!asks_for_steps(run) || done + interval > asked) return {};
  // It has ended as it was told to, and by which setting the dialect's table tells.
  const std::string key = run.dialect ? total_steps_setting(*run.dialect) : "";
  const bool is_cut = !key.empty() && facts.total_steps && *facts.total_steps < asked;
  return fmt::format("ended after {} of {} steps{}", done, asked,
                     is_cut ? fmt::format(": {} is {}, raise it", key, *facts.total_steps) : "");
}

void check_environment(const EngineLeavings& left) { how_it_ended(left); }

store::TrialResult engine_result(const UserRun& run, const tuner::TrialRequest& request,
                                 const EngineLeavings& left) {
  store::TrialResult result;
  result.num_steps = request.num_steps > 0 ? request.num_steps : request.spec.num_steps;
  EngineVerdict verdict = how_it_ended(left);
  const auto check = [&](const EngineVerdict& next) {
    if (verdict.status == TrialStatus::ok) verdict = next;
  };
  if (left.facts) {
    check(check_steps(run, request, *left.facts));
    check(check_losses(run, request, *left.facts));
    std::string wrong = echo_mismatch(run, request, *left.facts);
    const std::string sizes = size_mismatch(run, *left.facts);
    if (!wrong.empty() && !sizes.empty()) wrong += "; ";
    wrong += sizes;
    if (!wrong.empty()) {
      check({TrialStatus::failed,
             fmt::format("the run's own configuration is another than the one asked for: {}",
                         wrong)});
    }
  }
  result.status = spec::name_of(verdict.status);
  result.reason = verdict.reason;
  store::ShardContents shard;
  if (left.facts) {
    add_times(run, request, *left.facts, shard, result);
    add_memory(run, *left.facts, shard, result);
    dialects::RunConfig echoed;
    for (const EchoedSetting& setting : left.facts->echoed.settings) {
      echoed.unknown.push_back({setting.key, setting.value});
    }
    if (dialects::forces_balance(run.config) || dialects::forces_balance(echoed)) {
      result.texts.push_back({reports::kForcedBalancingText,
                              "experts were forced to be balanced: no figure of this trial holds "
                              "for real routing"});
    }
    for (const std::string& note : left.facts->notes) result.texts.push_back({"note", note});
    if (!left.facts->loss) {
      result.texts.push_back(
          {"note", "the log shows no loss: whether it still learns the same was not checked"});
    }
    const std::string other = framework_mismatch(run, *left.facts);
    if (!other.empty()) result.texts.push_back({"note", other});
    for (const std::string& line : echo_differences(run, request, *left.facts)) {
      result.texts.push_back({"note", line});
    }
    const bool has_echo = left.facts->echoed.form != EchoedConfig::Form::none;
    if (run.dialect && !has_echo) {
      result.texts.push_back({"note",
                              "the log does not say with which configuration it ran: that it is "
                              "the one asked for was not checked"});
    }
  }
  std::vector<std::string> notes = left.notes;
  if (left.diagnosis && verdict.status == TrialStatus::ok) {
    add_wall(*left.diagnosis, result);
    add_stored_step(*left.diagnosis, shard, notes);
    if (!shard.ops.empty()) {
      const std::string peaks = device_peaks_text(*left.diagnosis);
      if (!peaks.empty()) result.texts.push_back({kDevicePeaksText, peaks});
    }
  }
  for (const std::string& note : notes) result.texts.push_back({"note", note});
  result.shards.push_back(std::move(shard));
  return result;
}

}  // namespace moetune::sweeps

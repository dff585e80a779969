// Differences, combinations and their runs; see config_source.h.
#include "sweeps/bisect/config_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <optional>

#include "kernels/base/error.h"
#include "sweeps/bisect/run_rows.h"
#include "sweeps/bisect/text.h"
#include "sweeps/process.h"
#include "sweeps/runner.h"

namespace moetune::sweeps {
namespace {

using nlohmann::json;
using tuner::ChangeSet;
using tuner::ConfigHunt;

void collect(const json& good, const json& bad, const std::string& path,
             std::vector<ConfigChange>& changes) {
  if (good == bad) return;
  if (!good.is_object() || !bad.is_object()) {
    changes.push_back({path, good, bad});
    return;
  }
  json keys = good;
  keys.update(bad);
  for (const auto& [key, value] : keys.items()) {
    const json missing;
    collect(good.contains(key) ? good.at(key) : missing, bad.contains(key) ? bad.at(key) : missing,
            path + "/" + key, changes);
  }
}

std::string bits_of(const ChangeSet& set) {
  std::string bits;
  for (const bool is_in : set) bits += is_in ? '1' : '0';
  return bits;
}

std::string name_of_change(const ConfigChange& change) {
  return fmt::format("{}: {} -> {}", change.path.substr(1), change.before.dump(),
                     change.after.dump());
}

std::string names_of(const std::vector<ConfigChange>& changes, const ChangeSet& set) {
  std::vector<std::string> names;
  for (size_t i = 0; i < set.size(); ++i) {
    if (set[i]) names.push_back(changes[i].path.substr(changes[i].path.rfind('/') + 1));
  }
  if (names.empty()) return "good";
  return names.size() == set.size() ? "bad" : fmt::format("good with {}", fmt::join(names, ", "));
}

std::string percent(double ratio) { return fmt::format("{:+.2f} %", 100 * ratio); }

json ratio_json(double ratio, double low, double high) {
  return {{"ratio", ratio}, {"low", low}, {"high", high}};
}

}  // namespace

std::vector<ConfigChange> differences(const spec::TrialSpec& good, const spec::TrialSpec& bad) {
  std::vector<ConfigChange> changes;
  collect(spec::to_json(good), spec::to_json(bad), "", changes);
  return changes;
}

spec::TrialSpec with_changes(const spec::TrialSpec& good, const std::vector<ConfigChange>& changes,
                             const ChangeSet& set) {
  json document = spec::to_json(good);
  for (size_t i = 0; i < changes.size(); ++i) {
    if (!set.at(i)) continue;
    const json::json_pointer place(changes[i].path);
    if (changes[i].after.is_null()) {
      document.at(place.parent_pointer()).erase(place.back());
    } else {
      document[place] = changes[i].after;
    }
  }
  return spec::trial_spec_from_json(document, "the configuration between good and bad");
}

CommitRun run_config(const spec::TrialSpec& trial, const ConfigRunnerOptions& options) {
  CommitRun run;
  const std::vector<spec::Violation> violations =
      spec::check_constraints(trial.model, trial.hardware, trial.training, trial.knobs);
  if (!violations.empty()) {
    run.status = RunStatus::build_failed;
    run.message = fmt::format("{}: {}", violations.front().rule, violations.front().message);
    return run;
  }
  RunnerOptions runner;
  runner.rank_program = options.rank_program;
  runner.folder = options.folder;
  runner.text_path = options.text_path;
  runner.step_limit = options.step_limit;
  SystemProcessRunner processes;
  const auto start = std::chrono::steady_clock::now();
  const TrialRun trial_run = run_trial(processes, trial, runner);
  run.run_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const store::TrialResult& result = trial_run.result;
  run.message = plain_text(result.reason, 500);
  if (result.status == "interrupted") run.status = RunStatus::interrupted;
  if (result.status == "oom") run.status = RunStatus::oom;
  if (result.status == "hung") run.status = RunStatus::hung;
  if (result.status == "failed" || result.status == "crashed" || result.status == "wrong") {
    run.status = RunStatus::crashed;
  }
  if (result.status != "ok") return run;
  for (const store::MetricRow& metric : result.metrics) {
    if (metric.rank < 0) run.metrics[metric.name] = metric.value;
  }
  const auto found = run.metrics.find(stored_name_of(options.metric));
  if (found != run.metrics.end()) {
    run.value = found->second;
  } else {
    run.status = RunStatus::no_metric;
    run.message = fmt::format("the trial has no metric '{}'", options.metric);
  }
  return run;
}

ConfigAnswer run_config_hunt(const ConfigSetup& setup, store::Store& store, int64_t hunt_id) {
  ConfigAnswer answer;
  const auto key_of = [&](const ChangeSet& set) {
    return fmt::format("set {}; {}", bits_of(set), setup.key_parts);
  };
  // By set, in their order.
  std::map<std::string, std::vector<CommitRun>> earlier;
  for (const store::BisectRunRow& row : store.read_bisect_runs(hunt_id)) {
    earlier[row.key].push_back(run_of(row));
  }
  std::map<std::string, size_t> used;
  ConfigHunt hunt(setup.options);
  while (const auto request = hunt.next()) {
    const std::string key = key_of(request->changes);
    const size_t n = used[key]++;
    CommitRun run;
    if (n < earlier[key].size()) {
      run = earlier[key][n];
    } else {
      if (setup.is_stop_asked && setup.is_stop_asked()) {
        answer.is_interrupted = true;
        break;
      }
      try {
        run = run_config(with_changes(setup.good, setup.changes, request->changes), setup.runner);
      } catch (const base::UsageError& error) {
        run.status = RunStatus::build_failed;
        run.message = plain_text(error.what(), 500);
      }
      if (run.status == RunStatus::interrupted) {
        answer.is_interrupted = true;
        break;
      }
      store.add_bisect_run(hunt_id, row_of(run, 0, key, tuner::name_of(request->purpose)));
    }
    ++answer.num_runs;
    answer.seconds += run.run_seconds;
    if (run.status == RunStatus::ok && run.value) {
      hunt.add(request->changes, *run.value);
    } else {
      hunt.add_failure(request->changes);
    }
    if (setup.on_progress) {
      setup.on_progress(fmt::format(
          "[{} runs, {:.0f} s] {} ({}): {}; {} changes left", answer.num_runs, answer.seconds,
          names_of(setup.changes, request->changes), tuner::name_of(request->purpose),
          run.value ? fmt::format("{} {:.6g}", setup.runner.metric, *run.value) : run.message,
          hunt.result().suspects.empty() ? setup.changes.size() : hunt.result().suspects.size()));
    }
  }
  answer.result = hunt.result();
  if (answer.is_interrupted) answer.result.reason = "stopped before the end";
  return answer;
}

json to_json(const ConfigAnswer& answer, const ConfigSetup& setup) {
  const tuner::ConfigHuntResult& result = answer.result;
  json culprits = json::array();
  for (const tuner::ConfigCulprit& culprit : result.culprits) {
    json changes = json::array();
    std::vector<std::string> names;
    for (const int index : culprit.changes) {
      const ConfigChange& change = setup.changes[static_cast<size_t>(index)];
      changes.push_back(
          {{"path", change.path}, {"before", change.before}, {"after", change.after}});
      names.push_back(name_of_change(change));
    }
    culprits.push_back({{"changes", std::move(changes)},
                        {"subject", fmt::format("{}", fmt::join(names, " and "))},
                        {"is_interaction", culprit.is_interaction},
                        {"is_improvement", culprit.is_improvement},
                        {"effect", ratio_json(culprit.effect_ratio, culprit.effect_low_ratio,
                                              culprit.effect_high_ratio)},
                        {"before", culprit.before},
                        {"after", culprit.after},
                        {"is_good_restored", culprit.is_good_restored},
                        {"confidence", culprit.confidence}});
  }
  return {{"verdict", tuner::name_of(result.verdict)},
          {"reason", result.reason},
          {"is_swapped", result.is_swapped},
          {"is_interrupted", answer.is_interrupted},
          {"metric", setup.runner.metric},
          {"num_changes", setup.changes.size()},
          {"effect",
           ratio_json(result.effect_ratio, result.effect_low_ratio, result.effect_high_ratio)},
          {"noise_ratio", result.noise_ratio},
          {"detectable_ratio", result.detectable_ratio},
          {"confidence", setup.options.confidence},
          {"min_effect_ratio", setup.options.min_effect_ratio},
          {"no_change", result.no_change},
          {"complete", result.complete},
          {"culprits", std::move(culprits)},
          {"runs", answer.num_runs},
          {"builds", 0},
          {"seconds", answer.seconds}};
}

std::string to_text(const ConfigAnswer& answer, const ConfigSetup& setup) {
  const tuner::ConfigHuntResult& result = answer.result;
  std::string text = fmt::format("verdict: {}\n", tuner::name_of(result.verdict));
  if (!result.reason.empty()) text += fmt::format("  {}\n", result.reason);
  text += fmt::format("  {}: {} between good and bad ({} to {}), noise of one run {:.2f} %\n",
                      setup.runner.metric, percent(result.effect_ratio),
                      percent(result.effect_low_ratio), percent(result.effect_high_ratio),
                      100 * result.noise_ratio);
  if (result.is_swapped) text += "  swapped? try the two files the other way round\n";
  for (const tuner::ConfigCulprit& culprit : result.culprits) {
    text += culprit.is_improvement ? "improvement:\n" : "culprit:\n";
    for (const int index : culprit.changes) {
      text += fmt::format(
          "  {}\n", plain_text(name_of_change(setup.changes[static_cast<size_t>(index)]), 300));
    }
    text += fmt::format("  effect {} ({} to {}), confidence {:.1f} %{}\n",
                        percent(culprit.effect_ratio), percent(culprit.effect_low_ratio),
                        percent(culprit.effect_high_ratio), 100 * culprit.confidence,
                        culprit.is_interaction ? "; only together" : "");
    if (culprit.is_good_restored) text += "  without it, bad is as good as good\n";
  }
  return text + fmt::format("{} runs, {:.0f} s\n", answer.num_runs, answer.seconds);
}

}  // namespace moetune::sweeps

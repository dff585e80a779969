// The hunt over configurations: collects their differences, runs combinations of them, and says the
// answer.
#include "sweeps/bisect/config_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "kernels/base/error.h"
#include "kernels/base/fnv.h"
#include "kernels/base/units.h"
#include "sweeps/bisect/answer_text.h"
#include "sweeps/bisect/effect_text.h"
#include "sweeps/bisect/metric_names.h"
#include "sweeps/bisect/moved.h"
#include "sweeps/bisect/old_runs.h"
#include "sweeps/bisect/reading.h"
#include "sweeps/bisect/run_log.h"
#include "sweeps/bisect/run_rows.h"
#include "sweeps/bisect/text.h"
#include "sweeps/host_room.h"
#include "sweeps/processes/process.h"
#include "sweeps/runner.h"
#include "sweeps/session.h"

namespace moetune::sweeps {
namespace {

using nlohmann::json;
using tuner::ChangeSet;
using tuner::ConfigHunt;

void collect(const json& good, const json& bad, const std::string& path,
             std::vector<SpecChange>& changes) {
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

/// What a store holds of a trial that ended well: operations and memory groups come only with it.
Numbers stored_numbers(const spec::TrialSpec& trial, const store::TrialResult& result,
                       const std::string& folder) {
  const std::string path = folder + ".numbers.db";
  const auto remove = [&] {
    for (const char* end : {"", "-wal", "-shm"}) std::filesystem::remove(path + end);
  };
  remove();
  {
    store::Store store = store::Store::open(path);
    store::TrialRow row;
    row.sweep_id = store.create_or_resume_sweep(single_trials_row(trial)).id;
    row.spec_json = "{}";
    row.spec_hash = base::fnv_digits(spec::to_json(trial).dump());
    row.phase = "profile";
    store.finish_trial(store.begin_trial(row), result);
  }
  Numbers numbers = read_stored(path).numbers;
  remove();
  return numbers;
}

std::string bits_of(const ChangeSet& set) {
  std::string bits;
  for (const bool is_in : set) bits += is_in ? '1' : '0';
  return bits;
}

std::string name_of_change(const SpecChange& change) {
  return fmt::format("{}: {} -> {}", change.path.substr(1), change.before.dump(),
                     change.after.dump());
}

std::string names_of(const std::vector<SpecChange>& changes, const ChangeSet& set) {
  std::vector<std::string> names;
  for (size_t i = 0; i < set.size(); ++i) {
    if (set[i]) names.push_back(changes[i].path.substr(changes[i].path.rfind('/') + 1));
  }
  if (names.empty()) return "good";
  return names.size() == set.size() ? "bad" : fmt::format("good with {}", fmt::join(names, ", "));
}

/// How a configuration fails. Nothing is built here: that status stands for a broken rule.
std::string failing_text(const std::string& failure) {
  return failure == name_of(RunStatus::build_failed) ? "breaks a rule" : "ends as " + failure;
}

}  // namespace

std::vector<SpecChange> differences(const spec::TrialSpec& good, const spec::TrialSpec& bad) {
  std::vector<SpecChange> changes;
  collect(spec::to_json(good), spec::to_json(bad), "", changes);
  return changes;
}

spec::TrialSpec with_changes(const spec::TrialSpec& good, const std::vector<SpecChange>& changes,
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
  const std::vector<spec::Violation> violations = spec::check_constraints(spec::parts_of(trial));
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
  runner.launcher = options.launcher;
  if (runner.launcher.empty()) check_host_memory(trial, host_bytes_of(trial, {}), read_host());
  SystemProcessRunner processes;
  const auto start = std::chrono::steady_clock::now();
  const TrialRun trial_run = run_trial(processes, trial, runner);
  run.run_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const store::TrialResult& result = trial_run.result;
  run.message = plain_text(result.reason, 500);
  run.status = run_status_of(spec::status_from_name(result.status));
  if (run.status != RunStatus::ok) return run;
  run.metrics = stored_numbers(trial, result, options.folder);
  run.value = find_metric(run.metrics, options.metric);
  if (!run.value) {
    run.status = RunStatus::no_metric;
    run.message = fmt::format("the trial has no metric '{}'", options.metric);
  }
  return run;
}

namespace {

/// Runs sets, or takes what was measured earlier. Sets that amount to the same configuration are
/// the same position.
class SetRunner {
 public:
  SetRunner(const ConfigSetup& setup, store::Store& store, int64_t hunt_id, ConfigAnswer& answer)
      : setup_(setup), store_(store), hunt_id_(hunt_id), answer_(answer) {}

  /// False when it was stopped.
  bool take_earlier() {
    const ChangeSet good(setup_.changes.size(), false);
    const ChangeSet bad(setup_.changes.size(), true);
    LookAgain look{position_of(good), position_of(bad)};
    look.value_of = [](const CommitRun& run) { return run.value; };
    look.measure = [&](int end, const std::string& purpose) {
      return measure(end == look.good ? good : bad, purpose);
    };
    look.tell = [this](const std::string& line) {
      if (setup_.on_progress) setup_.on_progress(line);
    };
    look.min_effect_ratio = setup_.options.min_effect_ratio;
    look.confidence = setup_.options.confidence;
    const std::optional<EarlierRuns> earlier = that_still_hold(stored_runs(look.good), look);
    if (!earlier) return false;
    answer_.has_dropped_earlier = earlier->has_dropped;
    for (const HuntRun& run : earlier->runs) log_.keep(run);
    return true;
  }

  /// Index of the nth run of a set; none when it was stopped.
  std::optional<size_t> nth_run(const ChangeSet& set, size_t n, const std::string& purpose) {
    const int position = position_of(set);
    std::optional<size_t> index = log_.nth(position, n);
    while (!index) {
      std::optional<CommitRun> run = measure(set, purpose);
      if (!run) return std::nullopt;
      log_.keep({position, purpose, std::move(*run)});
      index = log_.nth(position, n);
    }
    log_.use(*index);
    answer_.num_runs = log_.num_used();
    answer_.seconds = log_.seconds();
    return index;
  }

  [[nodiscard]] const RunLog& log() const { return log_; }
  [[nodiscard]] RunList good_runs_of(const ChangeSet& set) {
    return log_.good_runs_at(position_of(set));
  }

 private:
  [[nodiscard]] std::vector<HuntRun> stored_runs(int good) {
    if (setup_.is_fresh) return {};
    std::vector<store::BisectRunRow> rows = store_.read_bisect_runs(hunt_id_);
    // Of another build of this program or another machine.
    std::erase_if(rows, [&](const auto& row) { return !row.key.ends_with(setup_.key_parts); });
    std::vector<RunTime> times;
    // The row is written when the run has ended: its started_at is that time.
    for (const auto& row : rows) times.push_back({row.started_at, row.run_seconds});
    const std::vector<int> pauses = pauses_since(times);
    std::vector<HuntRun> runs;
    bool is_good_known = false;
    for (size_t i = 0; i < rows.size(); ++i) {
      runs.push_back({position_of(rows[i].key), rows[i].purpose, run_of(rows[i]), pauses[i]});
      is_good_known |= runs.back().position == good && runs.back().run.status == RunStatus::ok;
    }
    // A good configuration that only failed may have been put right since; without it there is no
    // hunt.
    if (!is_good_known) std::erase_if(runs, [&](const auto& run) { return run.position == good; });
    return runs;
  }

  [[nodiscard]] int position_of(const std::string& key) {
    return positions_.emplace(key, static_cast<int>(positions_.size())).first->second;
  }
  [[nodiscard]] int position_of(const ChangeSet& set) { return position_of(key_of(set)); }

  // By what the set amounts to.
  [[nodiscard]] std::string key_of(const ChangeSet& set) const {
    try {
      const json config = spec::to_json(with_changes(setup_.good, setup_.changes, set));
      return fmt::format("config {}; {}", base::fnv_digits(config.dump()), setup_.key_parts);
    } catch (const base::UsageError&) {
      return fmt::format("set {} of hunt {}; {}", bits_of(set), hunt_id_, setup_.key_parts);
    }
  }

  /// Kept in the store before it is told.
  std::optional<CommitRun> measure(const ChangeSet& set, const std::string& purpose) {
    const bool is_over = setup_.max_seconds > 0 && log_.seconds() >= setup_.max_seconds;
    if (is_over) {
      answer_.result.reason = fmt::format("{:.0f} s are used up", log_.seconds());
    } else if (!setup_.is_stop_asked || !setup_.is_stop_asked()) {
      CommitRun run;
      try {
        run = run_config(with_changes(setup_.good, setup_.changes, set), setup_.runner);
      } catch (const base::UsageError& error) {
        run.status = RunStatus::build_failed;
        run.message = plain_text(error.what(), 500);
      }
      if (run.status != RunStatus::interrupted) {
        store_.add_bisect_run(hunt_id_, row_of(run, 0, key_of(set), purpose));
        return run;
      }
    }
    answer_.is_interrupted = true;
    return std::nullopt;
  }

  const ConfigSetup& setup_;
  store::Store& store_;
  int64_t hunt_id_;
  ConfigAnswer& answer_;
  RunLog log_;
  std::map<std::string, int> positions_;  ///< by key
};

constexpr size_t kFailuresBelieved = 2;  ///< in a row

/// With what the last run has told.
std::string progress_of(const ConfigHunt& hunt) {
  const tuner::ConfigHuntResult& result = hunt.result();
  std::string text;
  if (!result.suspects.empty()) {
    text += fmt::format("; {} left", count_text(result.suspects.size(), "change"));
  }
  if (result.certainty > 0) {
    text += fmt::format(", last set {:.0f} % sure", 100 * result.certainty);
  }
  return text + runs_left_text(hunt.expected_runs_left());
}

ConfigAnswer interrupted(ConfigAnswer answer) {
  answer.result.verdict = tuner::HuntVerdict::unresolved;
  if (answer.result.reason.empty()) answer.result.reason = "stopped before the end";
  return answer;
}

}  // namespace

ConfigAnswer run_config_hunt(const ConfigSetup& setup, store::Store& store, int64_t hunt_id) {
  ConfigAnswer answer;
  answer.metric = answer.hunted_metric = setup.runner.metric;
  answer.unit = base::unit_of_name(stored_metric(setup.runner.metric));
  SetRunner runner(setup, store, hunt_id, answer);
  tuner::ConfigHuntOptions options = setup.options;
  // A bad configuration that cannot be run is the change itself.
  RunStatus failure = RunStatus::ok;
  const ChangeSet bad(setup.changes.size(), true);
  if (!runner.take_earlier()) return interrupted(std::move(answer));
  for (size_t n = 0; n < kFailuresBelieved; ++n) {
    const auto index = runner.nth_run(bad, n, tuner::name_of(tuner::RunPurpose::ends));
    failure = index ? runner.log()[*index].status : RunStatus::ok;
    if (failure == RunStatus::no_metric) failure = RunStatus::ok;
    if (failure == RunStatus::ok) break;
    answer.note = fmt::format("bad {}: hunting for the changes with which it does: {}",
                              failing_text(name_of(failure)), runner.log()[*index].message);
  }
  const bool is_failing = failure != RunStatus::ok;
  const ChangeSet good(setup.changes.size(), false);
  for (size_t n = 0; is_failing && n < kFailuresBelieved; ++n) {
    const auto index = runner.nth_run(good, n, tuner::name_of(tuner::RunPurpose::ends));
    if (!index || runner.log()[*index].status == RunStatus::ok) break;
    if (n + 1 < kFailuresBelieved) continue;
    answer.note.clear();
    answer.result.reason = "the good configuration cannot be measured: " +
                           plain_text(runner.log()[*index].message, 500);
    return answer;
  }
  if (is_failing) {
    answer.failure = name_of(failure);
    answer.hunted_metric = kRunFailsMetric;
    options.is_deterministic = true;
    options.is_higher_better = false;
    if (setup.on_progress) setup.on_progress(answer.note);
  } else {
    answer.note.clear();
  }
  const auto value_of = [&](const CommitRun& run) -> std::optional<double> {
    if (!is_failing) return run.status == RunStatus::ok ? run.value : std::nullopt;
    if (run.status == RunStatus::ok) return 0.0;
    return run.status == failure ? std::optional(1.0) : std::nullopt;
  };
  std::map<std::string, size_t> used;
  std::map<std::string, size_t> failures;
  ConfigHunt hunt(options);
  std::string told;
  std::string last_failure;
  while (!answer.is_interrupted) {
    const auto request = hunt.next();
    if (!told.empty()) setup.on_progress(std::exchange(told, "") + progress_of(hunt));
    if (!request) break;
    const std::string bits = bits_of(request->changes);
    const auto index =
        runner.nth_run(request->changes, used[bits]++, tuner::name_of(request->purpose));
    if (!index) break;
    const CommitRun* run = &runner.log()[*index];
    const std::optional<double> value = value_of(*run);
    if (value) {
      hunt.add(request->changes, *value, runner.log().time_of(*index));
      failures[bits] = 0;
    } else if (run->status == RunStatus::build_failed || ++failures[bits] >= kFailuresBelieved) {
      hunt.add_failure(request->changes);
      last_failure = run->message;
    }
    if (setup.on_progress) {
      told = fmt::format(
          "[{} runs, {:.0f} s] {} ({}): {}", answer.num_runs, answer.seconds,
          names_of(setup.changes, request->changes), tuner::name_of(request->purpose),
          run->value ? fmt::format("{} {:.6g}", setup.runner.metric, *run->value) : run->message);
    }
  }
  const std::string reason = answer.result.reason;
  answer.result = hunt.result();
  if (answer.result.verdict == tuner::HuntVerdict::unresolved && !last_failure.empty()) {
    answer.result.reason += fmt::format(" (the last failure: {})", last_failure);
  }
  if (answer.is_interrupted) {
    answer.result.reason = reason;
    return interrupted(std::move(answer));
  }
  for (const tuner::ConfigCulprit& culprit : answer.result.culprits) {
    ChangeSet alone(setup.changes.size(), false);
    for (const int index : culprit.changes) alone[static_cast<size_t>(index)] = true;
    answer.moved.push_back(
        is_failing ? std::vector<Moved>()
                   : moved_between(runner.good_runs_of(good), runner.good_runs_of(alone),
                                   setup.runner.metric, setup.options.min_effect_ratio));
  }
  if (answer.has_dropped_earlier && answer.result.verdict == tuner::HuntVerdict::no_change) {
    answer.result.verdict = tuner::HuntVerdict::environment_changed;
    answer.result.reason =
        "the ends are alike now, but not what they were when they were run before";
  }
  return answer;
}

namespace {

/// What the bad configuration is off by beyond the sum of what each culprit does alone; none where
/// that is less than the least effect, or not sure.
std::optional<tuner::Effect> interaction_of(const ConfigAnswer& answer, const ConfigSetup& setup) {
  const tuner::ConfigHuntResult& result = answer.result;
  if (!answer.failure.empty() || !result.is_known || result.culprits.size() < 2) {
    return std::nullopt;
  }
  double rest = result.effect_ratio;
  double width = result.effect_high_ratio - result.effect_low_ratio;
  for (const tuner::ConfigCulprit& culprit : result.culprits) {
    rest -= culprit.effect_ratio;
    width = std::hypot(width, culprit.effect_high_ratio - culprit.effect_low_ratio);
  }
  if (std::abs(rest) < std::max(setup.options.min_effect_ratio, width / 2)) return std::nullopt;
  return tuner::Effect{rest, rest - width / 2, rest + width / 2};
}

const std::vector<Moved>& moved_of(const ConfigAnswer& answer, size_t culprit) {
  static const std::vector<Moved> kNone;
  return culprit < answer.moved.size() ? answer.moved[culprit] : kNone;
}

}  // namespace

json to_json(const ConfigAnswer& answer, const ConfigSetup& setup) {
  const tuner::ConfigHuntResult& result = answer.result;
  json culprits = json::array();
  for (size_t i = 0; i < result.culprits.size(); ++i) {
    const tuner::ConfigCulprit& culprit = result.culprits[i];
    json changes = json::array();
    std::vector<std::string> names;
    for (const int index : culprit.changes) {
      const SpecChange& change = setup.changes[static_cast<size_t>(index)];
      changes.push_back(
          {{"path", change.path}, {"before", change.before}, {"after", change.after}});
      names.push_back(name_of_change(change));
    }
    culprits.push_back({{"changes", std::move(changes)},
                        {"subject", fmt::format("{}", fmt::join(names, " and "))},
                        {"is_interaction", culprit.is_interaction},
                        {"is_improvement", culprit.is_improvement},
                        {"is_good_restored", culprit.is_good_restored},
                        {"moved", moved_json(moved_of(answer, i))},
                        {"confidence", culprit.confidence}});
    add_levels(answer, culprit, culprit.before, culprit.after, culprits.back());
  }
  const std::optional<tuner::Effect> interaction = interaction_of(answer, setup);
  json document =
      answer_json(answer, result, {setup.options.confidence, setup.options.min_effect_ratio});
  document.update({{"num_changes", setup.changes.size()},
                   {"complete", result.complete},
                   {"interaction", interaction ? effect_json(*interaction) : json()},
                   {"culprits", std::move(culprits)}});
  return document;
}

std::string to_text(const ConfigAnswer& answer, const ConfigSetup& setup) {
  const tuner::ConfigHuntResult& result = answer.result;
  std::string text = opening_text(answer, result, "good and bad");
  if (result.is_swapped) text += "  swapped? try the two files the other way round\n";
  for (size_t i = 0; i < result.culprits.size(); ++i) {
    const tuner::ConfigCulprit& culprit = result.culprits[i];
    text += culprit.is_improvement ? "improvement:\n" : "culprit:\n";
    for (const int index : culprit.changes) {
      text += fmt::format(
          "  {}\n", plain_text(name_of_change(setup.changes[static_cast<size_t>(index)]), 300));
    }
    const char* together = culprit.is_interaction ? "; only together" : "";
    if (answer.failure.empty()) {
      text += fmt::format("  alone: effect {}, {} -> {}, confidence {:.1f} %{}\n",
                          effect_text(culprit), base::format_value(culprit.before, answer.unit),
                          base::format_value(culprit.after, answer.unit), 100 * culprit.confidence,
                          together);
    } else {
      text += fmt::format("  with it, it {}{}\n", failing_text(answer.failure), together);
    }
    for (const Moved& moved : moved_of(answer, i)) text += moved_line("moved", moved);
    if (culprit.is_good_restored) {
      text += i == 0 ? "  without it, the bad configuration is as good as the good one\n"
                     : "  without all of these, the bad configuration is as good as the good one\n";
    }
  }
  if (const auto interaction = interaction_of(answer, setup)) {
    text +=
        fmt::format("together they add {} to what each does alone\n", effect_text(*interaction));
  }
  text += failures_text(result, result.num_failed > 0);
  return text + fmt::format("{} runs, {:.0f} s\n", answer.num_runs, answer.seconds);
}

}  // namespace moetune::sweeps

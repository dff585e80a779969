// moetune bisect --configs: which differences between two trial files made training slower.
#include <fmt/format.h>

#include <iostream>

#include "engine/plan/ops.h"
#include "kernels/base/error.h"
#include "kernels/base/fnv.h"
#include "profiler/store/store.h"
#include "sweeps/bisect/commit_source.h"
#include "sweeps/bisect/config_source.h"
#include "sweeps/bisect/metric_names.h"
#include "sweeps/bisect/text.h"
#include "sweeps/commands/bisect_options.h"
#include "sweeps/commands/commands.h"
#include "sweeps/load.h"
#include "sweeps/processes/interrupt.h"
#include "sweeps/processes/trial_folder.h"
#include "sweeps/progress.h"
#include "sweeps/session.h"
#include "sweeps/sweep_lock.h"
#include "sweeps/version.h"

namespace moetune::sweeps {

using nlohmann::json;

int run_bisect_configs(const CommandOptions& options, const std::string& database) {
  const std::vector<std::string> files = options.texts("configs");
  if (files.size() != 2) {
    throw base::UsageError(fmt::format(
        "--configs needs two files, the good one and the bad one, not {}", files.size()));
  }
  options.refuse_beside("--configs", {"repo", "good", "bad", "spec", "build", "run", "scratch",
                                      "build-limit", "run-limit", "all-parents"});
  const Loaded<spec::TrialSpec> good = load_trial(files[0]);
  const Loaded<spec::TrialSpec> bad = load_trial(files[1]);
  check_can_run(good.spec, files[0]);
  check_can_run(bad.spec, files[1]);
  ConfigSetup setup;
  setup.good = good.spec;
  setup.changes = differences(good.spec, bad.spec);
  if (setup.changes.empty()) {
    throw base::UsageError(fmt::format(
        "{} and {} are the same trial once all defaults are filled in", files[0], files[1]));
  }
  for (const SpecChange& change : setup.changes) {
    if (change.path.starts_with("/data_")) {
      throw base::UsageError(fmt::format("{} and {} train on different texts ({})", files[0],
                                         files[1], change.path.substr(1)));
    }
  }
  setup.options.num_changes = static_cast<int>(setup.changes.size());
  setup.options.is_higher_better = options.has("higher-is-better");
  setup.options.min_effect_ratio = min_effect_option(options);
  setup.options.confidence = confidence_option(options);
  setup.options.max_runs = static_cast<int>(options.integer("max-runs", 2, 400));
  setup.max_seconds = static_cast<double>(options.seconds("max-seconds", 0, 0));
  setup.is_fresh = options.has("fresh");
  setup.runner.metric = metric_option(options);
  const MetricKind kind = kind_option(options);
  setup.options.is_deterministic =
      kind == MetricKind::exact ||
      (kind == MetricKind::automatic && is_exact_metric(stored_metric(setup.runner.metric)));

  const SweepLock lock(database);
  store::Store store = store::Store::open(database);
  const json config = {{"good", spec::to_json(good.spec)},
                       {"bad", spec::to_json(bad.spec)},
                       {"metric", setup.runner.metric},
                       {"higher_is_better", setup.options.is_higher_better},
                       {"min_effect_ratio", setup.options.min_effect_ratio},
                       {"confidence", setup.options.confidence},
                       {"is_deterministic", setup.options.is_deterministic}};
  store::BisectRow row;
  row.config_json = config.dump();
  row.config_hash = base::fnv_digits(row.config_json);
  row.good = files[0];
  row.bad = files[1];
  row.metric = setup.runner.metric;
  row.command_line = command_line();
  row.tool_version = version();
  row.tool_commit = commit();
  const int64_t hunt_id = store.open_bisect(row);

  const TextSnapshot snapshot(database, good.text);
  setup.runner.rank_program = find_rank_program();
  setup.runner.folder = running_folder(database);
  setup.runner.launcher = options.launcher(
      spec::ranks_of(good.spec) == spec::RanksAre::processes ? good.spec : bad.spec);
  setup.runner.text_path = snapshot.path();
  setup.key_parts = fmt::format("{}; {}", version_line(), machine_identity());
  const InterruptGuard guard;
  Progress progress(stderr, options.has("quiet") ? Progress::Mode::quiet : Progress::Mode::plain);
  setup.on_progress = [&](const std::string& line) { progress.note(line); };
  setup.is_stop_asked = [] { return num_interrupts() > 0; };
  for (const SpecChange& change : setup.changes) {
    progress.note(plain_text(fmt::format("differs: {}: {} -> {}", change.path.substr(1),
                                         change.before.dump(), change.after.dump()),
                             300));
  }
  const ConfigAnswer answer = run_config_hunt(setup, store, hunt_id);
  json document = to_json(answer, setup);
  document["reproduce"] = command_line();
  store.finish_bisect(
      hunt_id, answer.is_interrupted ? store::SearchStatus::interrupted : store::SearchStatus::done,
      tuner::name_of(answer.result.verdict),
      document.dump(-1, ' ', false, json::error_handler_t::replace));
  if (options.wants_json()) {
    document["db"] = database;
    std::cout << document.dump(2, ' ', false, json::error_handler_t::replace) << "\n";
  } else {
    std::cout << to_text(answer, setup) << "reproduce: " << command_line() << "\n";
  }
  const int code =
      hunt_exit_code(answer.result.verdict, answer.result.is_swapped, answer.is_interrupted);
  if (code != 0) std::cerr << "moetune: " << plain_text(answer.result.reason, 500) << "\n";
  return code;
}

}  // namespace moetune::sweeps

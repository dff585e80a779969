// moetune bisect: the commit that made training slower or hungrier.
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"
#include "kernels/base/fnv.h"
#include "kernels/base/units.h"
#include "profiler/store/store.h"
#include "sweeps/bisect/commit_source.h"
#include "sweeps/bisect/hunt.h"
#include "sweeps/bisect/text.h"
#include "sweeps/commands/bisect_options.h"
#include "sweeps/commands/commands.h"
#include "sweeps/commands/options.h"
#include "sweeps/load.h"
#include "sweeps/processes/interrupt.h"
#include "sweeps/progress.h"
#include "sweeps/sweep_lock.h"
#include "sweeps/version.h"

namespace moetune::sweeps {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int64_t kFewestSeconds = 1;

// Not where the command is typed: that may be the checkout.
std::string default_database() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  std::string folder = variable("XDG_STATE_HOME");
  if (folder.empty() && !variable("HOME").empty()) folder = variable("HOME") + "/.local/state";
  if (folder.empty()) {
    throw base::UsageError("neither XDG_STATE_HOME nor HOME is set: --db PATH is needed");
  }
  std::error_code error;
  fs::create_directories(folder + "/moetune", error);
  if (error) {
    throw base::UsageError(fmt::format("'{}/moetune' cannot be made ({}): --db PATH is needed",
                                       folder, error.message()));
  }
  return folder + "/moetune/bisect.db";
}

std::string text_of_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw base::UsageError(fmt::format("'{}' cannot be read", path));
  return {std::istreambuf_iterator<char>(in), {}};
}

/// What a hunt is about: its identity in the store, and all that its measurements share.
struct Question {
  GitRepository repository;
  HuntSetup setup;
  CommitRunnerOptions runner;
  json config;
  std::string reproduce;  ///< a shell line, with ids in the place of names that move
};

std::string reproduce_line(std::vector<std::string> words, const std::string& good,
                           const std::string& bad) {
  words.insert(words.begin(), "bisect");
  for (size_t i = 1; i < words.size(); ++i) {
    for (const auto& [option, id] : {std::pair{"--good", &good}, std::pair{"--bad", &bad}}) {
      if (words[i - 1] == option) words[i] = *id;
      if (words[i].starts_with(std::string(option) + "=")) words[i] = option + ("=" + *id);
    }
  }
  return command_line_of(words);
}

Question question_of(const CommandOptions& options, const std::string& database) {
  const std::string path = options.required("repo", "the folder of a git repository (--repo PATH)");
  Question question{GitRepository::open(path), {}, {}, {}, ""};
  const GitRepository& repository = question.repository;
  const std::string good = repository.resolve(
      options.required("good", "a revision that was fine (--good REV)"), "--good");
  const std::string bad =
      repository.resolve(options.required("bad", "a revision that is not (--bad REV)"), "--bad");
  HuntSetup& setup = question.setup;
  setup.commits = {repository.info(good)};
  for (CommitInfo& commit : repository.commits(good, bad, !options.has("all-parents"))) {
    setup.commits.push_back(std::move(commit));
  }
  if (setup.commits.size() < 2) {
    throw base::UsageError(fmt::format("--good and --bad are the same commit, {}", good));
  }
  setup.metric = metric_option(options);
  setup.is_higher_better = options.has("higher-is-better");
  setup.min_effect_ratio = min_effect_option(options);
  setup.confidence = confidence_option(options);
  setup.kind = kind_option(options);
  setup.max_runs = static_cast<int>(options.integer("max-runs", 2, 400));
  setup.max_seconds = static_cast<double>(options.seconds("max-seconds", 0, 0));

  CommitRunnerOptions& runner = question.runner;
  runner.repository = repository.root();
  runner.scratch = options.text("scratch");
  if (runner.scratch.empty()) {
    // One database serves many repositories.
    const std::string digest = base::fnv_digits(repository.common_folder());
    runner.scratch = fmt::format("{}.work/{}", database, digest.substr(0, 12));
  }
  runner.build_command = options.text("build");
  runner.run_command = options.text("run");
  runner.metric = setup.metric;
  runner.build_limit = std::chrono::seconds(options.seconds("build-limit", kFewestSeconds, 3600));
  runner.run_limit = std::chrono::seconds(options.seconds("run-limit", kFewestSeconds, 1800));
  std::string spec_text;
  if (options.has("spec")) {
    if (options.text("spec") == "-") {
      throw base::UsageError("--spec -: a hunt reads the trial at each commit, expected a file");
    }
    const std::string file = spec_path(options.text("spec"));
    spec_text = text_of_file(file);
    runner.spec_path = fs::absolute(file);
    // Ours has to be right before an hour of builds; what others read, only they know.
    if (runner.run_command.empty()) static_cast<void>(load_trial(file));
  } else if (runner.run_command.empty()) {
    throw base::UsageError("--spec TRIAL.json is needed, or --run COMMAND");
  }
  if (runner.run_command.empty() && !has_own_engine(repository, good)) {
    throw base::UsageError(fmt::format(
        "{} is not moetune's own repository: --run COMMAND is needed, whose last line is "
        "the value",
        repository.root()));
  }
  question.config = {{"repository", repository.identity()},
                     {"good", good},
                     {"bad", bad},
                     {"first_parent", !options.has("all-parents")},
                     {"spec", base::fnv_digits(spec_text)},
                     {"build", runner.build_command},
                     {"run", runner.run_command},
                     {"build_limit_s", runner.build_limit.count()},
                     {"run_limit_s", runner.run_limit.count()},
                     {"metric", setup.metric},
                     {"higher_is_better", setup.is_higher_better},
                     {"min_effect_ratio", setup.min_effect_ratio},
                     {"confidence", setup.confidence},
                     {"noise", options.text("noise")}};
  return question;
}

/// For each culprit that is a merge, how to look inside; by culprit, empty for others.
std::vector<std::string> merge_hints(const HuntAnswer& answer, const Question& question) {
  std::vector<std::string> hints;
  for (const tuner::Culprit& culprit : answer.result.culprits) {
    const std::string& id = question.setup.commits[static_cast<size_t>(culprit.position)].id;
    const auto range = question.repository.merged_range(id);
    hints.push_back(range ? fmt::format("{} is a merge: to look inside, --good {} --bad {}",
                                        base::short_commit(id), base::short_commit(range->first),
                                        base::short_commit(range->second))
                          : "");
  }
  return hints;
}

void print(const HuntAnswer& answer, const Question& question, const CommandOptions& options,
           const std::string& database) {
  const HuntSetup& setup = question.setup;
  const std::vector<std::string> hints = merge_hints(answer, question);
  if (options.wants_json()) {
    json document = to_json(answer, setup);
    for (size_t i = 0; i < hints.size(); ++i) document["culprits"][i]["hint"] = hints[i];
    document["db"] = database;
    document["reproduce"] = question.reproduce;
    std::cout << document.dump(2, ' ', false, json::error_handler_t::replace) << "\n";
    return;
  }
  std::cout << to_text(answer, setup);
  for (const std::string& hint : hints) {
    if (!hint.empty()) std::cout << hint << "\n";
  }
  std::cout << "reproduce: " << question.reproduce << "\n"
            << fmt::format("report: moetune report {}\n", database);
}

void declare(CommandOptions& options) {
  namespace po = boost::program_options;
  const auto text = [&](const char* name, const char* value, const char* help) {
    options.add()(name, po::value<std::string>()->value_name(value), help);
  };
  options.add()("configs",
                po::value<std::vector<std::string>>()->multitoken()->value_name("GOOD BAD"),
                "two trial files in the place of a repository: which of their differences it was");
  text("repo", "PATH", "the git repository; its checkout is never touched");
  text("good", "REV", "a revision before the change");
  text("bad", "REV", "a revision after it");
  text("spec", "TRIAL.json", "the trial that is run at each commit");
  text("metric", "NAME",
       "what is compared, default step_time; or peak_memory, or any stored metric");
  text("min-effect", "SHARE", "smaller changes do not matter, default 2%");
  text("confidence", "SHARE", "of the answer, default 0.95");
  text("build", "COMMAND", "builds a commit; a shell line, started in its worktree");
  text("run", "COMMAND",
       "runs it; prints the value as its last line (a number, or a JSON object with the metric and "
       "others: dispatch_ms, num_launches, memory_experts_bytes), or leaves a runs database in "
       "$MOETUNE_BISECT_OUT");
  options.add()("higher-is-better", "for metrics such as tokens per second");
  options.add()("all-parents", "also commits that came in by merges, one branch after another");
  text("noise", "auto|none|some", "whether runs of one commit differ, default auto");
  text("db", "PATH",
       "where the hunt is kept and goes on from, default bisect.db in ~/.local/state/moetune");
  text("scratch", "FOLDER",
       "for worktrees and builds, which stay for the next hunt; default a folder of the "
       "repository's own in PATH.work beside the database");
  text("build-limit", "SECONDS", "longest build, default 3600; or with a unit, such as 30min");
  text("run-limit", "SECONDS", "longest run, default 1800; or with a unit, such as 30min");
  text("max-runs", "N", "give up after so many, default 400");
  text("max-seconds", "SECONDS", "of building and running, such as 600 or 2h; default no limit");
  options.add_launch();
  options.add()("fresh", "measure again what the database has");
  options.add()("quiet,q", "no progress");
  options.add_format();
}

}  // namespace

CommandOptions bisect_options() {
  CommandOptions options(
      "bisect --repo PATH --good REV --bad REV --spec TRIAL.json [--metric NAME] [--min-effect 2%] "
      "[--confidence 0.95] [--build COMMAND --run COMMAND] [OPTIONS]\n"
      "       moetune bisect --configs GOOD.json BAD.json [--metric NAME] [OPTIONS]",
      "Finds the commits that made training slower or hungrier, in any git repository, on noisy "
      "machines.");
  declare(options);
  return options;
}

int run_bisect_command(const CommandOptions& options) {
  const std::string database = options.has("db") ? options.database() : default_database();
  if (options.has("configs")) return run_bisect_configs(options, database);
  if (options.has("launch")) {
    throw base::UsageError(
        "--launch is for --configs; for a repository, write the launcher into --run");
  }
  Question question = question_of(options, database);
  HuntSetup& setup = question.setup;
  question.reproduce =
      reproduce_line(options.words(), setup.commits.front().id, setup.commits.back().id);

  Progress progress(stderr, options.has("quiet") ? Progress::Mode::quiet : Progress::Mode::plain);
  // Builds may take longer than all else: a line when one begins.
  std::string doing;
  question.runner.on_tick = [&](const std::string& what) {
    if (what != doing && what.starts_with("building")) progress.note(what);
    doing = what;
  };
  CommitRunner runner(question.runner);  // before anything is written: it checks the places
  const SweepLock lock(database);
  store::Store store = store::Store::open(database);
  store::BisectRow row;
  row.config_hash = base::fnv_digits(question.config.dump());
  row.config_json = question.config.dump();
  row.repository = question.repository.root();
  row.good = setup.commits.front().id;
  row.bad = setup.commits.back().id;
  row.metric = setup.metric;
  row.command_line = question.reproduce;
  row.tool_version = version();
  row.tool_commit = commit();
  const int64_t hunt_id = store.open_bisect(row);
  std::vector<store::BisectCommitRow> commits;
  for (size_t i = 0; i < setup.commits.size(); ++i) {
    const CommitInfo& info = setup.commits[i];
    commits.push_back({static_cast<int>(i), info.id, info.subject, info.author, info.author_date});
  }
  store.set_bisect_commits(hunt_id, commits);

  const InterruptGuard guard;
  setup.on_progress = [&](const std::string& line) { progress.note(line); };
  setup.is_stop_asked = [] { return num_interrupts() > 0; };
  CommitSource source(
      store, hunt_id, runner, setup.commits,
      fmt::format("spec {}; build '{}'; run '{}'; {}", question.config["spec"].get<std::string>(),
                  question.runner.build_command, question.runner.run_command, machine_identity()),
      setup.metric);
  if (!options.has("fresh")) setup.earlier = source.earlier();
  if (!setup.earlier.empty()) {
    progress.note(fmt::format("{} runs in {} hold here and are not repeated", setup.earlier.size(),
                              database));
  }
  if (question.repository.is_dirty()) {
    progress.note(
        "the checkout has changes that are not committed: they are left alone and not measured");
  }
  progress.note(fmt::format("{} commits from {} to {}", setup.commits.size() - 1,
                            base::short_commit(row.good), base::short_commit(row.bad)));
  HuntAnswer answer;
  try {
    answer = run_hunt(setup, source);
  } catch (const std::exception&) {
    store.finish_bisect(hunt_id, store::SearchStatus::failed, "", "{}");
    throw;
  }
  json document = to_json(answer, setup);
  document["reproduce"] = row.command_line;
  store.finish_bisect(
      hunt_id, answer.is_interrupted ? store::SearchStatus::interrupted : store::SearchStatus::done,
      tuner::name_of(answer.result.verdict),
      document.dump(-1, ' ', false, json::error_handler_t::replace));
  print(answer, question, options, database);
  if (answer.num_builds > 0) {
    progress.note("the builds stay in " + question.runner.scratch +
                  " for the next hunt; remove it when you need the room");
  }
  const int code =
      hunt_exit_code(answer.result.verdict, answer.result.is_swapped, answer.is_interrupted);
  if (code != 0) std::cerr << "moetune: " << plain_text(answer.result.reason, 500) << "\n";
  return code;
}

}  // namespace moetune::sweeps

// moetune sweep: the search over a sweep file's space.
#include "sweeps/sweep.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "engine/spec/trial_status.h"
#include "kernels/base/error.h"
#include "kernels/base/units.h"
#include "profiler/store/verdict.h"
#include "reports/decision_changes.h"
#include "reports/engine_trial.h"
#include "reports/or_null.h"
#include "sweeps/adapters/engine_space.h"
#include "sweeps/adapters/engine_sweep.h"
#include "sweeps/adapters/shell_text.h"
#include "sweeps/commands/commands.h"
#include "sweeps/commands/conduct_sweep.h"
#include "sweeps/commands/options.h"
#include "sweeps/listing.h"
#include "sweeps/live_report.h"
#include "sweeps/load.h"
#include "sweeps/processes/interrupt.h"
#include "sweeps/processes/trial_folder.h"
#include "sweeps/session.h"
#include "sweeps/stored_flags.h"
#include "sweeps/strategies.h"
#include "sweeps/table.h"
#include "tuner/search_space.h"

namespace moetune::sweeps {
namespace {

using store::SearchStatus;

/// What the command prints.
struct Result {
  std::string database;
  int64_t sweep_id = 0;
  SweepSummary summary;
  std::optional<store::TrialRow> best;
  nlohmann::json best_json;
  std::optional<store::TrialRow> first_fit;
  std::vector<store::DecisionRow> undecided;  ///< what the noise did not let the sweep see
  int64_t num_cleared = 0;                    ///< ended as wrong, and were not

  std::optional<store::Gain> gain;
  store::Validation validation;
  std::optional<NextCommand> next;  ///< for people to run
  bool is_forced = false;           ///< the best's experts were forced to be balanced
};

Result result_of(const store::Store& store, int64_t sweep_id, SweepSummary summary) {
  Result result{store.path(), sweep_id, std::move(summary), {}, {}, {}, {}, 0, {}, {}, {}, false};
  const store::SweepRow sweep = store.read_sweep(sweep_id).value_or(store::SweepRow{});
  if (sweep.first_fit_trial) result.first_fit = store.get_trial(*sweep.first_fit_trial);
  if (sweep.winner_trial) result.best = store.get_trial(*sweep.winner_trial);
  // Measured anew elsewhere, it may have failed since it won.
  if (result.best && spec::find_status(result.best->status) != spec::TrialStatus::ok)
    result.best.reset();
  const SweepView view(store, sweep_id);
  if (result.best) {
    result.best_json =
        trial_json(view, *result.best,
                   title_of(store, *result.best, baseline_of(store.list_trials(sweep_id))));
  }
  const std::vector<store::DecisionRow> decisions = store.read_decisions(sweep_id);
  if (result.best && result.first_fit) {
    result.gain = store::gain_over_first_fit(decisions, *result.best, *result.first_fit);
  }
  result.is_forced = result.best && reports::has_forced_balancing(store, result.best->id);
  if (result.best) result.validation = store::validation_of(decisions, *result.best);
  result.num_cleared = static_cast<int64_t>(store::cleared_trials(decisions).size());
  for (const store::DecisionRow& decision : decisions) {
    if (decision.kind == store::DecisionKind::undecided) result.undecided.push_back(decision);
  }
  return result;
}

/// A sweep that asks somebody to run its next trial has not been stopped.
std::string_view status_word(const Result& result) {
  return result.next ? "waiting" : name_of(result.summary.status);
}

/// Null for none.
nlohmann::json speedup_json(const std::optional<double>& gain_ratio) {
  return gain_ratio ? nlohmann::json(store::speedup_of(*gain_ratio)) : nlohmann::json();
}

nlohmann::json to_json(const Result& result) {
  using reports::or_null;
  const auto flags = result.best ? flags_of(*result.best) : std::nullopt;
  const auto changes = result.best ? reports::engine_changes(*result.best) : std::nullopt;
  nlohmann::json undecided = nlohmann::json::array();
  for (const store::DecisionRow& decision : result.undecided) {
    std::vector<std::string> knobs;
    std::vector<std::string> values;
    for (const reports::KnobChange& change : reports::changes_of(decision)) {
      knobs.push_back(change.name);
      values.push_back(change.after);
    }
    undecided.push_back({{"trial", or_null(decision.trial_id)},
                         {"knob", fmt::format("{}", fmt::join(knobs, ", "))},
                         {"value", fmt::format("{}", fmt::join(values, ", "))},
                         {"gain_low_ratio", or_null(decision.gain_low_ratio)},
                         {"gain_high_ratio", or_null(decision.gain_high_ratio)},
                         {"text", decision.text}});
  }
  std::optional<double> ratio;
  std::optional<double> low_ratio;
  std::optional<double> high_ratio;
  if (result.gain) {
    ratio = result.gain->ratio;
    low_ratio = result.gain->low_ratio;
    high_ratio = result.gain->high_ratio;
  }
  return {{"db", result.database},
          {"sweep_id", result.sweep_id},
          {"status", status_word(result)},
          {"stop_reason", result.summary.stop_reason},
          {"failure", result.summary.failure},
          {"num_run", result.summary.num_run},
          {"num_reused", result.summary.num_reused},
          {"num_by_status", result.summary.num_by_status},
          {"num_cleared", result.num_cleared},
          {"best", result.best_json},
          {"megatron_flags", flags ? nlohmann::json(spec::words_of(*flags)) : nullptr},
          {"megatron_notes", flags ? nlohmann::json(flags->notes) : nullptr},
          {"first_fit_id", result.first_fit ? nlohmann::json(result.first_fit->id) : nullptr},
          {"validated", or_null(result.validation.is_passed)},
          {"validation", result.validation.text},
          {"speedup", speedup_json(ratio)},
          {"speedup_low", speedup_json(low_ratio)},
          {"speedup_high", speedup_json(high_ratio)},
          {"speedup_step_ns", result.gain ? or_null(result.gain->step_ns) : nlohmann::json()},
          {"speedup_first_fit_step_ns",
           result.gain ? or_null(result.gain->first_fit_step_ns) : nlohmann::json()},
          {"gain_ratio", or_null(ratio)},
          {"gain_low_ratio", or_null(low_ratio)},
          {"gain_high_ratio", or_null(high_ratio)},
          {"undecided", undecided},
          {"engine_settings", changes ? nlohmann::json(*changes) : nlohmann::json()},
          {"next", result.next ? to_json(*result.next) : nlohmann::json()}};
}

/// A line where no long run has confirmed the best configuration, or it was slower there; else
/// nothing.
std::string validation_text(const Result& result) {
  const store::Validation& validation = result.validation;
  if (validation.is_passed == true && validation.is_slower) {
    return fmt::format("slower in the long run: {}\n", validation.text);
  }
  if (validation.is_passed == true) return {};
  if (validation.is_passed == false) return fmt::format("NOT VALIDATED: {}\n", validation.text);
  std::string why = validation.text;
  if (why.empty()) why = result.summary.stop_reason;
  return fmt::format("not validated: {}\n", why.empty() ? "no long run was made" : why);
}

/// Of a sweep without a best configuration.
const char* nothing_found_text(const SweepSummary& summary) {
  const bool is_stopped_before = summary.num_tried == 0 && !summary.stop_reason.empty();
  return is_stopped_before ? "no configuration was tried to its end"
                           : "no configuration has fitted and run to its end";
}

std::string to_text(const Result& result) {
  const SweepSummary& summary = result.summary;
  std::vector<std::string> counts;
  for (const auto& [status, count] : summary.num_by_status) {
    const bool is_wrong = status == spec::name_of(spec::TrialStatus::wrong);
    const std::string cleared =
        is_wrong && result.num_cleared > 0
            ? fmt::format(", {} of them {}", result.num_cleared, store::kClearedText)
            : "";
    counts.push_back(fmt::format("{} {}{}", count, status, cleared));
  }
  std::string text =
      fmt::format("sweep {}{}{}: {} {} run, {} found in the database{}\n", status_word(result),
                  result.next ? " for a trial" : "",
                  summary.stop_reason.empty() ? "" : " (" + summary.stop_reason + ")",
                  summary.num_run, summary.num_run == 1 ? "trial" : "trials", summary.num_reused,
                  counts.empty() ? "" : fmt::format(" ({})", fmt::join(counts, ", ")));
  if (!result.best && result.next) return text;
  if (!result.best) return text + nothing_found_text(summary) + "\n";
  const store::TrialRow& best = *result.best;
  text += validation_text(result);
  // Only what a long run has confirmed is called the best without a word more.
  const char* where = result.validation.is_passed == true ? "" : " in short trials";
  text += fmt::format("best{}: trial {}, {} per step", where, best.id,
                      base::format_ns(best.step_ns.value_or(0)));
  // A log of another engine may say neither.
  if (best.tokens_per_s) {
    text += fmt::format(", {} tokens/s", base::format_count(*best.tokens_per_s));
  }
  if (best.peak_bytes) text += ", peak " + base::format_bytes(*best.peak_bytes);
  text += best.wall.empty() ? "\n" : ", wall " + best.wall + "\n";
  if (result.is_forced) text += fmt::format("{}\n", reports::kForcedBalancing);
  if (result.gain) {
    const store::Gain& gain = *result.gain;
    const std::string interval =
        gain.low_ratio && gain.high_ratio
            ? fmt::format(" ({:.2f} to {:.2f})", store::speedup_of(*gain.low_ratio),
                          store::speedup_of(*gain.high_ratio))
            : "";
    // Of a long run that line's step is another: routing drifts while a router learns.
    const std::string steps =
        gain.step_ns && gain.first_fit_step_ns
            ? fmt::format(": {} per step in screening, {} there", base::format_ns(*gain.step_ns),
                          base::format_ns(*gain.first_fit_step_ns))
            : "";
    text +=
        fmt::format("speedup{}: {:.2f}x{} over trial {}, the first configuration that fitted{}\n",
                    where, store::speedup_of(gain.ratio), interval, result.first_fit->id, steps);
  }
  if (!result.undecided.empty()) {
    text += fmt::format("undecided: {} may gain, but the noise hides it; moetune show tells each\n",
                        result.undecided.size() == 1
                            ? "1 change"
                            : fmt::format("{} changes", result.undecided.size()));
  }
  if (const auto changes = reports::engine_changes(best)) {
    text += fmt::format("settings of trial {} that differ from your command:{}\n", best.id,
                        changes->empty() ? " none" : "");
    for (const std::string& change : *changes) text += "  " + one_line(change) + "\n";
    return text;
  }
  std::vector<std::string> knobs;
  for (const store::NamedText& knob : best.knobs) {
    knobs.push_back(fmt::format("{}={}", knob.name, knob.value));
  }
  text += fmt::format("knobs: {}\n", fmt::join(knobs, " "));
  const std::string flags = flags_block(best);
  if (flags.empty()) return text;
  return text + fmt::format("Megatron-LM flags of trial {}, to go behind the training script:\n{}",
                            best.id, flags);
}

}  // namespace

CommandOptions sweep_options() {
  namespace po = boost::program_options;
  CommandOptions options(
      "sweep SWEEP --db PATH [--set KNOB=VALUE ...] [--max-trials N] [--max-seconds SECONDS] "
      "[--launch "
      "COMMAND] "
      "[--dry-run] [--report FILE] [--format text|json]",
      "Searches the best configuration: fixes what is compared, finds what fits, scales it, "
      "profiles it, removes what binds it one change at a time, and validates the winner. Every "
      "trial and decision is stored; the same command resumes a sweep that was stopped.");
  options.add()("file", po::value<std::string>()->value_name("SWEEP"),
                "the sweep file, the name of one that came with moetune, or - for standard input");
  options.add()("db", po::value<std::string>()->value_name("PATH"),
                "the runs database, made when it is not there");
  options.add()("max-trials", po::value<std::string>()->value_name("N"),
                "instead of the budget in the sweep file");
  options.add()("max-seconds", po::value<std::string>()->value_name("SECONDS"),
                "instead of the budget in the sweep file; 600 or 10min");
  options.add()("report", po::value<std::string>()->value_name("FILE"),
                "keeps a report in this HTML file, written anew after a trial at most every few "
                "seconds and at the end");
  options.add()("quiet,q", "no progress");
  options.add()("dry-run",
                "of a sweep over somebody else's engine: says the next command and why, and runs "
                "nothing");
  options.add_launch();
  options.add_set();
  options.add_format();
  options.positional("file");
  return options;
}

int run_sweep_command(const CommandOptions& options) {
  return conduct_sweep(options, std::nullopt);
}

namespace {

/// Strategy and engine of the sweep.
struct Conduct {
  std::unique_ptr<tuner::Strategy> strategy;
  store::SweepRow row;
  std::shared_ptr<const UserRun> user_run;  ///< null: our own engine
  std::unique_ptr<TrialEngine> engine;      ///< null: our own engine
  const ToldEngine* told = nullptr;         ///< the same where somebody else has run the trial
};

/// What import tells as well: whose words are read, and what is not known of the run.
void tell_what_is_read(const std::string& file, const UserRun& run) {
  if (!run.dialect) return;
  for (const std::string& note : run.config.notes) {
    std::cerr << fmt::format("moetune: note: {}: {}\n", file, one_line(note));
  }
  std::cerr << fmt::format("moetune: note: {}: {}\n", file, whose_rules(*run.dialect));
}

Conduct conduct_foreign(const CommandOptions& options, const std::string& file,
                        const spec::SweepSpec& sweep, const std::string& database,
                        const std::optional<ToldRun>& told, LoopOptions& loop) {
  for (const char* option : {"set", "launch"}) {
    if (options.has(option)) {
      throw base::UsageError(fmt::format(
          "--{} is for moetune's own engine; the sweep file's `engine` has another", option));
    }
  }
  EngineSweep own = engine_sweep_of(sweep);
  for (const auto& [axis, rule] : own.illegal_axes) {
    std::cerr << fmt::format(
        "moetune: {}: no value of {} is legal with the run's other values ({})\n", file, axis,
        rule);
  }
  if (!own.illegal_axes.empty() && own.run->dialect && !options.has("dry-run")) {
    std::cerr << fmt::format("moetune: {}: {}\n", file, whose_rules(*own.run->dialect));
  }
  loop.environment = environment_of(*own.run);
  std::unique_ptr<TrialEngine> engine;
  const ToldEngine* told_engine = nullptr;
  if (told) {
    loop.max_new_runs = 1;
    std::error_code error;
    if (std::filesystem::exists(database, error)) {
      const auto store = store::Store::open_read_only(database);
      for (const store::SweepRow& known : store.read_sweeps()) {
        if (known.config_hash == own.row.config_hash) check_not_told(store, known.id, told->files);
      }
    }
    auto taking = std::make_unique<ToldEngine>(own.run, told->files, told->exit_code);
    told_engine = taking.get();
    engine = std::move(taking);
  } else {
    if (options.has("dry-run")) loop.max_new_runs = 0;
    engine = std::make_unique<ForeignEngine>(own.run, engine_folder(database));
  }
  return {std::move(own.strategy), std::move(own.row), std::move(own.run), std::move(engine),
          told_engine};
}

Conduct conduct_own(const CommandOptions& options, const std::string& file, spec::SweepSpec& sweep,
                    LoopOptions& loop) {
  options.apply_set(sweep.base.knobs);
  check_can_run(sweep.base, file);
  // Before the database: a sweep that is refused leaves none.
  std::unique_ptr<tuner::Strategy> strategy = make_strategy(sweep);
  loop.runner.rank_program = find_rank_program();
  loop.runner.launcher = options.launcher(sweep.base);
  for (const tuner::IllegalAxis& axis : tuner::SearchSpace(sweep).illegal_axes()) {
    std::cerr << fmt::format(
        "moetune: {}: no value of {} is legal with the starting configuration's other values ({}: "
        "{})\n",
        file, axis.knob, axis.violation.rule, axis.violation.message);
  }
  return {std::move(strategy), sweep_row(sweep), nullptr, nullptr, nullptr};
}

int exit_code_of(const Result& result, const std::string& file, Progress& progress) {
  if (result.next) return 0;
  if (result.summary.status == SearchStatus::interrupted) {
    // The line alone would wait for a sweep to be typed.
    const char* how = file == "-" ? ", with the same file at standard input" : "";
    progress.note(fmt::format("to go on where it stopped{}: {}", how, command_line()));
    return static_cast<int>(spec::ExitCode::interrupted);
  }
  if (result.summary.status == SearchStatus::done && result.validation.is_passed == false) {
    std::cerr << "moetune: the best configuration did not pass its validation: "
              << one_line(result.validation.reason()) << "\n";
    return static_cast<int>(spec::ExitCode::unvalidated);
  }
  if (result.summary.status == SearchStatus::done) return 0;
  std::cerr << fmt::format("moetune: {}: {}\n", nothing_found_text(result.summary),
                           one_line(result.summary.failure));
  return static_cast<int>(spec::ExitCode::failed);
}

}  // namespace

int conduct_sweep(const CommandOptions& options, const std::optional<ToldRun>& told) {
  const std::string file = options.required("file", "the sweep file");
  const std::string database = options.database();
  LiveReport report(database, told ? "" : options.text("report"), file);
  const int64_t max_trials = told ? 0 : options.integer("max-trials", spec::kMinTrials, 0);
  const int64_t max_seconds = told ? 0 : options.seconds("max-seconds", 1, 0);
  Loaded<spec::SweepSpec> loaded = load_sweep(file);
  spec::SweepSpec& sweep = loaded.spec;
  if (max_trials > 0) sweep.budget.max_trials = max_trials;
  if (max_seconds > 0) sweep.budget.max_seconds = max_seconds;
  const bool is_foreign = sweep.engine.is_set();
  if (!is_foreign && (told || options.has("dry-run"))) {
    throw base::UsageError(
        fmt::format("{}: has no `engine`: moetune runs the trials of its own engine itself", file));
  }
  LoopOptions loop_options;
  Conduct conduct = is_foreign ? conduct_foreign(options, file, sweep, database, told, loop_options)
                               : conduct_own(options, file, sweep, loop_options);
  loop_options.engine = conduct.engine.get();
  loop_options.max_trials = sweep.budget.max_trials;
  // What people do by hand takes the time that it takes.
  loop_options.max_seconds = loop_options.max_new_runs ? 0 : sweep.budget.max_seconds;
  loop_options.runner.folder = running_folder(database);
  if (!is_foreign) loop_options.reference_folder = reference_folder(database);
  loop_options.runner.step_limit =
      std::chrono::milliseconds(static_cast<int64_t>(sweep.budget.trial_timeout_s * 1000));

  Session session = open_session(database, conduct.row);
  std::optional<TextSnapshot> snapshot;
  if (!is_foreign) {
    snapshot.emplace(database, loaded.text);
    loop_options.runner.text_path = snapshot->path();
  }
  const InterruptGuard guard;
  Progress progress(stderr, Progress::mode_for(stderr, options.has("quiet")));
  if (session.is_resumed && !loop_options.max_new_runs) {
    progress.note(fmt::format("resuming the sweep in {}", database));
  }
  SystemProcessRunner processes;
  report.set_sweep(session.sweep_id);
  report.set_note([&](const std::string& line) { progress.note(line); });
  loop_options.on_trial = [&] { report.refresh(); };
  SweepLoop loop(session.store, session.sweep_id, processes, loop_options, progress);
  report.refresh();  // there from the start, to be opened
  SweepSummary summary;
  try {
    summary = loop.run(*conduct.strategy);
  } catch (...) {
    report.finish();
    throw;
  }
  report.finish();
  if (conduct.told != nullptr && !conduct.told->is_taken()) {
    throw base::UsageError(
        fmt::format("{}: the sweep {} and waits for no trial; nothing was stored", database,
                    summary.status == SearchStatus::done ? "is done" : "has failed"));
  }
  Result result = result_of(session.store, session.sweep_id, std::move(summary));
  if (result.summary.next) {
    result.next = next_command(*conduct.user_run, *result.summary.next, engine_folder(database));
  }
  if (!told && options.has("dry-run")) tell_what_is_read(file, *conduct.user_run);
  if (options.wants_json()) {
    std::cout << to_json(result).dump(2, ' ', false, nlohmann::json::error_handler_t::replace)
              << "\n";
  } else {
    std::cout << to_text(result) << (result.next ? to_text(*result.next) : std::string());
    if (result.next) {
      std::cout << fmt::format("then: moetune tell {} --db {} LOG...{}\n", word_for_shell(file),
                               word_for_shell(database),
                               result.next->is_profiled ? " TRACE..." : "");
    }
  }
  return exit_code_of(result, file, progress);
}

}  // namespace moetune::sweeps
